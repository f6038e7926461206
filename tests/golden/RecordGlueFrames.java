import com.amazonaws.services.schemaregistry.common.configs.GlueSchemaRegistryConfiguration;
import com.amazonaws.services.schemaregistry.serializers.SerializationDataEncoder;
import com.amazonaws.services.schemaregistry.serializers.protobuf.MessageIndexFinder;
import com.amazonaws.services.schemaregistry.serializers.protobuf.ProtobufWireFormatEncoder;
import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.MessageOptions;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;

/** What AWS Glue's own serializer makes of a value, and of Protobuf messages: lines of words, bytes in hexadecimal. */
public class RecordGlueFrames {
  public static void main(String[] arguments) throws Exception {
    UUID version = UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63");
    SerializationDataEncoder encoder =
        new SerializationDataEncoder(new GlueSchemaRegistryConfiguration(new HashMap<>(Map.of("region", "eu-west-1"))));
    System.out.println("value " + version + " " + HexFormat.of().formatHex(encoder.write("payload".getBytes(), version)));
    // Zebra comes first in the file, and last by name. Apple holds Core and Peel, and the
    // entries of a map.
    FileDescriptorProto.Builder file = FileDescriptorProto.newBuilder().setName("shop.proto").setPackage("shop");
    file.addMessageType(DescriptorProto.newBuilder().setName("Zebra"));
    file.addMessageType(
        DescriptorProto.newBuilder()
            .setName("Apple")
            .addNestedType(DescriptorProto.newBuilder().setName("Peel"))
            .addNestedType(DescriptorProto.newBuilder().setName("Core"))
            .addNestedType(
                DescriptorProto.newBuilder()
                    .setName("LeavesEntry")
                    .setOptions(MessageOptions.newBuilder().setMapEntry(true))
                    .addField(field("key"))
                    .addField(field("value"))));
    FileDescriptor descriptor = FileDescriptor.buildFrom(file.build(), new FileDescriptor[0]);
    ProtobufWireFormatEncoder protobuf = new ProtobufWireFormatEncoder(new MessageIndexFinder());
    for (var message : new com.google.protobuf.Descriptors.Descriptor[] {
        descriptor.findMessageTypeByName("Zebra"),
        descriptor.findMessageTypeByName("Apple"),
        descriptor.findMessageTypeByName("Apple").findNestedTypeByName("Peel"),
        descriptor.findMessageTypeByName("Apple").findNestedTypeByName("Core")}) {
      byte[] bytes = protobuf.encode(DynamicMessage.getDefaultInstance(message), descriptor);
      System.out.println("message " + message.getFullName() + " " + HexFormat.of().formatHex(bytes));
    }
  }

  private static FieldDescriptorProto field(String name) {
    return FieldDescriptorProto.newBuilder()
        .setName(name)
        .setNumber(name.equals("key") ? 1 : 2)
        .setType(FieldDescriptorProto.Type.TYPE_STRING)
        .setLabel(FieldDescriptorProto.Label.LABEL_OPTIONAL)
        .build();
  }
}
