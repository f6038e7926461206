// Makes a Java client send one request of nearly every kind that the wire table has; record_wire.py listens in.
// Usage: java -cp 'kafka-clients and its dependencies' RecordWireTraffic.java <plain address> <sasl address>
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class RecordWireTraffic {
    static final TopicPartition PARTITION = new TopicPartition("orders", 0);

    static Properties properties(String address, String... pairs) {
        Properties result = new Properties();
        result.put("bootstrap.servers", address);
        for (int i = 0; i < pairs.length; i += 2) result.put(pairs[i], pairs[i + 1]);
        return result;
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(properties(arguments[0]))) {
            NewTopic topic = new NewTopic("orders", 1, (short) 1).configs(Map.of("retention.ms", "86400000"));
            admin.createTopics(List.of(topic)).all().get();
            admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(2))).all().get();
            produce(arguments[0]);
            consumeAndProduce(arguments[0]);
            look(admin);
            admin.deleteTopics(List.of("orders")).all().get();
        }
        String login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" password=\"alice-secret\";";
        try (Admin admin = Admin.create(properties(arguments[1], "security.protocol", "SASL_PLAINTEXT",
                "sasl.mechanism", "PLAIN", "sasl.jaas.config", login))) {
            admin.describeCluster().nodes().get();
        }
    }

    static void produce(String address) throws Exception {
        try (var producer = new KafkaProducer<>(properties(address, "compression.type", "lz4"), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 3; i++) {
                var record = new ProducerRecord<>("orders", 0, "key-" + i, "value-" + i);
                record.headers().add("trace", new byte[] {1, 2, 3});
                producer.send(record);
            }
        }
    }

    static void consumeAndProduce(String address) throws Exception {
        Properties reading = properties(address, "group.id", "billing", "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "enable.auto.commit", "false", "heartbeat.interval.ms", "200");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             var producer = new KafkaProducer<>(properties(address, "transactional.id", "copier"), new StringSerializer(), new StringSerializer())) {
            consumer.subscribe(List.of("orders"));
            producer.initTransactions();
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) { }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("orders", 1, null, "copied")).get();
            producer.sendOffsetsToTransaction(Map.of(PARTITION, new OffsetAndMetadata(3, "three")), consumer.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("orders", 1, null, "aborted")).get();
            producer.abortTransaction();
            for (int i = 0; i < 5; i++) consumer.poll(Duration.ofMillis(200));
            consumer.commitSync();
        }
    }

    static void look(Admin admin) throws Exception {
        admin.describeCluster().nodes().get();
        admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.TOPIC, "orders"))).all().get();
        admin.describeProducers(Set.of(new TopicPartition("orders", 1))).all().get();
        admin.describeTransactions(Set.of("copier")).all().get();
        admin.listTransactions().all().get();
        admin.listOffsets(Map.of(PARTITION, OffsetSpec.latest())).all().get();
        admin.listConsumerGroups().all().get();
        admin.describeConsumerGroups(Set.of("billing")).all().get();
        admin.listConsumerGroupOffsets("billing").all().get();
    }
}
