package dev.contextd;

import dev.contextd.internal.StreamShell;
import java.util.Iterator;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * The events of a session, whoever runs its turns. It comes back by itself after lost connections.
 */
public final class Watch implements Iterable<Event>, AutoCloseable {
  private final StreamShell shell;

  Watch(StreamShell shell) {
    this.shell = shell;
  }

  /** The events that have not been read; all iterators of a watch are one. */
  @Override
  public Iterator<Event> iterator() {
    return shell;
  }

  /** The events as a stream. */
  public Stream<Event> events() {
    int traits = Spliterator.ORDERED | Spliterator.NONNULL;
    return StreamSupport.stream(Spliterators.spliteratorUnknownSize(shell, traits), false);
  }

  /** The newest seq that was handled. */
  public long cursor() {
    return shell.cursor();
  }

  /** How often the connection was made anew. */
  public int reconnects() {
    return shell.reconnects();
  }

  /** Leaves. Also from another thread, whose loop then ends. */
  @Override
  public void close() {
    shell.close();
  }
}
