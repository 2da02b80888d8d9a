package io.delta.storage;

import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Only compiled against. */
public class HDFSLogStore extends HadoopFileSystemLogStore {
  public HDFSLogStore(Configuration hadoopConf) {
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
