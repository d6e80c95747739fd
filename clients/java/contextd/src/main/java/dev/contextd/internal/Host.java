package dev.contextd.internal;

import java.lang.ref.Cleaner;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What all runs of a client share: connections, threads for tools, and the calls that were begun.
 */
public final class Host implements AutoCloseable {
  private static final int ANSWER_THREADS = 8;

  /** Gives connections of runs back that were left without being closed. */
  static final Cleaner CLEANER = Cleaner.create();

  private final Transport transport;
  private final Duration reconnectFor;
  private final Ledger ledger = new Ledger();
  private final ExecutorService tools;
  private final ExecutorService answers;

  /** For a client. */
  public Host(Transport transport, Duration reconnectFor, int maxParallelTools) {
    this.transport = transport;
    this.reconnectFor = reconnectFor;
    this.tools = Executors.newFixedThreadPool(maxParallelTools, named("contextd-tool"));
    this.answers = Executors.newFixedThreadPool(ANSWER_THREADS, named("contextd-answer"));
  }

  /** The connections. */
  public Transport transport() {
    return transport;
  }

  /** The time without any server after which a run is given up. */
  public Duration reconnectFor() {
    return reconnectFor;
  }

  Ledger ledger() {
    return ledger;
  }

  ExecutorService tools() {
    return tools;
  }

  ExecutorService answers() {
    return answers;
  }

  /** Ends the threads; tools that run are interrupted. */
  @Override
  public void close() {
    tools.shutdownNow();
    answers.shutdownNow();
    transport.close();
  }

  static ThreadFactory named(String name) {
    AtomicInteger number = new AtomicInteger();
    return work -> {
      Thread thread = new Thread(work, name + "-" + number.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    };
  }
}
