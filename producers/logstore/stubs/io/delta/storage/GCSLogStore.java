package io.delta.storage;

import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Only compiled against. */
public class GCSLogStore extends HadoopFileSystemLogStore {
  public GCSLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  public void write(
      Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf) {
    throw new AssertionError();
  }

  public Boolean isPartialWriteVisible(Path path, Configuration hadoopConf) {
    throw new AssertionError();
  }
}
