import io.delta.storage.HDFSLogStore;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;

/**
 * A log store of delta-spark for local tables that writers of other processes write, too.
 *
 * <p>A version comes into being by a hard link, which fails where there is one already. The store
 * that delta-spark has for such tables looks and then renames: what another process wrote in
 * between is overwritten.
 */
public class LinkingLogStore extends HDFSLogStore {
  public LinkingLogStore(Configuration configuration) {
    super(configuration);
  }

  public void write(
      org.apache.hadoop.fs.Path path,
      Iterator actions,
      Boolean overwrite,
      Configuration configuration)
      throws IOException {
    if (overwrite.booleanValue()) {
      super.write(path, actions, overwrite, configuration);
      return;
    }
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append((String) actions.next()).append('\n');
    }
    Path version = new File(path.toUri().getPath()).toPath();
    Path written = version.resolveSibling("." + UUID.randomUUID() + ".tmp");
    Files.write(written, lines.toString().getBytes(StandardCharsets.UTF_8));
    try {
      Files.createLink(version, written);
    } finally {
      Files.delete(written);
    }
  }
}
