package dev.contextd.internal;

import dev.contextd.Approval;
import dev.contextd.ApprovalRequest;
import dev.contextd.ContextdException;
import dev.contextd.Problem;
import dev.contextd.ToolContext;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.RejectedExecutionException;

/** The shell around {@link TurnStream}: runs tools and sends their results. */
public final class TurnShell extends StreamShell {
  private static final Duration SUBMIT_TIME = Duration.ofSeconds(30);

  private final TurnStream turn;
  private final Optional<Approval.Handler> onApproval;
  private final Map<String, ToolRun> running = new HashMap<>();

  /** A turn. */
  public TurnShell(Host host, TurnStream turn, Optional<Approval.Handler> onApproval) {
    super(host, turn);
    this.turn = turn;
    this.onApproval = onApproval;
  }

  /** The turn; empty until it is known. */
  public String turnId() {
    return turn.turnId();
  }

  /** The session. */
  public String sessionId() {
    return turn.sessionId();
  }

  @Override
  public void runTool(Action.RunTool action) {
    String callId = action.pending().getCall().getCallId();
    String argumentsJson = action.pending().getCall().getArgumentsJson();
    ToolContext context =
        ToolResults.contextOf(turn.sessionId(), action.turnId(), action.pending());
    try {
      ToolRun run =
          host()
              .ledger()
              .run(
                  turn.sessionId(),
                  callId,
                  () ->
                      new ToolRun(
                          callId,
                          () -> action.tool().bind(argumentsJson, context),
                          host().tools()));
      running.put(callId, run);
      follow(run, turn, reports());
    } catch (RejectedExecutionException closed) {
      fail(new Action.Fail(new ContextdException("the client is closed", closed)));
    }
  }

  @Override
  public void dropTool(Action.DropTool action) {
    ToolRun run = running.remove(action.callId());
    if (run != null) {
      run.stop();
    }
  }

  @Override
  public void askApproval(Action.AskApproval action) {
    Approval.Handler handler = onApproval.orElseThrow();
    TurnStream decided = turn;
    BlockingQueue<Connection.Report> reports = reports();
    // A person may take their time, so this holds up nothing else.
    Host.named("contextd-approval")
        .newThread(() -> ask(handler, action.request(), decided, reports))
        .start();
  }

  @Override
  public void submit(Action.Submit action) {
    Transport transport = host().transport();
    TurnStream answered = turn;
    BlockingQueue<Connection.Report> reports = reports();
    try {
      host().answers().execute(() -> submit(action, transport, answered, reports));
    } catch (RejectedExecutionException closed) {
      fail(new Action.Fail(new ContextdException("the client is closed", closed)));
    }
  }

  // Nothing of these knows the shell, so that one that was left can be collected.

  private static void follow(
      ToolRun run, TurnStream turn, BlockingQueue<Connection.Report> reports) {
    var unused =
        run.result().thenAccept(result -> reports.add(now -> turn.onToolResult(result, now)));
  }

  private static void ask(
      Approval.Handler handler,
      ApprovalRequest request,
      TurnStream turn,
      BlockingQueue<Connection.Report> reports) {
    try {
      Approval decision = handler.decide(request);
      reports.add(now -> turn.onApproval(request.callId(), decision, now));
    } catch (Exception error) {
      reports.add(now -> List.of(new Action.Fail(error)));
    }
  }

  private static void submit(
      Action.Submit action,
      Transport transport,
      TurnStream turn,
      BlockingQueue<Connection.Report> reports) {
    try {
      transport.once(stubs -> stubs.turns().submitToolResults(action.request()), SUBMIT_TIME);
      reports.add(now -> turn.onSubmitted(action.number()));
    } catch (StatusRuntimeException error) {
      Problem problem = Statuses.problemOf(error);
      reports.add(now -> turn.onSubmitFailed(action.number(), problem, now));
    }
  }
}
