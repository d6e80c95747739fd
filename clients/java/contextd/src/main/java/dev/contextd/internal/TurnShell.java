package dev.contextd.internal;

import dev.contextd.Approval;
import dev.contextd.ApprovalRequest;
import dev.contextd.ContextdException;
import dev.contextd.Problem;
import dev.contextd.ToolContext;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/** The shell around {@link TurnStream}: runs tools and sends their results. */
public final class TurnShell extends StreamShell {
  private static final Duration SUBMIT_TIME = Duration.ofSeconds(30);

  private final TurnStream turn;
  private final Optional<Approval.Handler> onApproval;
  private final Map<String, ToolRun> running = new HashMap<>();

  /** That the request was admitted, or never will be. */
  private final CountDownLatch settled = new CountDownLatch(1);

  private volatile Standing standing;

  /**
   * Where a turn stands.
   *
   * @param turnId the run's own turn; empty until it is known
   * @param queuedId the id that the input had in the queue; empty where it did not wait
   * @param liveTurn the turn that runs; empty until the request was admitted
   */
  public record Standing(String turnId, String queuedId, String liveTurn) {
    private static Standing of(TurnStream turn) {
      return new Standing(turn.turnId(), turn.queuedId(), turn.liveTurn());
    }
  }

  /** A turn. */
  public TurnShell(Host host, TurnStream turn, Optional<Approval.Handler> onApproval) {
    super(host, turn);
    this.turn = turn;
    this.onApproval = onApproval;
    onProgress();
  }

  /** Where the turn stands, for any thread. */
  public Standing standing() {
    return standing;
  }

  /**
   * Where the turn stands once the request was admitted.
   *
   * @throws ContextdException if it was not within the client's timeout
   */
  public Standing awaitAdmission() {
    try {
      var unused = settled.await(host().transport().timeout().toNanos(), TimeUnit.NANOSECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new ContextdException("interrupted while waiting for the turn", interrupted);
    }
    if (standing.liveTurn().isEmpty()) {
      throw new ContextdException(
          "the run was not admitted: nothing reads it, or it has ended before");
    }
    return standing;
  }

  @Override
  final void onProgress() {
    standing = Standing.of(turn);
    if (!standing.liveTurn().isEmpty()) {
      settled.countDown();
    }
  }

  @Override
  final void onLeave() {
    settled.countDown();
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
                          () -> Logs.logging(action.tool().bind(argumentsJson, context), context),
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
  public void forgetCall(Action.ForgetCall action) {
    running.remove(action.callId());
    host().ledger().forget(turn.sessionId(), action.callId());
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
    Approval decision = Approvals.decide(handler, request);
    reports.add(now -> turn.onApproval(request.callId(), decision, now));
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
