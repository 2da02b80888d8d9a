import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.everit.json.schema.loader.SchemaLoader;
import org.json.JSONObject;

/**
 * Reads records of a change topic as Confluent's deserializers do, by the libraries below them.
 *
 * <p>A line of the input has, with tabs between them: the format, the schema that the record was
 * written with, the one to read it with, and the record, all but the first in base64. A line of the
 * output is the record's value as JSON, {@code {"value": …}}, or {@code {"error": …}}.
 */
public final class RecordReader {
    private static final int ID_END = 5;

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t");
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("value", read(parts[0], text(parts[1]), text(parts[2]), bytes(parts[3])));
            } catch (Exception error) {
                answer.put("error", String.valueOf(error));
            }
            out.println(json.writeValueAsString(answer));
        }
    }

    private static Object read(String format, String writer, String reader, byte[] record)
            throws Exception {
        if (record[0] != 0) {
            throw new IllegalArgumentException("unknown magic byte " + record[0]);
        }
        byte[] content = Arrays.copyOfRange(record, ID_END, record.length);
        switch (format) {
            case "avro":
                return ofAvro(avro(writer, reader, content));
            case "protobuf":
                return ofMessage(message(writer, reader, content));
            default:
                String value = new String(content, StandardCharsets.UTF_8);
                SchemaLoader.builder()
                        .schemaJson(new JSONObject(reader))
                        .draftV7Support()
                        .build()
                        .load()
                        .build()
                        .validate(new JSONObject(value));
                return new ObjectMapper().readValue(value, Map.class);
        }
    }

    private static Object avro(String writer, String reader, byte[] content) throws Exception {
        Schema written = new Schema.Parser().parse(writer);
        Schema wanted = new Schema.Parser().parse(reader);
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(content, null);
        Object value = new GenericDatumReader<Object>(written, wanted).read(null, decoder);
        if (!decoder.isEnd()) {
            throw new IllegalArgumentException("bytes are left behind the record");
        }
        return value;
    }

    private static Object ofAvro(Object value) {
        if (value instanceof GenericRecord) {
            GenericRecord record = (GenericRecord) value;
            Map<String, Object> fields = new LinkedHashMap<>();
            for (Schema.Field field : record.getSchema().getFields()) {
                fields.put(field.name(), ofAvro(record.get(field.pos())));
            }
            return fields;
        }
        if (value instanceof List) {
            List<Object> items = new ArrayList<>();
            ((List<?>) value).forEach(item -> items.add(ofAvro(item)));
            return items;
        }
        if (value instanceof Map) {
            Map<String, Object> entries = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((key, item) -> entries.put(key.toString(), ofAvro(item)));
            return entries;
        }
        if (value instanceof ByteBuffer) {
            byte[] bytes = new byte[((ByteBuffer) value).remaining()];
            ((ByteBuffer) value).duplicate().get(bytes);
            return Base64.getEncoder().encodeToString(bytes);
        }
        return value instanceof CharSequence ? value.toString() : exact(value);
    }

    /** Returns a float as the double that it is: its shortest text may be that of another one. */
    private static Object exact(Object value) {
        return value instanceof Float ? Double.valueOf((Float) value) : value;
    }

    /** Returns the message behind its indexes: the path to it among the messages of its schema. */
    private static Message message(String writer, String reader, byte[] content) throws Exception {
        CodedInputStream in = CodedInputStream.newInstance(content);
        int[] indexes = new int[in.readSInt32()];
        for (int place = 0; place < indexes.length; place++) {
            indexes[place] = in.readSInt32();
        }
        byte[] body = Arrays.copyOfRange(content, in.getTotalBytesRead(), content.length);
        DynamicMessage written = DynamicMessage.parseFrom(descriptor(writer, indexes), body);
        checkKnown(written);
        return DynamicMessage.parseFrom(descriptor(reader, indexes), body);
    }

    private static Descriptor descriptor(String schema, int[] indexes) throws Exception {
        FileDescriptorProto file = FileDescriptorProto.parseFrom(bytes(schema));
        FileDescriptor built = FileDescriptor.buildFrom(file, new FileDescriptor[0]);
        int first = indexes.length == 0 ? 0 : indexes[0];
        Descriptor found = built.getMessageTypes().get(first);
        for (int place = 1; place < indexes.length; place++) {
            found = found.getNestedTypes().get(indexes[place]);
        }
        return found;
    }

    private static void checkKnown(Message message) {
        if (!message.getUnknownFields().asMap().isEmpty()) {
            throw new IllegalArgumentException("fields that the schema lacks");
        }
        for (Object value : message.getAllFields().values()) {
            for (Object item : value instanceof List ? (List<?>) value : List.of(value)) {
                if (item instanceof Message) {
                    checkKnown((Message) item);
                }
            }
        }
    }

    private static Map<String, Object> ofMessage(Message message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            boolean isAbsent = field.hasPresence() && !message.hasField(field);
            fields.put(field.getName(), isAbsent ? null : ofField(message.getField(field), field));
        }
        return fields;
    }

    private static Object ofField(Object value, FieldDescriptor field) {
        if (value instanceof ByteString) {
            return Base64.getEncoder().encodeToString(((ByteString) value).toByteArray());
        }
        if (!(value instanceof Message)) {
            return exact(value);
        }
        String kind = field.getMessageType().getName().replaceAll("_+$", "");
        if (kind.equals(field.getName() + "List")) {
            List<Object> items = new ArrayList<>();
            items((Message) value).forEach(item -> items.add(ofMessage(item).get("value")));
            return items;
        }
        if (kind.equals(field.getName() + "Map")) {
            Map<String, Object> entries = new LinkedHashMap<>();
            for (Message entry : items((Message) value)) {
                Descriptor of = entry.getDescriptorForType();
                Message item = (Message) entry.getField(of.findFieldByName("value"));
                Object key = entry.getField(of.findFieldByName("key"));
                entries.put((String) key, ofMessage(item).get("value"));
            }
            return entries;
        }
        return ofMessage((Message) value);
    }

    private static List<Message> items(Message list) {
        FieldDescriptor field = list.getDescriptorForType().findFieldByName("items");
        List<Message> items = new ArrayList<>();
        for (Object item : (List<?>) list.getField(field)) {
            items.add((Message) item);
        }
        return items;
    }

    private static byte[] bytes(String base64) {
        return Base64.getDecoder().decode(base64);
    }

    private static String text(String base64) {
        return new String(bytes(base64), StandardCharsets.UTF_8);
    }
}
