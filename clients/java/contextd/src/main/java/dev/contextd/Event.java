package dev.contextd;

import dev.contextd.internal.Json;
import dev.contextd.internal.Times;
import dev.contextd.v1.Admission;
import dev.contextd.v1.ToolCallCancelReason;
import dev.contextd.v1.ToolOutcome;
import java.time.Instant;
import java.util.Map;

/**
 * Something that happened in a session, one record for each kind. A stream that is resumed yields
 * each event once.
 *
 * <p>Kinds that are newer than this package are {@link Unknown}.
 */
public sealed interface Event {
  /** The event as it came. For what is not an event of the server: the one that led to it. */
  dev.contextd.v1.Event raw();

  /** Its position in the session; 0 for what is not stored. */
  default long seq() {
    return raw().getSeq();
  }

  /** The session. */
  default String sessionId() {
    return raw().getSessionId();
  }

  /** The turn; empty when it belongs to none. */
  default String turnId() {
    return raw().getTurnId();
  }

  /** The step of the turn, from 1; 0 outside of steps. */
  default int step() {
    return raw().getStep();
  }

  /** Whether it happened before this stream began. */
  default boolean replay() {
    return raw().getReplay();
  }

  /** When it happened. */
  default Instant time() {
    return Times.instant(raw().getTime());
  }

  /**
   * More of the answer. Joined, these are the answer; none comes twice.
   *
   * @param messageId the message
   * @param text the text to append
   * @param raw the event as it came
   */
  record TextDelta(String messageId, String text, dev.contextd.v1.Event raw) implements Event {}

  /**
   * The answer is being written again and says something else: what was yielded of it is void. The
   * new text follows as {@link TextDelta}. Not an event of the server.
   *
   * @param messageId the message
   * @param raw the event as it came
   */
  record TextReset(String messageId, dev.contextd.v1.Event raw) implements Event {}

  /**
   * More of the model's reasoning.
   *
   * @param messageId the message
   * @param text the text to append
   * @param raw the event as it came
   */
  record ReasoningDelta(String messageId, String text, dev.contextd.v1.Event raw)
      implements Event {}

  /**
   * As {@link TextReset}, of the reasoning.
   *
   * @param messageId the message
   * @param raw the event as it came
   */
  record ReasoningReset(String messageId, dev.contextd.v1.Event raw) implements Event {}

  /**
   * More of the arguments of a call that the model is writing. For displays only.
   *
   * @param messageId the message
   * @param callId the call
   * @param name the tool
   * @param text the text to append
   * @param raw the event as it came
   */
  record ToolInputDelta(
      String messageId, String callId, String name, String text, dev.contextd.v1.Event raw)
      implements Event {}

  /**
   * How the turn was admitted.
   *
   * @param admission how; ATTACHED does not say whether the turn is the request's own
   * @param queuedMessageId the input in the queue; empty when it did not wait
   * @param raw the event as it came
   */
  record Admitted(Admission admission, String queuedMessageId, dev.contextd.v1.Event raw)
      implements Event {}

  /**
   * A turn began.
   *
   * @param raw the event as it came
   */
  record TurnStarted(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.TurnStarted payload() {
      return raw.getTurnStarted();
    }
  }

  /**
   * A step began: the model is about to be called.
   *
   * @param raw the event as it came
   */
  record StepStarted(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.StepStarted payload() {
      return raw.getStepStarted();
    }
  }

  /**
   * A message is final, in full.
   *
   * @param message the message
   * @param raw the event as it came
   */
  record MessageCommitted(Message message, dev.contextd.v1.Event raw) implements Event {}

  /**
   * A tool is to be run. This package runs it if it is one of the tools of the run.
   *
   * @param callId the call
   * @param name the tool
   * @param argumentsJson the arguments
   * @param handled whether this run runs it
   * @param raw the event as it came
   */
  record ToolCallRequested(
      String callId, String name, String argumentsJson, boolean handled, dev.contextd.v1.Event raw)
      implements Event {
    /** The arguments; empty when they are not an object. */
    public Map<String, Object> arguments() {
      return Json.lenientObject(argumentsJson);
    }
  }

  /**
   * A person is to decide about a call: with {@link RunOptions#onApproval}, or {@link
   * Session#approve} and {@link Session#deny}.
   *
   * @param callId the call
   * @param name the tool
   * @param argumentsJson the arguments
   * @param raw the event as it came
   */
  record ApprovalRequested(
      String callId, String name, String argumentsJson, dev.contextd.v1.Event raw)
      implements Event {
    /** The arguments; empty when they are not an object. */
    public Map<String, Object> arguments() {
      return Json.lenientObject(argumentsJson);
    }
  }

  /**
   * A call has its result.
   *
   * @param callId the call
   * @param name the tool
   * @param outcome how it ended
   * @param text the text of the result
   * @param raw the event as it came
   */
  record ToolCallCompleted(
      String callId, String name, ToolOutcome outcome, String text, dev.contextd.v1.Event raw)
      implements Event {}

  /**
   * A call was closed without a result.
   *
   * @param callId the call
   * @param name the tool
   * @param reason why
   * @param raw the event as it came
   */
  record ToolCallCancelled(
      String callId, String name, ToolCallCancelReason reason, dev.contextd.v1.Event raw)
      implements Event {}

  /**
   * Nothing goes on until the host acts, which this package does for the tools of the run.
   *
   * @param raw the event as it came
   */
  record ActionRequired(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.ActionRequired payload() {
      return raw.getActionRequired();
    }
  }

  /**
   * A model call was accounted for.
   *
   * @param raw the event as it came
   */
  record UsageRecorded(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.UsageRecorded payload() {
      return raw.getUsageRecorded();
    }
  }

  /**
   * The model could not take something; what was sent instead.
   *
   * @param raw the event as it came
   */
  record UnsupportedInput(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.UnsupportedInput payload() {
      return raw.getUnsupportedInput();
    }
  }

  /**
   * A step is repeated after a failure of the model's service.
   *
   * @param raw the event as it came
   */
  record TurnRetrying(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.TurnRetrying payload() {
      return raw.getTurnRetrying();
    }
  }

  /**
   * Another replica took the turn over.
   *
   * @param raw the event as it came
   */
  record TurnRecovered(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.TurnRecovered payload() {
      return raw.getTurnRecovered();
    }
  }

  /**
   * The session's model changed.
   *
   * @param raw the event as it came
   */
  record ModelSwitched(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.ModelSwitched payload() {
      return raw.getModelSwitched();
    }
  }

  /**
   * The session's configuration changed.
   *
   * @param raw the event as it came
   */
  record SessionUpdated(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.SessionUpdated payload() {
      return raw.getSessionUpdated();
    }
  }

  /**
   * The turn goes on with another model.
   *
   * @param raw the event as it came
   */
  record ModelFallback(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.ModelFallback payload() {
      return raw.getModelFallback();
    }
  }

  /**
   * The turn ended in the ordinary way.
   *
   * @param raw the event as it came
   */
  record TurnCompleted(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.TurnCompleted payload() {
      return raw.getTurnCompleted();
    }
  }

  /**
   * The turn was cancelled.
   *
   * @param raw the event as it came
   */
  record TurnCancelled(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.TurnCancelled payload() {
      return raw.getTurnCancelled();
    }
  }

  /**
   * The turn failed.
   *
   * @param raw the event as it came
   */
  record TurnFailed(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.TurnFailed payload() {
      return raw.getTurnFailed();
    }
  }

  /**
   * A message was queued.
   *
   * @param raw the event as it came
   */
  record MessageQueued(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.MessageQueued payload() {
      return raw.getMessageQueued();
    }
  }

  /**
   * Queued messages became one user message.
   *
   * @param raw the event as it came
   */
  record MessagesApplied(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.MessagesApplied payload() {
      return raw.getMessagesApplied();
    }
  }

  /**
   * A queued message was withdrawn.
   *
   * @param raw the event as it came
   */
  record QueuedMessageCancelled(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.QueuedMessageCancelled payload() {
      return raw.getQueuedMessageCancelled();
    }
  }

  /**
   * A queued message's time passed before it was taken.
   *
   * @param raw the event as it came
   */
  record QueuedMessageExpired(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.QueuedMessageExpired payload() {
      return raw.getQueuedMessageExpired();
    }
  }

  /**
   * A queued message was dropped by the server.
   *
   * @param raw the event as it came
   */
  record QueuedMessageDropped(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.QueuedMessageDropped payload() {
      return raw.getQueuedMessageDropped();
    }
  }

  /**
   * Old tool results were cleared.
   *
   * @param raw the event as it came
   */
  record ContextPruned(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.ContextPruned payload() {
      return raw.getContextPruned();
    }
  }

  /**
   * Cleared tool results are back.
   *
   * @param raw the event as it came
   */
  record ContextRestored(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.ContextRestored payload() {
      return raw.getContextRestored();
    }
  }

  /**
   * A compaction began.
   *
   * @param raw the event as it came
   */
  record CompactionStarted(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.CompactionStarted payload() {
      return raw.getCompactionStarted();
    }
  }

  /**
   * A compaction is in force.
   *
   * @param raw the event as it came
   */
  record CompactionCompleted(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.CompactionCompleted payload() {
      return raw.getCompactionCompleted();
    }
  }

  /**
   * A compaction was given up; nothing changed.
   *
   * @param raw the event as it came
   */
  record CompactionFailed(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.CompactionFailed payload() {
      return raw.getCompactionFailed();
    }
  }

  /**
   * A compaction was taken back.
   *
   * @param raw the event as it came
   */
  record CompactionReverted(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.CompactionReverted payload() {
      return raw.getCompactionReverted();
    }
  }

  /**
   * The model was called and has not answered yet.
   *
   * @param raw the event as it came
   */
  record Thinking(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.Thinking payload() {
      return raw.getThinking();
    }
  }

  /**
   * A line for people.
   *
   * @param raw the event as it came
   */
  record Notice(dev.contextd.v1.Event raw) implements Event {
    /** All of it. */
    public dev.contextd.v1.Notice payload() {
      return raw.getNotice();
    }
  }

  /**
   * A kind that is newer than this package.
   *
   * @param raw the event as it came
   */
  record Unknown(dev.contextd.v1.Event raw) implements Event {}
}
