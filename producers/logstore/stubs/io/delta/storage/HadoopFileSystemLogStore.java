package io.delta.storage;

import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** Only compiled against. */
public abstract class HadoopFileSystemLogStore extends LogStore {
  public HadoopFileSystemLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  public CloseableIterator<String> read(Path path, Configuration hadoopConf) {
    throw new AssertionError();
  }

  public Iterator<FileStatus> listFrom(Path path, Configuration hadoopConf) {
    throw new AssertionError();
  }

  public Path resolvePathOnPhysicalStorage(Path path, Configuration hadoopConf) {
    throw new AssertionError();
  }
}
