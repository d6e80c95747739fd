package dev.contextd.internal;

import dev.contextd.Event;
import dev.contextd.Message;

/** Reads events into the records that stand for their kinds. */
public final class Events {
  private Events() {}

  /**
   * The event. Text, requests of calls, heartbeats and {@code sync} are read by the stream itself.
   */
  public static Event of(dev.contextd.v1.Event raw) {
    return switch (raw.getPayloadCase()) {
      case ADMITTED ->
          new Event.Admitted(
              raw.getAdmitted().getAdmission(), raw.getAdmitted().getQueuedMessageId(), raw);
      case MESSAGE_COMMITTED ->
          new Event.MessageCommitted(new Message(raw.getMessageCommitted().getMessage()), raw);
      case APPROVAL_REQUESTED -> {
        var call = raw.getApprovalRequested().getCall();
        yield new Event.ApprovalRequested(
            call.getCallId(), call.getToolName(), call.getArgumentsJson(), raw);
      }
      case TOOL_CALL_COMPLETED -> {
        var result = raw.getToolCallCompleted().getResult();
        String text = Parts.joined(result.getPartsList());
        yield new Event.ToolCallCompleted(
            result.getCallId(), result.getToolName(), result.getOutcome(), text, raw);
      }
      case TOOL_CALL_CANCELLED -> {
        var call = raw.getToolCallCancelled();
        yield new Event.ToolCallCancelled(
            call.getCallId(), call.getToolName(), call.getReason(), raw);
      }
      case TURN_STARTED -> new Event.TurnStarted(raw);
      case STEP_STARTED -> new Event.StepStarted(raw);
      case ACTION_REQUIRED -> new Event.ActionRequired(raw);
      case USAGE_RECORDED -> new Event.UsageRecorded(raw);
      case UNSUPPORTED_INPUT -> new Event.UnsupportedInput(raw);
      case TURN_RETRYING -> new Event.TurnRetrying(raw);
      case TURN_RECOVERED -> new Event.TurnRecovered(raw);
      case MODEL_SWITCHED -> new Event.ModelSwitched(raw);
      case SESSION_UPDATED -> new Event.SessionUpdated(raw);
      case MODEL_FALLBACK -> new Event.ModelFallback(raw);
      case TURN_COMPLETED -> new Event.TurnCompleted(raw);
      case TURN_CANCELLED -> new Event.TurnCancelled(raw);
      case TURN_FAILED -> new Event.TurnFailed(raw);
      case MESSAGE_QUEUED -> new Event.MessageQueued(raw);
      case MESSAGES_APPLIED -> new Event.MessagesApplied(raw);
      case QUEUED_MESSAGE_CANCELLED -> new Event.QueuedMessageCancelled(raw);
      case QUEUED_MESSAGE_EXPIRED -> new Event.QueuedMessageExpired(raw);
      case QUEUED_MESSAGE_DROPPED -> new Event.QueuedMessageDropped(raw);
      case CONTEXT_PRUNED -> new Event.ContextPruned(raw);
      case CONTEXT_RESTORED -> new Event.ContextRestored(raw);
      case COMPACTION_STARTED -> new Event.CompactionStarted(raw);
      case COMPACTION_COMPLETED -> new Event.CompactionCompleted(raw);
      case COMPACTION_FAILED -> new Event.CompactionFailed(raw);
      case COMPACTION_REVERTED -> new Event.CompactionReverted(raw);
      case THINKING -> new Event.Thinking(raw);
      case NOTICE -> new Event.Notice(raw);
      case TEXT_DELTA,
          REASONING_DELTA,
          TOOL_INPUT_DELTA,
          TOOL_CALL_REQUESTED,
          HEARTBEAT,
          SYNC,
          PAYLOAD_NOT_SET ->
          new Event.Unknown(raw);
    };
  }
}
