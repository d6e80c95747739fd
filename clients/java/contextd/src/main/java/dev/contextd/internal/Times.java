package dev.contextd.internal;

import com.google.protobuf.Duration;
import com.google.protobuf.Timestamp;
import java.time.Instant;

/** Times of the API as those of Java, and back. */
public final class Times {
  private Times() {}

  /** A moment. */
  public static Instant instant(Timestamp time) {
    return Instant.ofEpochSecond(time.getSeconds(), time.getNanos());
  }

  /** A time. */
  public static java.time.Duration duration(Duration time) {
    return java.time.Duration.ofSeconds(time.getSeconds(), time.getNanos());
  }

  /** A time, as the API takes it. */
  public static Duration duration(java.time.Duration time) {
    return Duration.newBuilder().setSeconds(time.getSeconds()).setNanos(time.getNano()).build();
  }
}
