package io.tidegate;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.delta.storage.*;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.security.*;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;

/**
 * A log store of Delta Lake whose commits go through Tidegate's gate:
 * `spark.delta.logStore.SCHEME.impl`.
 *
 * <p>A version (`_delta_log/N.json`) is not written here: its bytes are staged and proposed to the
 * committer, which writes exactly these bytes as version N, or says why not. All else is done by
 * Delta's own log store for the scheme.
 */
public class TidegateLogStore extends LogStore {
  private static final Pattern COMMIT = Pattern.compile("([0-9]{20})\\.json");
  private static final ObjectMapper JSON = new ObjectMapper();
  private final Map<String, LogStore> others = new ConcurrentHashMap<>();

  public TidegateLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override public CloseableIterator<String> read(Path path, Configuration configuration)
      throws IOException {
    return other(path, configuration).read(path, configuration);
  }

  @Override public Iterator<FileStatus> listFrom(Path path, Configuration configuration)
      throws IOException {
    return other(path, configuration).listFrom(path, configuration);
  }

  @Override public Path resolvePathOnPhysicalStorage(Path path, Configuration configuration)
      throws IOException {
    return other(path, configuration).resolvePathOnPhysicalStorage(path, configuration);
  }

  @Override public Boolean isPartialWriteVisible(Path path, Configuration configuration)
      throws IOException {
    return other(path, configuration).isPartialWriteVisible(path, configuration);
  }

  /**
   * Writes a file. A version that is taken is a FileAlreadyExistsException: Delta then looks for
   * conflicts, and tries the next one. Any other IOException ends the job, with the reason.
   */
  @Override public void write(Path path, Iterator<String> actions, Boolean overwrite,
      Configuration configuration) throws IOException {
    Matcher name = COMMIT.matcher(path.getName());
    if (overwrite || !name.matches() || !path.getParent().getName().equals("_delta_log")) {
      other(path, configuration).write(path, actions, overwrite, configuration);
      return;
    }
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) lines.append(actions.next()).append('\n');
    byte[] content = lines.toString().getBytes(StandardCharsets.UTF_8);
    Settings settings = new Settings(configuration);
    Path target = path.getFileSystem(configuration).makeQualified(path);
    FileSystem files = target.getFileSystem(configuration);
    // Without Hadoop's own checksum files, which would lie in the log.
    if (files instanceof ChecksumFileSystem) files = ((FilterFileSystem) files).getRawFileSystem();
    long version = Long.parseLong(name.group(1));
    String id = UUID.randomUUID().toString();
    String place = String.format("_staged_commits/%020d.%s.json", version, id);
    Path staged = new Path(target.getParent(), place);
    try (FSDataOutputStream out = files.create(staged, false)) {
      out.write(content);
      if (out.hasCapability("hsync")) out.hsync();
    }
    String root = Registry.rootOf(target.getParent().getParent());
    ObjectNode proposal = verbatim(version, content).put("proposal_id", id).put("table_root", root);
    ((ObjectNode) proposal.get("claim_check")).put("path", "_delta_log/" + place);
    JsonNode outcome = commit(settings, proposal, root, version);
    String rule = outcome.path("rejection").path("rule").asText();
    String reason = outcome.path("rejection").path("reason").asText();
    boolean isCommitted = outcome.get("status").asText().equals("committed");
    // By the staged file a committer knows, after a takeover, what came through the gate.
    if (isCommitted && version == 0) return;
    files.delete(staged, false);
    if (isCommitted) return;
    boolean isThere = files.exists(target);
    // Delta creates no table in a folder that holds something.
    for (Path each = staged.getParent(); version == 0 && !isThere && !each.equals(
        target.getParent().getParent()); each = each.getParent()) {
      if (files.exists(each) && files.listStatus(each).length == 0) files.delete(each, false);
    }
    if (rule.equals("version_taken") && isThere) {
      throw new FileAlreadyExistsException(target.toString());
    } else if (rule.equals("version_taken") || (rule.equals("table_halted") && version == 0)) {
      throw new IOException("the table that Tidegate serves at " + root + " has a version "
          + version + ", and the folder has none: it was removed or made anew. Run `tidegate table "
          + "drop " + root + "`, then this job again");
    } else {
      throw new IOException("Tidegate refused version " + version + " of " + root + " (" + rule
          + "): " + reason + ". What became of each sending: `tidegate proposals show " + id + "`");
    }
  }

  /** Proposes a version of the table at a root, which is registered first if nobody knows it. */
  private static JsonNode commit(Settings settings, ObjectNode proposal, String root, long version)
      throws IOException {
    Gate gate = Gate.of(settings);
    long deadlineMs = Gate.now() + settings.timeoutMs;
    JsonNode table = gate.registry.find(root, false);
    for (boolean isAgain = false; ; isAgain = true) {
      if (table == null && !settings.registers) {
        throw new IOException("no table is registered at " + root + ", and " + Settings.REGISTER
            + " is false: run `tidegate table register " + root + "`, or set it to true");
      }
      if (table == null && version > 0) table = register(gate, root, deadlineMs);
      String own = table == null ? UUID.randomUUID().toString() : table.get("table").asText();
      Integer home = table == null ? null : Registry.homeOf(table);
      JsonNode outcome = gate.propose(proposal.put("table", own), home, deadlineMs);
      String rule = outcome.path("rejection").path("rule").asText();
      boolean isElse = Set.of("unknown_table", "table_dropped", "table_exists").contains(rule);
      if (!isElse || isAgain) return outcome;
      table = gate.registry.find(root, true);
    }
  }

  private static JsonNode register(Gate gate, String root, long deadlineMs) throws IOException {
    ObjectNode request = JSON.createObjectNode().put("kind", "register").put("read_version", -1)
        .put("table_root", root).put("proposal_id", UUID.randomUUID().toString())
        .put("table", UUID.randomUUID().toString());
    JsonNode outcome = gate.propose(request, null, deadlineMs);
    JsonNode table = gate.registry.find(root, true);
    if (table != null) return table;
    throw new IOException("Tidegate did not register the table at " + root + " ("
        + outcome.path("rejection").path("rule").asText() + "): "
        + outcome.path("rejection").path("reason").asText());
  }

  private static ObjectNode verbatim(long version, byte[] content) throws IOException {
    JsonNode info = JSON.createObjectNode();
    for (String line : new String(content, StandardCharsets.UTF_8).split("\n")) {
      if (line.startsWith("{\"commitInfo\"")) info = JSON.readTree(line).get("commitInfo");
    }
    ObjectNode proposal = JSON.createObjectNode().put("kind", "verbatim")
        .put("exact_version", version)
        .put("read_version", Math.min(info.path("readVersion").asLong(version - 1), version - 1));
    if (info.hasNonNull("txnId")) proposal.set("txn_id", info.get("txnId"));
    proposal.putObject("claim_check").put("size", content.length).put("sha256", sha256(content));
    return proposal;
  }

  static String sha256(byte[] content) {
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(content);
      return String.format("%064x", new BigInteger(1, digest));
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Returns Delta's own log store for a path's scheme. */
  private LogStore other(Path path, Configuration configuration) {
    return others.computeIfAbsent(String.valueOf(path.toUri().getScheme()), scheme ->
        scheme.startsWith("s3") ? new S3SingleDriverLogStore(configuration)
        : scheme.startsWith("abfs") ? new AzureLogStore(configuration)
        : scheme.equals("gs") ? new GCSLogStore(configuration)
        : new HDFSLogStore(configuration));
  }
}
