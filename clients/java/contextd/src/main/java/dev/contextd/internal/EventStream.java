package dev.contextd.internal;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.contextd.ApiException;
import dev.contextd.Event;
import dev.contextd.Problem;
import dev.contextd.v1.Event.PayloadCase;
import dev.contextd.v1.Message;
import dev.contextd.v1.Role;
import dev.contextd.v1.ToolInputDelta;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * One logical stream of events over as many connections as it takes: yields the events of a session
 * or turn once each, through lost connections and restarts of the server. No sockets, no threads,
 * no clock.
 *
 * <p>The shell opens streams and reports what they bring; each report is answered with actions.
 * Times are nanoseconds of any clock that does not jump, given by the shell.
 */
public class EventStream {
  /**
   * A stream that is silent for longer, though it was asked for a heartbeat four times as often, is
   * given up.
   */
  public static final Duration SILENCE = Duration.ofSeconds(20);

  private static final int HEARTBEAT_SECONDS = 5;

  private final StreamRequest request;
  private final Duration reconnectFor;
  private final double jitter;
  private final List<Action> out = new ArrayList<>();
  private final Answer text = new Answer();
  private final Answer reasoning = new Answer();
  private final Map<Place, Integer> inputs = new HashMap<>();
  private boolean over;
  private int connection;
  private boolean connected;
  private OptionalLong openAt = OptionalLong.empty();
  private int failures;
  private int odd;
  private long heard;
  private long lostAt;
  private long cursor;
  private int reconnects;

  private record Place(String messageId, int partIndex) {}

  /**
   * A stream.
   *
   * @param reconnectFor the time without any server after which it is given up
   * @param jitter a random number of 0 to 1
   */
  public EventStream(StreamRequest request, Duration reconnectFor, double jitter) {
    this.request = request;
    this.reconnectFor = reconnectFor;
    this.jitter = jitter;
    this.cursor = request.afterSeq();
  }

  // --- What the shell reports --------------------------------------------------------------------

  /** Begins. */
  public final List<Action> start(long now) {
    open(now);
    return take();
  }

  /** A stream brought an event. */
  public final List<Action> onEvent(int connection, dev.contextd.v1.Event event, long now) {
    if (connection == this.connection && !over) {
      heard = now;
      failures = 0;
      odd = 0;
      if (event.getSeq() == 0 || event.getSeq() > cursor) {
        handle(event, now);
        cursor = Math.max(cursor, event.getSeq());
      }
    }
    return take();
  }

  /** A stream ended: in good order, or with a problem. */
  public final List<Action> onEnd(int connection, Optional<Problem> problem, long now) {
    if (connection == this.connection && !over) {
      connected = false;
      problem.ifPresentOrElse(what -> broke(what, now), () -> ended(now));
    }
    return take();
  }

  /** The time of {@link #deadline} has come. */
  public final List<Action> onTime(long now) {
    if (!over) {
      if (openAt.isPresent() && now - openAt.getAsLong() >= 0) {
        open(now);
      } else if (connected && now - heard >= SILENCE.toNanos()) {
        out.add(new Action.Close(connection));
        connected = false;
        connection++; // what that stream may still report does not count
        again(Problem.of(Status.Code.UNAVAILABLE, "the stream fell silent"), now);
      }
      onTimeOfCalls(now);
    }
    return take();
  }

  /** When {@link #onTime} is to be called, if nothing else happens before. */
  public final OptionalLong deadline() {
    if (over) {
      return OptionalLong.empty();
    }
    OptionalLong own = openAt;
    if (own.isEmpty() && connected) {
      own = OptionalLong.of(heard + SILENCE.toNanos());
    }
    return earliest(own, deadlineOfCalls());
  }

  /** The newest seq that was handled. */
  public final long cursor() {
    return cursor;
  }

  /** How often the connection was made anew. */
  public final int reconnects() {
    return reconnects;
  }

  /** The earlier of two times. */
  static OptionalLong earliest(OptionalLong one, OptionalLong other) {
    if (one.isEmpty() || other.isEmpty()) {
      return one.isEmpty() ? other : one;
    }
    return one.getAsLong() - other.getAsLong() <= 0 ? one : other;
  }

  // --- What kinds of streams decide for themselves -----------------------------------------------

  /** An event came, other than text. */
  void onPayload(dev.contextd.v1.Event event, long now) {
    if (isShown(event)) {
      emit(Events.of(event));
    }
  }

  /** The stream ended in good order. */
  void ended(long now) {
    finish(new Action.Finish(Optional.empty()));
  }

  /** Events that were shown are no more. */
  void lost(Problem problem, long now) {
    finish(new Action.Fail(ApiException.of(problem)));
  }

  /** Whether a limit of the tenant is waited for, rather than reported. */
  boolean mayWait() {
    return true;
  }

  /**
   * Whether a message is told again. A watch ends when events are lost, and may go on for months.
   */
  boolean wasYielded(String messageId) {
    return false;
  }

  void onTimeOfCalls(long now) {}

  OptionalLong deadlineOfCalls() {
    return OptionalLong.empty();
  }

  // --- Connections
  // ---------------------------------------------------------------------------------

  private void open(long now) {
    connection++;
    connected = true;
    openAt = OptionalLong.empty();
    reconnects += connection > 1 ? 1 : 0;
    heard = now; // an attempt to connect may be silent for as long as a stream
    out.add(new Action.Open(connection, request.at(cursor, HEARTBEAT_SECONDS)));
  }

  void broke(Problem problem, long now) {
    if (Statuses.mayPass(problem)) {
      again(problem, now);
    } else if (Statuses.isBrokenTransport(problem) && odd < Statuses.ODD_ERRORS) {
      odd++;
      again(problem, now);
    } else if (problem.reason().equals("EVENTS_EXPIRED")) {
      cursor = Math.max(cursor, oldestSeq(problem) - 1);
      again(problem, now);
    } else if (problem.reason().equals("EVENTS_LOST") || problem.reason().equals("CURSOR_AHEAD")) {
      lost(problem, now);
    } else if (problem.reason().equals("RATE_LIMITED") && mayWait()) {
      again(problem, now);
    } else {
      finish(new Action.Fail(ApiException.of(problem)));
    }
  }

  private static long oldestSeq(Problem problem) {
    try {
      return Long.parseLong(problem.metadata().getOrDefault("oldest_seq", "1"));
    } catch (NumberFormatException broken) {
      return 1;
    }
  }

  final void again(Problem problem, long now) {
    if (failures == 0) {
      lostAt = now;
    }
    long wait = Backoff.delay(failures, problem.retryAfter(), jitter);
    failures++;
    if (now + wait - lostAt > reconnectFor.toNanos()) {
      finish(new Action.Fail(ApiException.of(problem)));
    } else {
      openAt = OptionalLong.of(now + wait);
    }
  }

  // --- Events
  // --------------------------------------------------------------------------------------

  private void handle(dev.contextd.v1.Event event, long now) {
    switch (event.getPayloadCase()) {
      case TEXT_DELTA -> {
        var delta = event.getTextDelta();
        emitText(
            event,
            text.delta(
                delta.getMessageId(),
                delta.getPartIndex(),
                delta.getByteOffset(),
                delta.getText()));
      }
      case REASONING_DELTA -> {
        var delta = event.getReasoningDelta();
        emitReasoning(
            event,
            reasoning.delta(
                delta.getMessageId(),
                delta.getPartIndex(),
                delta.getByteOffset(),
                delta.getText()));
      }
      case TOOL_INPUT_DELTA -> inputDelta(event, event.getToolInputDelta());
      case MESSAGE_COMMITTED -> committed(event, event.getMessageCommitted().getMessage(), now);
      case SYNC -> {
        if (event.getSync().hasOpenMessage()) {
          Message open = event.getSync().getOpenMessage();
          emitText(event, text.whole(open.getMessageId(), Parts.texts(open.getPartsList())));
          emitReasoning(
              event, reasoning.whole(open.getMessageId(), Parts.reasonings(open.getPartsList())));
        }
        onPayload(event, now);
      }
      default -> onPayload(event, now);
    }
  }

  private void committed(dev.contextd.v1.Event event, Message message, long now) {
    if (wasYielded(message.getMessageId())) {
      return;
    }
    if (message.getRole() == Role.ROLE_ASSISTANT) {
      emitReasoning(
          event,
          reasoning.commit(message.getMessageId(), Parts.reasonings(message.getPartsList())));
      emitText(event, text.commit(message.getMessageId(), Parts.texts(message.getPartsList())));
      inputs.clear();
    }
    onPayload(event, now);
  }

  private void inputDelta(dev.contextd.v1.Event event, ToolInputDelta delta) {
    Place place = new Place(delta.getMessageId(), delta.getPartIndex());
    int held = inputs.getOrDefault(place, 0);
    byte[] data = delta.getText().getBytes(UTF_8);
    int end = delta.getByteOffset() + data.length;
    if (delta.getByteOffset() <= held && held < end) {
      int known = held - delta.getByteOffset();
      String more = new String(data, known, data.length - known, UTF_8);
      inputs.put(place, end);
      emit(
          new Event.ToolInputDelta(
              delta.getMessageId(), delta.getCallId(), delta.getToolName(), more, event));
    }
  }

  private void emitText(dev.contextd.v1.Event event, List<Answer.Piece> pieces) {
    for (Answer.Piece piece : pieces) {
      if (piece.reset()) {
        emit(new Event.TextReset(piece.messageId(), event));
      }
      if (!piece.text().isEmpty()) {
        emit(new Event.TextDelta(piece.messageId(), piece.text(), event));
      }
    }
  }

  private void emitReasoning(dev.contextd.v1.Event event, List<Answer.Piece> pieces) {
    for (Answer.Piece piece : pieces) {
      if (piece.reset()) {
        emit(new Event.ReasoningReset(piece.messageId(), event));
      }
      if (!piece.text().isEmpty()) {
        emit(new Event.ReasoningDelta(piece.messageId(), piece.text(), event));
      }
    }
  }

  static boolean isShown(dev.contextd.v1.Event event) {
    PayloadCase kind = event.getPayloadCase();
    return kind != PayloadCase.HEARTBEAT && kind != PayloadCase.SYNC;
  }

  // --- Actions
  // ---------------------------------------------------------------------------------------

  final boolean isOver() {
    return over;
  }

  final double jitter() {
    return jitter;
  }

  final int failures() {
    return failures;
  }

  final void tellAgain() {
    cursor = 0;
  }

  final void emit(Event event) {
    out.add(new Action.Emit(event));
  }

  final void add(Action action) {
    out.add(action);
  }

  void finish(Action last) {
    over = true;
    if (connected) {
      out.add(new Action.Close(connection));
      connected = false;
    }
    out.add(last);
  }

  final List<Action> take() {
    List<Action> taken = List.copyOf(out);
    out.clear();
    return taken;
  }
}
