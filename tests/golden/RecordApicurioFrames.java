import io.apicurio.registry.resolver.strategy.ArtifactReference;
import io.apicurio.registry.serde.DefaultIdHandler;
import io.apicurio.registry.serde.IdHandler;
import io.apicurio.registry.serde.Legacy4ByteIdHandler;
import io.apicurio.registry.serde.avro.AvroSerdeHeaders;
import io.apicurio.registry.serde.headers.DefaultHeadersHandler;
import io.apicurio.registry.serde.protobuf.ProtobufSerdeHeaders;
import io.apicurio.registry.serde.protobuf.ref.RefOuterClass.Ref;
import java.io.ByteArrayOutputStream;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** What Apicurio's own serializers put before a value, or beside it: lines of words, bytes in hexadecimal. */
public class RecordApicurioFrames {
  public static void main(String[] arguments) throws Exception {
    for (long id : new long[] {0, 1, 258, 0x01020304L, 2147483647L}) {
      for (String kind : new String[] {"globalId", "contentId"}) {
        ArtifactReference artifact = ArtifactReference.builder().globalId(id).contentId(id).build();
        Map<String, Object> settings = new HashMap<>(Map.of("apicurio.registry.use-id", kind));
        prefix("eight", new DefaultIdHandler(), settings, artifact, id);
        prefix("four", new Legacy4ByteIdHandler(), settings, artifact, id);
        for (boolean isKey : new boolean[] {false, true}) {
          RecordHeaders headers = new RecordHeaders();
          DefaultHeadersHandler handler = new DefaultHeadersHandler();
          handler.configure(settings, isKey);
          handler.writeHeaders(headers, artifact);
          new AvroSerdeHeaders(isKey).addEncodingHeader(headers, "BINARY");
          new ProtobufSerdeHeaders(new HashMap<>(), isKey).addProtobufTypeNameHeader(headers, "Order");
          for (Header header : headers) {
            print("header", kind, isKey ? "key" : "value", id, header.key(), header.value());
          }
        }
      }
    }
    for (String name : new String[] {"Order", "A".repeat(200)}) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      Ref.newBuilder().setName(name).build().writeDelimitedTo(out);
      print("reference", name, out.toByteArray());
    }
  }

  private static void prefix(
      String width, IdHandler handler, Map<String, Object> settings, ArtifactReference artifact, long id)
      throws Exception {
    handler.configure(settings, false);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(0);
    handler.writeId(artifact, out);
    print("prefix", width, id, out.toByteArray());
  }

  private static void print(Object... words) {
    StringBuilder line = new StringBuilder();
    for (Object word : words) {
      line.append(line.length() == 0 ? "" : " ").append(word instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : word);
    }
    System.out.println(line);
  }
}
