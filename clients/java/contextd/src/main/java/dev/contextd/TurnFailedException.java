package dev.contextd;

import dev.contextd.internal.Enums;
import dev.contextd.v1.Failure;

/**
 * An admitted turn failed.
 *
 * <p>The transcript stays valid: where {@code failure().getRecoverable()}, a run with {@link
 * RunOptions#continueTranscript} goes on.
 */
public final class TurnFailedException extends ContextdException {
  private final transient Failure failure;
  private final transient Result result;

  /** For a result that has a failure. */
  public TurnFailedException(Failure failure, Result result) {
    super(Enums.name(failure.getReason(), failure.getReasonValue()) + ": " + failure.getMessage());
    this.failure = failure;
    this.result = result;
  }

  /** Why. */
  public Failure failure() {
    return failure;
  }

  /** Why, as a name of {@code FailureReason}, such as {@code PROVIDER_TIMEOUT}. */
  public String reason() {
    return Enums.name(failure.getReason(), failure.getReasonValue());
  }

  /** What there was until then. */
  public Result result() {
    return result;
  }
}
