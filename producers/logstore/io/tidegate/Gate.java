package io.tidegate;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.*;
import java.math.BigInteger;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;
import org.slf4j.*;

/**
 * Sends proposals and waits for their outcomes. All log stores of a JVM with the same Kafka
 * settings share one, which lives as long as the JVM.
 */
final class Gate {
  private static final long PATIENCE_MS = 10_000;
  private static final Logger LOG = LoggerFactory.getLogger(Gate.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, Gate> GATES = new HashMap<>();
  final Registry registry;
  private final Settings settings;
  private final Properties kafka;
  private final KafkaProducer<String, byte[]> producer;
  /** Reads outcomes for every thread that waits: whoever holds it hands out what came. */
  private final KafkaConsumer<String, byte[]> outcomes;
  private final Map<String, JsonNode> answers = new ConcurrentHashMap<>();
  private final Set<String> waiting = ConcurrentHashMap.newKeySet();
  private long polledMs;

  static synchronized Gate of(Settings settings) throws IOException {
    String identity = settings.identity();
    if (!GATES.containsKey(identity)) GATES.put(identity, new Gate(settings));
    return GATES.get(identity);
  }

  private Gate(Settings settings) throws IOException {
    this.settings = settings;
    kafka = settings.kafka();
    registry = new Registry(this, settings.topicPrefix + "table-state");
    try {
      outcomes = consumer();
      partitions(settings.topicPrefix + "outcomes");
      producer = withOwnClasses(() -> new KafkaProducer<>(
          with("acks", "all", "enable.idempotence", "true", "max.block.ms", "15000"),
          new StringSerializer(), new ByteArraySerializer()));
    } catch (KafkaException error) {
      throw unreachable(error);
    }
  }

  /**
   * Sends a proposal until it has an outcome that sending it again can't better, and returns that.
   * As the bytes are the same each time, they are carried out once at most.
   */
  JsonNode propose(ObjectNode proposal, Integer home, long deadlineMs) throws IOException {
    String id = proposal.get("proposal_id").asText();
    String table = proposal.get("table").asText();
    byte[] value = JSON.writeValueAsBytes(proposal);
    String key = id + TidegateLogStore.sha256(value);
    String topic = settings.topicPrefix + "proposals";
    // The id of a table that is not registered selects its topic partition.
    int partition = home != null ? home : new BigInteger(table.replace("-", ""), 16)
        .mod(BigInteger.valueOf(partitions(topic).size())).intValue();
    String last = "no outcome came";
    long beganMs = now();
    waiting.add(key);
    try {
      listen(partition);
      while (true) {
        send(new ProducerRecord<>(topic, partition, table, value), id, table);
        JsonNode outcome = await(key, Math.min(PATIENCE_MS, deadlineMs - now()));
        JsonNode rejection = outcome == null ? JSON.nullNode() : outcome.path("rejection");
        String advice = rejection.path("advice").asText();
        if (advice.equals("resend") && rejection.has("topic_partition")) {
          partition = rejection.get("topic_partition").asInt();
          listen(partition);
          continue;
        }
        boolean isFinal = !advice.equals("retry")
            || rejection.path("rule").asText().equals("table_halted");
        if (outcome != null && isFinal) return outcome;
        if (outcome != null) last = rejection.path("reason").asText();
        LOG.info("sending proposal {} again: {}", id, last);
        if (now() >= deadlineMs) {
          throw new IOException("the committer of partition " + partition + " of " + topic + " at "
              + settings.servers() + " did not decide within " + (now() - beganMs) / 1000 + " s ("
              + Settings.TIMEOUT + "): " + last + ". Whether proposal " + id + " is committed is "
              + "not known: run `tidegate proposals show " + id + "` before the job runs again");
        }
        // A denial to be sent again comes at once, and what it names takes a moment.
        if (outcome != null) await("", 500);
      }
    } finally {
      waiting.remove(key);
      answers.remove(key);
    }
  }

  Set<TopicPartition> partitions(String topic) throws IOException {
    Set<TopicPartition> found = new HashSet<>();
    try {
      synchronized (outcomes) {
        for (PartitionInfo each : outcomes.partitionsFor(topic)) {
          found.add(new TopicPartition(topic, each.partition()));
        }
      }
    } catch (KafkaException error) {
      throw unreachable(error);
    }
    if (!found.isEmpty()) return found;
    throw new IOException("there is no topic " + topic + " at " + settings.servers() + "; correct "
        + Settings.PREFIX + " or " + Settings.SERVERS);
  }

  /** Returns a consumer that joins no group and keeps no offsets in Kafka. */
  KafkaConsumer<String, byte[]> consumer() {
    return withOwnClasses(() -> new KafkaConsumer<>(
        with("isolation.level", "read_committed", "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "allow.auto.create.topics", "false",
            "fetch.max.wait.ms", "100", "default.api.timeout.ms", "15000"),
        new StringDeserializer(), new ByteArrayDeserializer()));
  }

  IOException unreachable(RuntimeException error) {
    String cause = (error.getCause() == null ? error : error.getCause()).getMessage();
    return new IOException("Kafka at " + settings.servers() + " did not answer: " + cause
        + "; check " + Settings.SERVERS + ", " + Settings.PREFIX + " and the security settings "
        + "under " + Settings.KAFKA, error);
  }

  static long now() {
    return System.nanoTime() / 1_000_000;
  }

  private void send(ProducerRecord<String, byte[]> record, String id, String table)
      throws IOException {
    Map.of("format", "proposal/1", "proposal_id", id, "table", table, "producer", settings.name)
        .forEach((header, text) -> record.headers().add(header, text.getBytes(UTF_8)));
    try {
      producer.send(record).get();
    } catch (ExecutionException | KafkaException error) {
      // It may have arrived: its outcome is waited for as if it had.
      LOG.warn("proposal {} may not have been sent: {}", id, error.toString());
    } catch (InterruptedException error) {
      throw interrupted();
    }
  }

  /** Has the outcomes of a topic partition read, from where it ends now on. */
  private void listen(int number) throws IOException {
    TopicPartition partition = new TopicPartition(settings.topicPrefix + "outcomes", number);
    try {
      synchronized (outcomes) {
        Set<TopicPartition> heard = new HashSet<>(outcomes.assignment());
        boolean isNew = heard.add(partition);
        if (isNew) outcomes.assign(heard);
        // Asking for the end waits for the fetch that is under way: only if much is to be passed.
        if (!isNew && (waiting.size() > 1 || now() - polledMs < PATIENCE_MS)) return;
        Set<TopicPartition> late = waiting.size() > 1 ? Set.of(partition) : heard;
        outcomes.seekToEnd(late);
        for (TopicPartition each : late) outcomes.position(each);
      }
    } catch (KafkaException error) {
      throw unreachable(error);
    }
  }

  private JsonNode await(String key, long waitMs) throws IOException {
    long endMs = now() + Math.max(1, waitMs);
    while (now() < endMs && !answers.containsKey(key)) {
      synchronized (outcomes) {
        if (answers.containsKey(key)) break;
        try {
          polledMs = now();
          for (var each : outcomes.poll(Duration.ofMillis(50))) take(each);
        } catch (org.apache.kafka.common.errors.InterruptException error) {
          throw interrupted();
        } catch (KafkaException error) {
          LOG.warn("outcomes could not be read: {}", error.toString());
        }
      }
    }
    return answers.remove(key);
  }

  private void take(ConsumerRecord<String, byte[]> record) throws IOException {
    for (String key : waiting) {
      if (record.key() == null || !key.startsWith(record.key())) continue;
      JsonNode outcome = JSON.readTree(record.value());
      if (key.endsWith(outcome.path("proposal_sha256").asText())) answers.put(key, outcome);
    }
  }

  private static InterruptedIOException interrupted() {
    Thread.currentThread().interrupt();
    return new InterruptedIOException("interrupted while waiting for Tidegate's committer");
  }

  private Properties with(String... pairs) {
    Properties all = new Properties();
    for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
    all.putAll(kafka);
    return all;
  }

  /** Kafka looks for its classes in the thread's class loader, which may not know the session's. */
  private static <T> T withOwnClasses(Supplier<T> make) {
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    thread.setContextClassLoader(Gate.class.getClassLoader());
    try {
      return make.get();
    } finally {
      thread.setContextClassLoader(before);
    }
  }
}
