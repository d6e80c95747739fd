package dev.contextd.internal;

import java.time.Duration;
import java.util.Optional;

/** How long to wait before the next try. */
public final class Backoff {
  private static final double FIRST_NANOS = 50e6;
  private static final double MOST_NANOS = 1e9;

  private Backoff() {}

  /**
   * The wait in nanoseconds after so many failures in a row, at least what the server asked for.
   *
   * @param jitter a random number of 0 to 1, so that hosts that lost the same server do not come
   *     back at the same moment
   */
  public static long delay(int failures, Optional<Duration> asked, double jitter) {
    double usual =
        Math.min(FIRST_NANOS * (1L << Math.min(failures, 10)), MOST_NANOS) * (0.75 + jitter / 2);
    return Math.max((long) usual, asked.map(Duration::toNanos).orElse(0L));
  }
}
