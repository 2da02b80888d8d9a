package io.delta.storage;

import java.io.Closeable;
import java.util.Iterator;

/** Only compiled against. */
public interface CloseableIterator<T> extends Iterator<T>, Closeable {}
