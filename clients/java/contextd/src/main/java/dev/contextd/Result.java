package dev.contextd;

import dev.contextd.v1.Failure;
import dev.contextd.v1.FinishReason;
import dev.contextd.v1.TurnResult;
import dev.contextd.v1.UsageTotals;
import java.util.List;
import java.util.Optional;

/**
 * What came of a turn.
 *
 * @param text the words of its last message
 * @param usage tokens of all its calls, compactions included
 * @param state how it ended
 * @param reason a name of {@code CompletionReason} ({@code STOP}, {@code MAX_STEPS}, ...), of
 *     {@code CancelCause}, or of {@code FailureReason}
 * @param turnId the turn
 * @param sessionId the session
 * @param steps how often the model was called
 * @param finishReason why the model stopped writing
 * @param messageId the last message; empty when there is none
 * @param failure why it failed
 * @param raw the result as it came
 */
public record Result(
    String text,
    UsageTotals usage,
    State state,
    String reason,
    String turnId,
    String sessionId,
    int steps,
    FinishReason finishReason,
    String messageId,
    Optional<Failure> failure,
    TurnResult raw) {

  /** How a turn ended. */
  public enum State {
    /** In the ordinary way. */
    COMPLETED,
    /** It was cancelled. */
    CANCELLED,
    /** It failed; {@link Run#result} throws then. */
    FAILED
  }

  Result withText(String text) {
    return new Result(
        text,
        usage,
        state,
        reason,
        turnId,
        sessionId,
        steps,
        finishReason,
        messageId,
        failure,
        raw);
  }

  /** Messages that still wait in the queue, oldest first. */
  public List<String> queuedMessageIds() {
    return raw.getQueuedMessageIdsList();
  }
}
