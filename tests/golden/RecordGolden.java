// Writes what Apache Kafka's own client makes of given keys and records, as JSON on standard output.
// Run by record_records.sh; the tests read the recorded file only.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Utils;

public class RecordGolden {
    static final HexFormat HEX = HexFormat.of();

    record Row(long timestamp, byte[] key, byte[] value, Header[] headers) {}

    static String hex(byte[] content) {
        return content == null ? "null" : '"' + HEX.formatHex(content) + '"';
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return content;
    }

    static byte[] random(Random random, int size) {
        byte[] content = new byte[size];
        random.nextBytes(content);
        return content;
    }

    static byte[] text(int size) {
        byte[] content = new byte[size];
        for (int i = 0; i < size; i++)
            content[i] = (byte) ('a' + i * i % 23);
        return content;
    }

    static Header header(String key, byte[] value) {
        return new RecordHeader(key, value);
    }

    static String murmur() {
        Random random = new Random(20);
        List<String> lines = new ArrayList<>();
        for (int size = 0; size <= 140; size++) {
            byte[] key = random(random, size);
            lines.add(String.format("    {\"key\": %s, \"hash\": %d, \"partition_of_7\": %d, \"partition_of_1000\": %d}",
                hex(key), Integer.toUnsignedLong(Utils.murmur2(key)),
                BuiltInPartitioner.partitionForKey(key, 7), BuiltInPartitioner.partitionForKey(key, 1000)));
        }
        return String.join(",\n", lines);
    }

    // Key number i is the first i % 41 bytes of the SHA-512 of i in decimal digits.
    static String placement() throws Exception {
        MessageDigest sha512 = MessageDigest.getInstance("SHA-512");
        int[] counts = {1, 4, 64, 1000};
        List<String> lines = new ArrayList<>();
        for (int count : counts) {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (int i = 0; i < 100_000; i++) {
                byte[] whole = sha512.digest(Integer.toString(i).getBytes(StandardCharsets.US_ASCII));
                byte[] key = java.util.Arrays.copyOf(whole, i % 41);
                digest.update(ByteBuffer.allocate(4).putInt(BuiltInPartitioner.partitionForKey(key, count)).array());
            }
            lines.add(String.format("    \"%d\": \"%s\"", count, HEX.formatHex(digest.digest())));
        }
        return String.join(",\n", lines);
    }

    static List<Row> plainRows() {
        List<Row> rows = new ArrayList<>();
        rows.add(new Row(1700000000000L, "k".getBytes(), "v".getBytes(), new Header[0]));
        rows.add(new Row(1700000000000L, null, "no key".getBytes(), new Header[0]));
        rows.add(new Row(1700000000001L, new byte[0], new byte[0], new Header[0]));
        rows.add(new Row(1699999999000L, "tombstone".getBytes(), null, new Header[0]));
        rows.add(new Row(1700000086400L, null, null, new Header[] {header("h", "x".getBytes())}));
        rows.add(new Row(1700086400000L, text(63), text(64), new Header[] {
            header("dup", "1".getBytes()), header("dup", null), header("", new byte[0]), header("\u00fcml", text(70))}));
        rows.add(new Row(0L, text(127), text(128), new Header[0]));
        rows.add(new Row(Long.MAX_VALUE / 2, text(8191), text(8192), new Header[0]));
        return rows;
    }

    static List<Row> manyRows() {
        List<Row> rows = new ArrayList<>();
        for (int i = 0; i < 300; i++)
            rows.add(new Row(1700000000000L + i * 37L, ("key-" + i).getBytes(), text(i), new Header[0]));
        return rows;
    }

    static List<Row> largeRows() {
        Random random = new Random(21);
        List<Row> rows = new ArrayList<>();
        // More than one lz4 block, xerial block and zstd block, part of it incompressible.
        for (int i = 0; i < 2; i++) {
            rows.add(new Row(1700000000000L, null, random(random, 10_000), new Header[0]));
            rows.add(new Row(1700000000000L, null, new byte[80_000], new Header[0]));
        }
        return rows;
    }

    static String batch(String name, String codec, Compression compression, long producerId, short epoch, int sequence,
                        boolean transactional, List<Row> rows) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), (byte) 2, compression,
            TimestampType.CREATE_TIME, 0L, -1L, producerId, epoch, sequence, transactional, -1);
        List<String> lines = new ArrayList<>();
        for (Row row : rows) {
            builder.append(row.timestamp, row.key, row.value, row.headers);
            List<String> headers = new ArrayList<>();
            for (Header header : row.headers)
                headers.add(String.format("[%s, %s]", hex(header.key().getBytes(StandardCharsets.UTF_8)), hex(header.value())));
            lines.add(String.format("      {\"timestamp_ms\": %d, \"key\": %s, \"value\": %s, \"headers\": [%s]}",
                row.timestamp, hex(row.key), hex(row.value), String.join(", ", headers)));
        }
        String content = hex(bytes(builder.build().buffer()));
        return String.format("    {\"name\": \"%s\", \"codec\": \"%s\", \"producer_id\": %d, \"producer_epoch\": %d, "
            + "\"base_sequence\": %d, \"is_transactional\": %b, \"records\": [\n%s\n    ],\n    \"batch\": %s}",
            name, codec, producerId, epoch, sequence, transactional, String.join(",\n", lines), content);
    }

    static String batches() {
        List<String> lines = new ArrayList<>();
        lines.add(batch("plain", "none", Compression.NONE, -1L, (short) -1, -1, false, plainRows()));
        lines.add(batch("one record", "none", Compression.NONE, -1L, (short) -1, -1, false, plainRows().subList(0, 1)));
        lines.add(batch("idempotent", "none", Compression.NONE, 4711L, (short) 3, 2147483647, false, manyRows()));
        lines.add(batch("transactional", "none", Compression.NONE, Long.MAX_VALUE, Short.MAX_VALUE, 0, true, manyRows()));
        for (String codec : new String[] {"gzip", "snappy", "lz4", "zstd"}) {
            lines.add(batch(codec, codec, Compression.of(codec).build(), 1L, (short) 0, 5, false, plainRows()));
            lines.add(batch(codec + " large", codec, Compression.of(codec).build(), -1L, (short) -1, -1, false, largeRows()));
        }
        return String.join(",\n", lines);
    }

    static String control() {
        List<String> lines = new ArrayList<>();
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.ABORT, ControlRecordType.COMMIT}) {
            MemoryRecords records = MemoryRecords.withEndTransactionMarker(
                55L, 1700000000000L, 9, 77L, (short) 2, new EndTransactionMarker(type, 13));
            lines.add(String.format("    \"%s\": %s", type.name().toLowerCase(), hex(bytes(records.buffer()))));
        }
        return String.join(",\n", lines);
    }

    public static void main(String[] arguments) throws Exception {
        System.out.printf("{\n  \"provenance\": \"Apache Kafka client %s, tests/golden/RecordGolden.java\",\n",
            AppInfoParser.getVersion());
        System.out.printf("  \"murmur2\": [\n%s\n  ],\n", murmur());
        System.out.printf("  \"placement\": {\n%s\n  },\n", placement());
        System.out.printf("  \"batches\": [\n%s\n  ],\n", batches());
        System.out.printf("  \"control\": {\n%s\n  }\n}\n", control());
    }
}
