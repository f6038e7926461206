// Reads many texts of properties with java.util.Properties: the other side of tests/integration/test_properties_java.py.
//
// Standard input has texts in UTF-8, each after its length (int32, big-endian). The answer for each is a number of
// entries (int32), -1 if it was refused, and then names and values, sorted by name, each after its length, in UTF-16.

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.TreeMap;

public class ReadProperties {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (in.available() > 0) {
            byte[] text = new byte[in.readInt()];
            in.readFully(text);
            Properties properties = new Properties();
            try {
                properties.load(new InputStreamReader(new ByteArrayInputStream(text), StandardCharsets.UTF_8));
            } catch (IllegalArgumentException malformed) {
                out.writeInt(-1);
                continue;
            }
            out.writeInt(properties.size());
            for (var entry : new TreeMap<Object, Object>(properties).entrySet()) {
                write(out, (String) entry.getKey());
                write(out, (String) entry.getValue());
            }
        }
        out.flush();
    }

    private static void write(DataOutputStream out, String text) throws Exception {
        out.writeInt(text.length());
        out.writeChars(text);
    }
}
