import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.schema.*;

/**
 * Copies the rows of a Kafka topic into a Delta table, each row exactly once, through Tidegate.
 *
 *     java -cp "jars/*" StreamWriter.java BROKERS SOURCE_TOPIC TABLE_FOLDER
 *
 * It needs kafka-clients, jackson-databind and parquet-hadoop with hadoop-client, and nothing of
 * Tidegate. A record of the source is a JSON object {"id": 17, "text": "..."}; the table has the
 * columns id BIGINT, text STRING. The positions in the source are kept in the table and nowhere
 * else: kill and restart the program at any moment, or run several. It runs until it is stopped, or
 * meets what it has no answer to. System properties: prefix, batchRows, patienceMs.
 */
public final class StreamWriter {
    static final ObjectMapper JSON = new ObjectMapper();
    static final MessageType SCHEMA = MessageTypeParser.parseMessageType(
        "message row { optional int64 id; optional binary text (STRING); }");
    static final Duration SECOND = Duration.ofSeconds(1);
    final String prefix = System.getProperty("prefix", "tidegate.");
    final int batchRows = Integer.getInteger("batchRows", 10_000);
    final Duration patience = Duration.ofMillis(Long.getLong("patienceMs", 10_000));

    final String brokers, sourceTopic;
    final Path folder;
    final KafkaProducer<String, byte[]> producer;
    final KafkaConsumer<String, byte[]> source, outcomes;
    final JsonNode table;
    final Map<TopicPartition, String> appIds = new TreeMap<>(Comparator.comparing(TopicPartition::partition));
    final Map<String, Long> positions = new TreeMap<>();
    int partition;
    long version;

    StreamWriter(String brokers, String sourceTopic, Path folder) throws Exception {
        this.brokers = brokers;
        this.sourceTopic = sourceTopic;
        this.folder = folder;
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", brokers, "acks", "all", "enable.idempotence", "true"),
            new StringSerializer(), new ByteArraySerializer());
        // Records that were deleted before they were read must be an error, not a gap.
        source = consumer("none");
        // An outcome that was missed comes again, because the same bytes are sent again.
        outcomes = consumer("latest");
        table = findTable();
        usePartition(table.get("topic_partition").asInt());
        for (TopicPartition one : partitionsOf(sourceTopic)) {
            appIds.put(one, sourceTopic + "/" + one.partition());
        }
        source.assign(appIds.keySet());
        askForPositions();
    }

    /** Copies batch after batch. */
    void run() throws Exception {
        while (true) {
            Map<String, Long> ends = new TreeMap<>();
            List<JsonNode> rows = readBatch(ends);
            if (rows.isEmpty()) continue;
            ObjectNode fields = JSON.createObjectNode()
                .put("table_id", table.path("table_id").asText()).put("read_version", version);
            fields.putArray("actions").addObject().set("add", writeFile(rows));
            fields.putObject("reads"); // the rows do not depend on what is in the table
            ArrayNode steps = fields.putArray("app_txns");
            ends.forEach((id, end) -> steps.addObject()
                .put("app_id", id).put("version", end).put("expected", positions.get(id)));
            JsonNode outcome = propose(fields);
            String status = outcome.get("status").asText();
            String rule = outcome.path("rejection").path("rule").asText();
            String reason = outcome.path("rejection").path("reason").asText(status);
            if (status.equals("committed")) {
                version = outcome.get("version").asLong();
                System.out.println("committed " + rows.size() + " rows in version " + version);
                positions.putAll(ends);
            } else if (rule.equals("app_txn_seen")) {
                System.out.println("skipped " + rows.size() + " rows: " + reason);
                positions.putAll(ends);
            } else if (rule.equals("app_txn_conflict") || status.equals("expired")) {
                System.out.println("asking for the positions: " + reason);
                askForPositions();
            } else {
                throw new IllegalStateException(rows.size() + " rows were not committed: " + outcome);
            }
        }
    }

    /** Asks the table how far it has each source partition, and reads on from there. */
    void askForPositions() throws Exception {
        ObjectNode fields = JSON.createObjectNode().put("kind", "app_versions").put("read_version", -1);
        appIds.values().forEach(fields.putArray("app_ids")::add);
        JsonNode outcome = propose(fields);
        if (!outcome.get("status").asText().equals("answered")) {
            throw new IllegalStateException("the table did not tell its positions: " + outcome);
        }
        version = outcome.get("version").asLong();
        System.out.println("positions " + outcome.get("app_versions"));
        appIds.forEach((at, id) -> {
            long last = outcome.get("app_versions").get(id).asLong();
            positions.put(id, last);
            if (last < 0) source.seekToBeginning(List.of(at));
            else source.seek(at, last + 1);
        });
    }

    /** Returns rows, and puts for each application the offset of the last row into ends. */
    List<JsonNode> readBatch(Map<String, Long> ends) throws Exception {
        List<JsonNode> rows = new ArrayList<>();
        for (var message : source.poll(SECOND)) { // at most max.poll.records
            rows.add(JSON.readTree(message.value()));
            ends.put(appIds.get(new TopicPartition(sourceTopic, message.partition())), message.offset());
        }
        return rows;
    }

    /** Writes a data file, durably: nobody checks later that it is there. Returns its add. */
    ObjectNode writeFile(List<JsonNode> rows) throws Exception {
        Path path = folder.resolve("part-" + UUID.randomUUID() + ".parquet");
        SimpleGroupFactory groups = new SimpleGroupFactory(SCHEMA);
        try (var writer = ExampleParquetWriter.builder(new LocalOutputFile(path))
                .withType(SCHEMA).withConf(new PlainParquetConfiguration()).build()) {
            for (JsonNode row : rows) {
                Group group = groups.newGroup();
                if (row.hasNonNull("id")) group.add("id", row.get("id").asLong());
                if (row.hasNonNull("text")) group.add("text", row.get("text").asText());
                writer.write(group);
            }
        }
        for (Path each : List.of(path, folder)) {
            try (FileChannel channel = FileChannel.open(each, StandardOpenOption.READ)) {
                channel.force(true);
            }
        }
        ObjectNode add = JSON.createObjectNode()
            .put("path", path.getFileName().toString()).put("size", Files.size(path))
            .put("modificationTime", System.currentTimeMillis()).put("dataChange", true)
            .put("stats", JSON.createObjectNode().put("numRecords", rows.size()).toString());
        add.putObject("partitionValues");
        return add;
    }

    /** Sends a proposal, always the same bytes, until an outcome needs another answer. */
    JsonNode propose(ObjectNode fields) throws Exception {
        String id = UUID.randomUUID().toString(), uuid = table.get("table").asText();
        fields.put("proposal_id", id).put("table", uuid).set("table_root", table.get("table_root"));
        byte[] value = JSON.writeValueAsBytes(fields);
        String digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(value));
        while (true) {
            var message = new ProducerRecord<>(table.get("proposals_topic").asText(), partition, uuid, value);
            String name = "stream-writer " + sourceTopic; // one for all runs: its order is kept
            Map.of("format", "proposal/1", "proposal_id", id, "table", uuid, "producer",
                name.substring(0, Math.min(name.length(), 64)))
                .forEach((header, text) -> message.headers().add(header, text.getBytes()));
            try {
                producer.send(message).get();
                System.out.println("proposed " + id);
            } catch (ExecutionException error) {
                System.out.println("not sent, or it is unknown whether: " + error.getCause());
            }
            JsonNode outcome = waitForOutcome(id, digest);
            JsonNode rejection = outcome == null ? JSON.nullNode() : outcome.path("rejection");
            if (outcome == null) {
                System.out.println("no outcome in time: sending the same bytes again");
            } else if (rejection.path("advice").asText().equals("resend")) {
                usePartition(rejection.get("topic_partition").asInt());
            } else if (outcome.get("status").asText().equals("denied")
                    && rejection.get("advice").asText().equals("retry")) {
                System.out.println("denied, sending the same bytes again: " + rejection.get("reason"));
                Thread.sleep(SECOND.toMillis());
            } else {
                return outcome;
            }
        }
    }

    /** Returns the outcome of exactly these bytes, or null if it does not come in time. */
    JsonNode waitForOutcome(String id, String digest) throws Exception {
        long ends = System.nanoTime() + patience.toNanos(), left;
        JsonNode found = null;
        while (found == null && (left = ends - System.nanoTime()) > 0) {
            for (var message : outcomes.poll(Duration.ofNanos(left))) {
                if (!id.equals(message.key())) continue;
                JsonNode outcome = JSON.readTree(message.value());
                if (outcome.get("proposal_sha256").asText().equals(digest)) found = outcome;
            }
        }
        return found;
    }

    /** Sends to this topic partition, and reads outcomes from behind those that are there now. */
    void usePartition(int number) {
        partition = number;
        TopicPartition at = new TopicPartition(prefix + "outcomes", number);
        outcomes.assign(List.of(at));
        outcomes.seek(at, outcomes.endOffsets(List.of(at)).get(at));
    }

    /** Returns the table's record, from the registry as it is at its end. */
    JsonNode findTable() throws Exception {
        Map<List<Object>, byte[]> values = new HashMap<>(); // the latest of each key in each partition
        try (KafkaConsumer<String, byte[]> reader = consumer("none")) {
            List<TopicPartition> all = partitionsOf(prefix + "table-state");
            reader.assign(all);
            reader.seekToBeginning(all);
            for (var end : reader.endOffsets(all).entrySet()) {
                while (reader.position(end.getKey()) < end.getValue()) {
                    for (var message : reader.poll(SECOND)) {
                        values.put(List.of(message.partition(), message.key()), message.value());
                    }
                }
            }
        }
        // Java encodes a URI as the registry does, with a slash behind a folder.
        String root = "file://" + folder.toUri().getRawPath().replaceFirst("/$", "");
        List<JsonNode> own = new ArrayList<>();
        Set<String> gone = new HashSet<>(); // Another table may be registered in a dropped one's folder.
        for (byte[] value : values.values()) {
            JsonNode one = value == null ? JSON.createObjectNode() : JSON.readTree(value);
            if (!one.path("table_root").asText().equals(root)) continue;
            own.add(one);
            if (one.get("status").asText().equals("dropped")) gone.add(one.get("table").asText());
        }
        JsonNode found = null;
        for (JsonNode one : own) {
            if (gone.contains(one.get("table").asText())) continue;
            if (one.get("status").asText().equals("staged")) continue;
            int number = one.get("topic_partition").asInt();
            if (found == null || number < found.get("topic_partition").asInt()) found = one;
        }
        if (found == null) throw new IllegalStateException("no table is registered at " + root);
        return found;
    }

    List<TopicPartition> partitionsOf(String topic) {
        return producer.partitionsFor(topic).stream()
            .map(one -> new TopicPartition(topic, one.partition())).toList();
    }

    /** Returns a consumer that joins no group and keeps no offsets in Kafka. */
    KafkaConsumer<String, byte[]> consumer(String reset) {
        return new KafkaConsumer<>(
            Map.of("bootstrap.servers", brokers, "isolation.level", "read_committed",
                "auto.offset.reset", reset, "max.poll.records", String.valueOf(batchRows)),
            new StringDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 3) throw new IllegalArgumentException("BROKERS SOURCE_TOPIC TABLE_FOLDER");
        new StreamWriter(args[0], args[1], Path.of(args[2]).toRealPath()).run();
    }
}
