// Where Apache Kafka's own producer puts keys. Standard input: for each key its length (4 bytes) and its bytes.
// Arguments: numbers of partitions. Standard output: for each key, in order, one partition (4 bytes) per argument.

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.util.Arrays;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Placement {
    public static void main(String[] arguments) throws Exception {
        int[] partitionCounts = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
        DataInputStream input = new DataInputStream(new BufferedInputStream(System.in));
        try (DataOutputStream output = new DataOutputStream(new BufferedOutputStream(System.out))) {
            while (true) {
                byte[] key;
                try {
                    key = new byte[input.readInt()];
                } catch (EOFException end) {
                    return;
                }
                input.readFully(key);
                for (int partitionCount : partitionCounts)
                    output.writeInt(BuiltInPartitioner.partitionForKey(key, partitionCount));
            }
        }
    }
}
