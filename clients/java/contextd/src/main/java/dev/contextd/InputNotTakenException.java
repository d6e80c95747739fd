package dev.contextd;

/** The input waited for a running turn and was withdrawn, expired or dropped; no turn took it. */
public final class InputNotTakenException extends ContextdException {
  private final String queuedMessageId;
  private final String outcome;

  /** For the queued message, with {@code CANCELLED}, {@code EXPIRED} or {@code DROPPED (why)}. */
  public InputNotTakenException(String queuedMessageId, String outcome) {
    super("the queued input " + queuedMessageId + " was not taken: " + outcome);
    this.queuedMessageId = queuedMessageId;
    this.outcome = outcome;
  }

  /** The queued message. */
  public String queuedMessageId() {
    return queuedMessageId;
  }

  /** {@code CANCELLED}, {@code EXPIRED} or {@code DROPPED (why)}. */
  public String outcome() {
    return outcome;
  }
}
