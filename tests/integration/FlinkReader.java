import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Reads a change topic to its end with Flink SQL, and prints the rows that it leaves, each as JSON.
 *
 * <p>Arguments: brokers, topic, columns with their types, and the names of the key's columns.
 */
public final class FlinkReader {
    private static final DateTimeFormatter MICROS =
            DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

    public static void main(String[] arguments) throws Exception {
        TableEnvironment flink =
                TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().build());
        flink.getConfig().set("parallelism.default", "1");
        flink.executeSql(
                String.format(
                        "CREATE TABLE changes (%s) WITH ('connector' = 'kafka', 'topic' = '%s', "
                                + "'properties.bootstrap.servers' = '%s', "
                                + "'properties.isolation.level' = 'read_committed', "
                                + "'scan.startup.mode' = 'earliest-offset', "
                                + "'scan.bounded.mode' = 'latest-offset', "
                                + "'format' = 'debezium-json', "
                                + "'debezium-json.timestamp-format.standard' = 'ISO-8601')",
                        arguments[2], arguments[1], arguments[0]));
        String[] keys = arguments[3].split(",");
        Map<List<Object>, Row> rows = new LinkedHashMap<>();
        try (CloseableIterator<Row> changes =
                flink.executeSql("SELECT * FROM changes").collect()) {
            while (changes.hasNext()) {
                Row row = changes.next();
                List<Object> key = new ArrayList<>();
                for (String name : keys) {
                    key.add(row.getField(name));
                }
                switch (row.getKind()) {
                    case INSERT, UPDATE_AFTER -> rows.put(key, row);
                    case DELETE, UPDATE_BEFORE -> rows.remove(key);
                }
            }
        }
        ObjectMapper json = new ObjectMapper();
        for (Row row : rows.values()) {
            System.out.println(json.writeValueAsString(plain(row)));
        }
    }

    /** Returns a value as JSON can have it: as records with `types=iso` do. */
    private static Object plain(Object value) {
        if (value instanceof Row row) {
            Map<String, Object> fields = new LinkedHashMap<>();
            for (String name : row.getFieldNames(true)) {
                fields.put(name, plain(row.getField(name)));
            }
            return fields;
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> entries = new LinkedHashMap<>();
            map.forEach((name, entry) -> entries.put(String.valueOf(name), plain(entry)));
            return entries;
        }
        if (value instanceof byte[] || value == null) {
            return value;
        }
        if (value instanceof Object[] items) {
            return Arrays.stream(items).map(FlinkReader::plain).toList();
        }
        if (value instanceof BigDecimal number) {
            return number.toPlainString();
        }
        if (value instanceof Instant instant) {
            return MICROS.format(instant.atOffset(ZoneOffset.UTC)) + "Z";
        }
        if (value instanceof LocalDateTime local) {
            return MICROS.format(local);
        }
        return value instanceof LocalDate ? value.toString() : value;
    }
}
