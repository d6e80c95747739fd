package dev.contextd.internal;

import dev.contextd.ContextdException;
import dev.contextd.Event;
import dev.contextd.Result;
import java.lang.ref.Cleaner;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * The shell around {@link EventStream}: events as they come, each one once, over as many
 * connections as it takes. The thread that asks for the next event does the work.
 */
public class StreamShell implements Action.Shell, Iterator<Event>, AutoCloseable {
  private final Host host;
  private final EventStream stream;
  private final BlockingQueue<Connection.Report> reports = new LinkedBlockingQueue<>();
  private final Deque<Event> events = new ArrayDeque<>();
  private final Current current = new Current();
  private final Cleaner.Cleanable abandoned = Host.CLEANER.register(this, current);
  private boolean started;
  private volatile boolean left;
  private Exception error;
  private Action.Finish finish;

  /**
   * The connection of now. It does not know the shell, so that a loop that was left gives its
   * connection back.
   */
  private static final class Current implements Runnable {
    private Connection connection;

    synchronized void replace(Connection by) {
      run();
      connection = by;
    }

    @Override
    public synchronized void run() {
      if (connection != null) {
        connection.close();
        connection = null;
      }
    }
  }

  /** A stream of events. */
  public StreamShell(Host host, EventStream stream) {
    this.host = host;
    this.stream = stream;
  }

  @Override
  public final boolean hasNext() {
    while (events.isEmpty()) {
      if (error != null) {
        throw rethrow(error);
      }
      if (finish != null || left) {
        return false;
      }
      advance();
    }
    return true;
  }

  @Override
  public final Event next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the stream has ended");
    }
    return events.removeFirst();
  }

  /** How it ended; empty when it was left before. */
  public final Optional<Result> result() {
    return finish == null ? Optional.empty() : finish.result();
  }

  /** The message whose words the result lacks; empty when it has them. */
  public final String unseen() {
    return finish == null ? "" : finish.unseen();
  }

  /** The newest seq that was handled. */
  public final long cursor() {
    return stream.cursor();
  }

  /** How often the connection was made anew. */
  public final int reconnects() {
    return stream.reconnects();
  }

  /** Leaves. */
  @Override
  public final void close() {
    left = true;
    abandoned.clean();
    reports.add(now -> List.of()); // wakes the thread that waits
    onLeave();
  }

  /** Waits for one thing and does what follows from it. */
  private void advance() {
    if (!started) {
      started = true;
      perform(stream.start(System.nanoTime()));
      return;
    }
    OptionalLong deadline = stream.deadline();
    try {
      Connection.Report report =
          deadline.isEmpty()
              ? reports.take()
              : reports.poll(
                  Math.max(deadline.getAsLong() - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
      long now = System.nanoTime();
      perform(report == null ? stream.onTime(now) : report.at(now));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new ContextdException("interrupted while waiting for an event", interrupted);
    }
  }

  private void perform(List<Action> actions) {
    actions.forEach(action -> action.perform(this));
    onProgress();
  }

  /** Something was done; other threads may want to know. */
  void onProgress() {}

  /** It was left. */
  void onLeave() {}

  private static RuntimeException rethrow(Exception error) {
    if (error instanceof RuntimeException unchecked) {
      return unchecked;
    }
    return new ContextdException(String.valueOf(error.getMessage()), error);
  }

  final Host host() {
    return host;
  }

  final BlockingQueue<Connection.Report> reports() {
    return reports;
  }

  @Override
  public void open(Action.Open action) {
    if (left) {
      return;
    }
    if (host.transport().isClosed()) {
      error = new ContextdException("the client is closed");
      return;
    }
    current.replace(null);
    current.replace(Connection.open(action, stream, host, reports));
  }

  @Override
  public void close(Action.Close action) {
    current.run();
  }

  @Override
  public void emit(Action.Emit action) {
    events.addLast(action.event());
  }

  @Override
  public void finish(Action.Finish action) {
    finish = action;
    close();
  }

  @Override
  public void fail(Action.Fail action) {
    error = action.error();
    close();
  }

  @Override
  public void runTool(Action.RunTool action) {
    throw new IllegalStateException("a watched session runs no tools");
  }

  @Override
  public void dropTool(Action.DropTool action) {
    throw new IllegalStateException("a watched session runs no tools");
  }

  @Override
  public void forgetCall(Action.ForgetCall action) {
    throw new IllegalStateException("a watched session runs no tools");
  }

  @Override
  public void askApproval(Action.AskApproval action) {
    throw new IllegalStateException("a watched session asks for nothing");
  }

  @Override
  public void submit(Action.Submit action) {
    throw new IllegalStateException("a watched session answers nothing");
  }
}
