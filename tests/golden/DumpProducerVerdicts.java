import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Tells for each set of options whether the Java producer takes it, and what it makes of some of them.
 *
 * Input: a text file, one case per line, options as name=value separated by a vertical bar; bootstrap.servers is added
 * where it is missing. Nothing listens there: a producer that is closed at once needs no broker.
 *   java -cp 'JARS/*' DumpProducerVerdicts.java CASES > producer_verdicts_VERSION.json
 */
public final class DumpProducerVerdicts {
    private static final List<String> RESULTS = List.of(
        "acks", "client.id", "enable.idempotence", "reconnect.backoff.max.ms", "metadata.recovery.strategy");

    public static void main(String[] args) throws Exception {
        List<String> rows = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            if (line.isBlank() || line.startsWith("#")) continue;
            Map<String, Object> options = new HashMap<>();
            options.put("bootstrap.servers", "127.0.0.1:9");
            for (String pair : line.split("\\|", -1)) {
                int at = pair.indexOf('=');
                options.put(pair.substring(0, at), pair.substring(at + 1));
            }
            rows.add("  " + text(line) + ": " + verdict(options));
        }
        System.out.println("{\n \"provenance\": " + text("KafkaProducer of org.apache.kafka:kafka-clients:"
            + AppInfoParser.getVersion() + ", printed by DumpProducerVerdicts.java") + ",\n \"verdicts\": {\n"
            + String.join(",\n", rows) + "\n }\n}");
    }

    private static String verdict(Map<String, Object> options) throws ReflectiveOperationException {
        ByteArraySerializer bytes = new ByteArraySerializer();
        int deliveryTimeout;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(options, bytes, bytes)) {
            deliveryTimeout = deliveryTimeoutMs(producer);
            producer.close(Duration.ZERO);
        } catch (KafkaException | IllegalArgumentException e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            return "{\"refused\": " + text(cause.getClass().getSimpleName()) + "}";
        }
        options.put("key.serializer", bytes.getClass());
        options.put("value.serializer", bytes.getClass());
        ProducerConfig config = new ProducerConfig(options);
        List<String> pairs = new ArrayList<>();
        for (String name : RESULTS) {
            // A running number is replaced by nothing: it says only that the client made the name up.
            String value = String.valueOf(config.values().get(name)).replaceFirst("^producer-[0-9]+$", "");
            pairs.add(text(name) + ": " + text(value));
        }
        pairs.add(text("delivery.timeout.ms") + ": " + text(String.valueOf(deliveryTimeout)));
        return "{" + String.join(", ", pairs) + "}";
    }

    // Raised to linger.ms + request.timeout.ms where it is shorter and not named, which the configuration itself hides.
    private static int deliveryTimeoutMs(KafkaProducer<?, ?> producer) throws ReflectiveOperationException {
        Field accumulator = KafkaProducer.class.getDeclaredField("accumulator");
        accumulator.setAccessible(true);
        Field timeout = accumulator.get(producer).getClass().getDeclaredField("deliveryTimeoutMs");
        timeout.setAccessible(true);
        return timeout.getInt(accumulator.get(producer));
    }

    private static String text(String value) {
        return "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\t", "\\t") + "\"";
    }
}
