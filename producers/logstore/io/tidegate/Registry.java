package io.tidegate;

import com.fasterxml.jackson.databind.*;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.hadoop.fs.Path;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/** The registered tables, as the topic `table-state` has them. It is read once, then followed. */
final class Registry {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String UNCHANGED = "/-._~!$&'()*+,;=@:";
  private final Gate gate;
  private final String topic;
  /** The last record of each key in each partition. */
  private final Map<List<Object>, JsonNode> records = new HashMap<>();
  private KafkaConsumer<String, byte[]> consumer;

  Registry(Gate gate, String topic) {
    this.gate = gate;
    this.topic = topic;
  }

  /** Returns the table at a root, or null. It reads on if it knows none, or is asked to. */
  synchronized JsonNode find(String root, boolean anew) throws IOException {
    if (anew || at(root) == null) readOn();
    return at(root);
  }

  /** Returns the registry's form of a root: a URI, percent-encoded, with no slash at its end. */
  static String rootOf(Path folder) throws IOException {
    URI uri = folder.toUri();
    String scheme = uri.getScheme().toLowerCase(Locale.ROOT);
    String place = uri.getAuthority() == null ? "" : uri.getAuthority();
    if (scheme.equals("s3a")) scheme = "s3";
    if (scheme.startsWith("abfs")) {
      scheme = "abfss";
      int at = place.indexOf('@') + 1;
      place = place.substring(0, at) + place.substring(at).toLowerCase(Locale.ROOT)
          .replaceFirst(":443$", "").replaceFirst("\\.$", "").replaceFirst("\\.blob\\.", ".dfs.");
    }
    if (!Set.of("file", "s3", "gs", "abfss").contains(scheme)) {
      throw new IOException("Tidegate serves no tables under " + scheme + "://; unset "
          + "spark.delta.logStore." + scheme + ".impl");
    }
    StringBuilder path = new StringBuilder();
    for (byte each : uri.getPath().getBytes(StandardCharsets.UTF_8)) {
      boolean isPlain = each > 0
          && (Character.isLetterOrDigit((char) each) || UNCHANGED.indexOf(each) >= 0);
      path.append(isPlain ? String.valueOf((char) each) : String.format("%%%02X", each));
    }
    return scheme + "://" + place + path;
  }

  private JsonNode at(String root) {
    // Another table may be registered in the folder of one that was dropped.
    Set<String> dropped = new HashSet<>();
    for (JsonNode each : records.values()) {
      if (each.path("status").asText().equals("dropped")) dropped.add(each.path("table").asText());
    }
    JsonNode found = null;
    for (JsonNode each : records.values()) {
      boolean counts = each.path("table_root").asText().equals(root)
          && !dropped.contains(each.path("table").asText())
          && !each.path("status").asText().equals("staged");
      if (counts && (found == null || precedes(each, found))) found = each;
    }
    return found;
  }

  /** Whether a record counts rather than another one of the same table: it moved there later. */
  private static boolean precedes(JsonNode one, JsonNode other) {
    int later = numberOf(one) - numberOf(other);
    return later > 0 || (later == 0 && homeOf(one) < homeOf(other));
  }

  private static int numberOf(JsonNode record) {
    return record.path("ruling").path("number").asInt();
  }

  static int homeOf(JsonNode record) { return record.path("topic_partition").asInt(); }

  private void readOn() throws IOException {
    Set<TopicPartition> all = gate.partitions(topic);
    try {
      if (consumer == null) consumer = gate.consumer();
      if (!consumer.assignment().equals(all)) {
        records.clear();
        consumer.assign(all);
        consumer.seekToBeginning(all);
      }
      for (Map.Entry<TopicPartition, Long> end : consumer.endOffsets(all).entrySet()) {
        while (consumer.position(end.getKey()) < end.getValue()) {
          for (var each : consumer.poll(Duration.ofSeconds(1))) {
            List<Object> key = List.of(each.partition(), each.key());
            if (each.value() == null) records.remove(key);
            else records.put(key, JSON.readTree(each.value()));
          }
        }
      }
    } catch (RuntimeException error) {
      if (consumer != null) consumer.close(Duration.ofSeconds(1));
      consumer = null;
      throw gate.unreachable(error);
    }
  }
}
