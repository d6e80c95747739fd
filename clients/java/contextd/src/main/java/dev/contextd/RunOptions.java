package dev.contextd;

import dev.contextd.internal.Times;
import dev.contextd.internal.ToolSets;
import dev.contextd.v1.BusyPolicy;
import dev.contextd.v1.ExecuteTurnRequest;
import dev.contextd.v1.Generation;
import dev.contextd.v1.TurnLimits;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** How a turn is run. */
public final class RunOptions {
  private final ExecuteTurnRequest.Builder request =
      ExecuteTurnRequest.newBuilder()
          .setRequestId(Contextd.newId())
          .setBusyPolicy(BusyPolicy.BUSY_POLICY_ENQUEUE);
  private Optional<Map<String, Tool>> tools = Optional.empty();
  private Optional<Approval.Handler> onApproval = Optional.empty();

  RunOptions() {}

  /** The tools of this turn, in place of those of the session. */
  public RunOptions tools(Tool... tools) {
    return tools(List.of(tools));
  }

  /** The tools of this turn, in place of those of the session. */
  public RunOptions tools(Iterable<Tool> tools) {
    this.tools = Optional.of(ToolSets.byName(tools));
    return this;
  }

  /** The model of this turn. */
  public RunOptions model(String model) {
    request.setModel(model);
    return this;
  }

  /** Bounds of this turn. */
  public RunOptions limits(TurnLimits limits) {
    request.setLimits(limits);
    return this;
  }

  /** How the model is to answer. */
  public RunOptions generation(Generation generation) {
    request.setGeneration(generation);
    return this;
  }

  /** What to do when a turn is running. Default: queue the input. */
  public RunOptions busy(BusyPolicy policy) {
    request.setBusyPolicy(policy);
    return this;
  }

  /**
   * Decides about calls of tools that need approval. Without it, {@link Session#approve} and {@link
   * Session#deny} do. The timeout of a tool also bounds the time that a person has, if it is longer
   * than ten minutes.
   */
  public RunOptions onApproval(Approval.Handler handler) {
    onApproval = Optional.of(handler);
    return this;
  }

  /** Names the request. One that is repeated, also by another process, attaches to its turn. */
  public RunOptions requestId(String requestId) {
    request.setRequestId(requestId);
    return this;
  }

  /** Calls the model on the transcript as it stands, without input. */
  public RunOptions continueTranscript() {
    request.setContinueTranscript(true);
    return this;
  }

  /** Cancels the turn when no client has read it for this long. */
  public RunOptions cancelAfterDisconnect(Duration time) {
    request.setCancelAfterDisconnect(Times.duration(time));
    return this;
  }

  ExecuteTurnRequest.Builder request() {
    return request;
  }

  Optional<Map<String, Tool>> tools() {
    return tools;
  }

  Optional<Approval.Handler> onApproval() {
    return onApproval;
  }
}
