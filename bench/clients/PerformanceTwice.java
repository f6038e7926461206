import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's producer in one JVM: once to warm it up, once to be measured. Start-up and most of the JIT compiler's work
 * are then over. Two ways of sending: Kafka's own tool, whose printed rate is taken, and a bare loop without the
 * callbacks and latency statistics of that tool.
 *
 * Arguments: tool|loop, topic, payload file, records to warm up, records, then producer properties as name=value.
 */
public class PerformanceTwice {
    private static final Pattern RATE = Pattern.compile("(\\d+) records sent, ([\\d.]+) records/sec");

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Path payload = Path.of(arguments[2]);
        long warmUp = Long.parseLong(arguments[3]);
        long records = Long.parseLong(arguments[4]);
        List<String> properties = Arrays.asList(arguments).subList(5, arguments.length);
        double seconds;
        double cpuSeconds;
        if (arguments[0].equals("tool")) {
            runTool(topic, payload, warmUp, properties);
            double started = cpuSeconds();
            seconds = runTool(topic, payload, records, properties);
            cpuSeconds = cpuSeconds() - started;
        } else {
            List<byte[]> values = new ArrayList<>();
            for (String line : Files.readString(payload).split("\n")) {
                values.add(line.getBytes(StandardCharsets.UTF_8));
            }
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(parsed(properties))) {
                sendAll(producer, topic, values, warmUp);
                double started = cpuSeconds();
                seconds = sendAll(producer, topic, values, records);
                cpuSeconds = cpuSeconds() - started;
            }
        }
        System.out.printf(
            "{\"seconds\": %f, \"cpu_seconds\": %f, \"peak_rss_bytes\": %d}%n", seconds, cpuSeconds, peakRssBytes());
    }

    /** Seconds as the tool counts them: from before the first send until its producer is closed. */
    private static double runTool(String topic, Path payload, long records, List<String> properties) throws Exception {
        List<String> arguments = new ArrayList<>(List.of(
            "--topic", topic, "--num-records", Long.toString(records), "--throughput", "-1",
            "--payload-file", payload.toString(), "--reporting-interval", "3600000", "--command-property"));
        arguments.addAll(properties);
        PrintStream console = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true));
        try {
            org.apache.kafka.tools.ProducerPerformance.main(arguments.toArray(new String[0]));
        } finally {
            System.setOut(console);
        }
        Matcher matcher = RATE.matcher(printed.toString());
        double rate = 0;
        while (matcher.find()) {
            rate = Double.parseDouble(matcher.group(2));
        }
        if (rate == 0) {
            throw new IllegalStateException("the tool printed no rate: " + printed);
        }
        return records / rate;
    }

    private static double sendAll(
            KafkaProducer<byte[], byte[]> producer, String topic, List<byte[]> values, long records) {
        SplittableRandom random = new SplittableRandom(0);
        long started = System.nanoTime();
        for (long i = 0; i < records; i++) {
            producer.send(new ProducerRecord<>(topic, values.get(random.nextInt(values.size()))));
        }
        producer.flush();
        return (System.nanoTime() - started) / 1e9;
    }

    private static Properties parsed(List<String> pairs) {
        Properties properties = new Properties();
        for (String pair : pairs) {
            String[] parts = pair.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        return properties;
    }

    private static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    private static long peakRssBytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        throw new IllegalStateException("/proc/self/status has no VmHWM");
    }
}
