// Reads record batches with Apache Kafka's own client: lines "name hex" on standard input, for each of them on standard
// output "name records digest". The digest is the SHA-256 over offset, timestamp, key, value and headers of all records.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;

public class RecordReader {
    static void number(MessageDigest digest, long value) {
        digest.update(ByteBuffer.allocate(8).putLong(value).array());
    }

    static void content(MessageDigest digest, byte[] value) {
        number(digest, value == null ? -1 : value.length);
        if (value != null)
            digest.update(value);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ");
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(parts[1])));
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            int count = 0;
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    record.ensureValid();
                    count++;
                    number(digest, record.offset());
                    number(digest, record.timestamp());
                    content(digest, Utils.toNullableArray(record.key()));
                    content(digest, Utils.toNullableArray(record.value()));
                    number(digest, record.headers().length);
                    for (Header header : record.headers()) {
                        content(digest, header.key().getBytes(StandardCharsets.UTF_8));
                        content(digest, header.value());
                    }
                }
            }
            System.out.println(parts[0] + " " + count + " " + HexFormat.of().formatHex(digest.digest()));
        }
    }
}
