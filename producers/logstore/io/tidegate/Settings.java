package io.tidegate;

import java.io.IOException;
import java.nio.file.*;
import java.util.*;
import org.apache.hadoop.conf.Configuration;

/**
 * The settings of the log store, which are Spark's (`spark.tidegate.…`). What begins with
 * `spark.tidegate.kafka.` is for Kafka's clients; files may hold certificates and secrets.
 */
final class Settings {
  static final String KAFKA = "spark.tidegate.kafka.";
  static final String SERVERS = KAFKA + "bootstrap.servers";
  static final String PREFIX = "spark.tidegate.topic.prefix";
  static final String TIMEOUT = "spark.tidegate.timeout.seconds";
  static final String REGISTER = "spark.tidegate.register";
  /** A setting that names a file, and Kafka's setting that takes its text. */
  private static final Map<String, String> TEXT_OF = Map.of(
      "ssl.ca.location", "ssl.truststore.certificates",
      "ssl.certificate.location", "ssl.keystore.certificate.chain",
      "ssl.key.location", "ssl.keystore.key",
      "ssl.key.password.location", "ssl.key.password",
      "sasl.password.location", "sasl.password");

  final String topicPrefix;
  final long timeoutMs;
  final boolean registers;
  /** At most 64 bytes: the name under which the committer takes turns among writers. */
  final String name;
  private final Map<String, String> kafka = new TreeMap<>();

  Settings(Configuration configuration) throws IOException {
    topicPrefix = configuration.get(PREFIX, "tidegate.");
    String own = configuration.get("spark.app.name", "delta-spark");
    name = own.substring(0, Math.min(own.length(), 16));
    String timeout = configuration.get(TIMEOUT, "300");
    if (!timeout.matches("[1-9][0-9]{0,5}")) {
      throw new IOException(TIMEOUT + " is '" + timeout + "'; give whole seconds, 1 to 999999");
    }
    timeoutMs = 1000 * Long.parseLong(timeout);
    String register = configuration.get(REGISTER, "true");
    if (!register.equals("true") && !register.equals("false")) {
      throw new IOException(REGISTER + " is '" + register + "'; set it to true or false");
    }
    registers = register.equals("true");
    for (Map.Entry<String, String> each : configuration) {
      if (!each.getKey().startsWith(KAFKA)) continue;
      kafka.put(each.getKey().substring(KAFKA.length()), configuration.get(each.getKey()));
    }
    if (servers().trim().isEmpty()) {
      throw new IOException(SERVERS + " is not set; give the brokers of Tidegate, as host:port");
    }
  }

  String servers() {
    return kafka.getOrDefault("bootstrap.servers", "");
  }

  String identity() {
    return topicPrefix + " " + kafka;
  }

  /** Returns the settings of Kafka's clients, with what stands in files. */
  Properties kafka() throws IOException {
    Properties all = new Properties();
    for (Map.Entry<String, String> each : kafka.entrySet()) {
      String taker = TEXT_OF.get(each.getKey());
      all.put(taker == null ? each.getKey() : taker, taker == null ? each.getValue() : text(each));
    }
    if (all.containsKey("ssl.truststore.certificates")) all.put("ssl.truststore.type", "PEM");
    if (all.containsKey("ssl.keystore.key")) all.put("ssl.keystore.type", "PEM");
    Object user = all.remove("sasl.username");
    Object password = all.remove("sasl.password");
    if ((user == null) != (password == null)) {
      throw new IOException(KAFKA + "sasl.username and " + KAFKA
          + "sasl.password.location belong together; give both");
    }
    if (user != null) {
      boolean isScram = all.getOrDefault("sasl.mechanism", "").toString().startsWith("SCRAM");
      String login = isScram ? "scram.ScramLoginModule" : "plain.PlainLoginModule";
      all.put("sasl.jaas.config", "org.apache.kafka.common.security." + login
          + " required username=" + quoted(user) + " password=" + quoted(password) + ";");
    }
    return all;
  }

  private static String text(Map.Entry<String, String> setting) throws IOException {
    try {
      return Files.readString(Paths.get(setting.getValue())).replaceFirst("\r?\n\\z", "");
    } catch (IOException error) {
      throw new IOException(KAFKA + setting.getKey() + ": " + setting.getValue()
          + " cannot be read (" + error + "); check the path and the rights");
    }
  }

  private static String quoted(Object value) {
    return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }
}
