package dev.contextd.internal;

import com.google.protobuf.Duration;
import dev.contextd.v1.ExecuteTurnRequest;
import dev.contextd.v1.StreamOptions;
import dev.contextd.v1.WatchEventsRequest;

/** What a stream is opened with, as often as it takes. */
public sealed interface StreamRequest {
  /** A turn to run. */
  record Execute(ExecuteTurnRequest request) implements StreamRequest {}

  /** A session, or one of its turns, to watch. */
  record Watch(WatchEventsRequest request) implements StreamRequest {}

  /** The session. */
  default String sessionId() {
    return this instanceof Execute execute
        ? execute.request.getSessionId()
        : ((Watch) this).request.getSessionId();
  }

  /** The last seq that was handled before. */
  default long afterSeq() {
    return this instanceof Execute execute
        ? execute.request.getAfterSeq()
        : ((Watch) this).request.getAfterSeq();
  }

  /** The same, to go on after a seq, with heartbeats this often. */
  default StreamRequest at(long afterSeq, int heartbeatSeconds) {
    Duration interval = Duration.newBuilder().setSeconds(heartbeatSeconds).build();
    if (this instanceof Execute execute) {
      StreamOptions options =
          execute.request.getStream().toBuilder().setHeartbeatInterval(interval).build();
      return new Execute(
          execute.request.toBuilder().setAfterSeq(afterSeq).setStream(options).build());
    }
    WatchEventsRequest watch = ((Watch) this).request;
    StreamOptions options = watch.getStream().toBuilder().setHeartbeatInterval(interval).build();
    return new Watch(watch.toBuilder().setAfterSeq(afterSeq).setStream(options).build());
  }
}
