import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;

/**
 * Prints every option of the Java producer with its type, default and validator as JSON.
 *
 * Run with the jars of the wanted Kafka version on the class path:
 *   java -cp 'JARS/*' DumpProducerConfig.java > producer_config_VERSION.json
 */
public final class DumpProducerConfig {
    public static void main(String[] args) throws IOException {
        StringBuilder out = new StringBuilder("{\n");
        out.append(" \"provenance\": ").append(text("ProducerConfig.configDef() of org.apache.kafka:kafka-clients:"
                + version() + ", printed by DumpProducerConfig.java")).append(",\n \"options\": {\n");
        String separator = "";
        for (var entry : new TreeMap<>(ProducerConfig.configDef().configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            boolean required = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            out.append(separator).append("  ").append(text(key.name)).append(": {\"type\": ")
               .append(text(key.type.name())).append(", \"required\": ").append(required)
               .append(", \"default\": ").append(required ? "null" : value(key.defaultValue))
               .append(", \"valid\": ").append(key.validator == null ? "null" : text(key.validator.toString()))
               .append(", \"internal\": ").append(key.internalConfig).append("}");
            separator = ",\n";
        }
        System.out.println(out.append("\n }\n}"));
    }

    private static String version() throws IOException {
        Properties known = new Properties();
        try (InputStream file = ProducerConfig.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            known.load(file);
        }
        return known.getProperty("version");
    }

    private static String value(Object value) {
        if (value == null) return "null";
        if (value instanceof Number || value instanceof Boolean) return value.toString();
        if (value instanceof Password) return text(((Password) value).value());
        if (value instanceof Class) return text(((Class<?>) value).getName());
        if (value instanceof List) {
            StringBuilder out = new StringBuilder("[");
            String separator = "";
            for (Object item : (List<?>) value) {
                out.append(separator).append(value(item));
                separator = ", ";
            }
            return out.append("]").toString();
        }
        return text(value.toString());
    }

    private static String text(String value) {
        return "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }
}
