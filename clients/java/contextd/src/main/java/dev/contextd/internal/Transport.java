package dev.contextd.internal;

import dev.contextd.ApiException;
import dev.contextd.ContextdException;
import dev.contextd.Problem;
import dev.contextd.v1.BlobServiceGrpc;
import dev.contextd.v1.ContextServiceGrpc;
import dev.contextd.v1.ModelServiceGrpc;
import dev.contextd.v1.QueueServiceGrpc;
import dev.contextd.v1.SessionServiceGrpc;
import dev.contextd.v1.TurnServiceGrpc;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Stream;

/** Calls over gRPC: one channel for each host, the next one after a failure. */
public final class Transport implements AutoCloseable {
  /** Between two looks at channels that connect. */
  private static final Duration CONTACT_POLL = Duration.ofMillis(10);

  private final List<ManagedChannel> channels;
  private final AtomicInteger next;
  private final Duration timeout;
  private final Settings settings;
  private final Logs.Outage outage;

  /** The first connection came about. */
  private volatile boolean reached;

  /**
   * A call that may be repeated: reads by nature, writes by their request_id.
   *
   * @param <T> its answer
   */
  @FunctionalInterface
  public interface Call<T> {
    /** Makes it, once. */
    T on(Stubs stubs);
  }

  /**
   * A page of a list.
   *
   * @param items what is on it
   * @param next the token of the next page; empty after the last
   */
  public record Page<T>(List<T> items, String next) {}

  /** The services of one host, for calls until a deadline. */
  public static final class Stubs {
    private final ManagedChannel channel;
    private final long millis;

    private Stubs(ManagedChannel channel, Duration left) {
      this.channel = channel;
      this.millis = Math.max(left.toMillis(), 1);
    }

    /** Sessions. */
    public SessionServiceGrpc.SessionServiceBlockingStub sessions() {
      return SessionServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }

    /** Turns. */
    public TurnServiceGrpc.TurnServiceBlockingStub turns() {
      return TurnServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }

    /** The queue. */
    public QueueServiceGrpc.QueueServiceBlockingStub queue() {
      return QueueServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }

    /** The context. */
    public ContextServiceGrpc.ContextServiceBlockingStub context() {
      return ContextServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }

    /** Models. */
    public ModelServiceGrpc.ModelServiceBlockingStub models() {
      return ModelServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }

    /** Downloads of blobs. */
    public BlobServiceGrpc.BlobServiceBlockingStub blobs() {
      return BlobServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }

    /** Uploads of blobs. */
    public BlobServiceGrpc.BlobServiceStub uploads() {
      return BlobServiceGrpc.newStub(channel).withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
    }
  }

  /** The connections of a client; they are made when they are needed. */
  public Transport(Settings settings, Duration timeout) {
    this.channels = Channels.of(settings);
    this.next = new AtomicInteger(ThreadLocalRandom.current().nextInt(channels.size()));
    this.timeout = timeout;
    this.settings = settings;
    this.outage = new Logs.Outage(settings.url());
  }

  /** The time that a call is tried for. */
  Duration timeout() {
    return timeout;
  }

  /** Makes a call, again for as long as the client's timeout where that may help. */
  public <T> T call(Call<T> call) {
    return call(call, timeout);
  }

  /** Makes a call, again until its time is up where that may help. */
  public <T> T call(Call<T> call, Duration timeout) {
    long ends = System.nanoTime() + timeout.toNanos();
    int failures = 0;
    Problem known = null;
    contact(timeout);
    while (true) {
      try {
        T answer = once(call, Duration.ofNanos(ends - System.nanoTime()));
        outage.answered();
        return answer;
      } catch (StatusRuntimeException error) {
        Problem problem = Statuses.problemOf(error);
        long wait =
            Backoff.delay(failures, problem.retryAfter(), ThreadLocalRandom.current().nextDouble());
        boolean again =
            Statuses.mayPass(problem)
                || problem.reason().equals("RATE_LIMITED")
                || (Statuses.isBrokenTransport(problem) && failures < Statuses.ODD_ERRORS);
        if (!problem.reason().isEmpty() || problem.code() != Status.Code.DEADLINE_EXCEEDED) {
          known = problem; // says more than that the time is up
        }
        if (!again || System.nanoTime() + wait - ends >= 0) {
          throw ApiException.of(known == null ? problem : known);
        }
        outage.failed(problem, Duration.ofNanos(ends - System.nanoTime()));
        failures++;
        sleep(wait);
      }
    }
  }

  /**
   * Waits for the first connection of this client; a server that was reached once is waited for by
   * each call.
   */
  private void contact(Duration timeout) {
    Duration limit = Probe.CONTACT.minus(Probe.TIME);
    long ends = System.nanoTime() + (timeout.compareTo(limit) < 0 ? timeout : limit).toNanos();
    while (!reached) {
      reached = channels.stream().anyMatch(Transport::isReady);
      if (!reached && isClosed()) {
        throw new ContextdException("the client is closed");
      }
      if (!reached && System.nanoTime() - ends >= 0) {
        Probe.unreachable(settings)
            .ifPresent(
                error -> {
                  throw error;
                });
        reached = true; // it is there, and slow
      }
      if (!reached) {
        sleep(CONTACT_POLL.toNanos());
      }
    }
  }

  private static boolean isReady(ManagedChannel channel) {
    return channel.getState(true) == ConnectivityState.READY;
  }

  /** Whether the server answers, for the log. */
  Logs.Outage outage() {
    return outage;
  }

  /** Makes a call, once. Throws {@code StatusRuntimeException}. */
  public <T> T once(Call<T> call, Duration left) {
    return call.on(new Stubs(pick(), left));
  }

  /** What is in a list, read page by page as it is used. */
  public <T> Stream<T> items(Function<String, Call<Page<T>>> page) {
    return Stream.iterate(
            call(page.apply("")),
            Objects::nonNull,
            last -> last.next().isEmpty() ? null : call(page.apply(last.next())))
        .flatMap(each -> each.items().stream());
  }

  /** The stub to open a stream with. */
  TurnServiceGrpc.TurnServiceStub streams() {
    return TurnServiceGrpc.newStub(pick());
  }

  /** Whether {@link #close} was called. */
  boolean isClosed() {
    return channels.get(0).isShutdown();
  }

  /**
   * The channel to use now: hosts take turns. One that lost its server tries again at once, instead
   * of after minutes.
   */
  private ManagedChannel pick() {
    ManagedChannel channel = channels.get(Math.floorMod(next.getAndIncrement(), channels.size()));
    if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
      channel.resetConnectBackoff();
    }
    return channel;
  }

  private static void sleep(long nanos) {
    try {
      TimeUnit.NANOSECONDS.sleep(nanos);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new ContextdException("interrupted while waiting for the server", interrupted);
    }
  }

  /** Closes the connections. */
  @Override
  public void close() {
    channels.forEach(ManagedChannel::shutdownNow);
  }
}
