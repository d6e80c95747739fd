package dev.contextd.internal;

import dev.contextd.ApiException;
import dev.contextd.Approval;
import dev.contextd.ApprovalRequest;
import dev.contextd.Event;
import dev.contextd.InputNotTakenException;
import dev.contextd.Problem;
import dev.contextd.Result;
import dev.contextd.Tool;
import dev.contextd.v1.Admission;
import dev.contextd.v1.ApprovalDecision;
import dev.contextd.v1.Message;
import dev.contextd.v1.PendingApproval;
import dev.contextd.v1.PendingCall;
import dev.contextd.v1.Role;
import dev.contextd.v1.SubmitToolResultsRequest;
import dev.contextd.v1.ToolExecutor;
import dev.contextd.v1.ToolResult;
import io.grpc.Status;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;

/**
 * Runs a turn to its end: its stream, and the calls that the host runs for it.
 *
 * <p>A call is run when it is requested live, or when {@code sync} says that it waits and it was
 * not begun here; never because it was replayed. Its result is kept until it was taken, so that it
 * can be sent again as often as it takes.
 */
public final class TurnStream extends EventStream {
  /**
   * How often a limit of the tenant is waited for before the turn is admitted; afterwards, for as
   * long as it takes.
   */
  private static final int LIMIT_TRIES = 60;

  /** What a result is refused for by itself; the model is then told so in its place. */
  private static final Set<String> REFUSED_RESULTS = Set.of("INVALID_REQUEST", "REQUEST_TOO_LARGE");

  private final String requestId;
  private final Map<String, Tool> tools;
  private final boolean asks;
  private final Map<String, Call> calls = new LinkedHashMap<>();
  private final Set<String> asked = new HashSet<>();
  private final Map<String, dev.contextd.v1.Approval> decisions = new HashMap<>();
  private final Map<Integer, Submission> submissions = new LinkedHashMap<>();
  private final Map<String, String> texts = new HashMap<>();
  private final Set<String> seenMessages = new HashSet<>();
  private int submitted;
  private String sessionId;
  private String turnId = "";
  private String liveTurn;
  private String queuedId = "";
  private String notTaken = "";
  private Optional<dev.contextd.v1.Event> terminal = Optional.empty();

  /** A call of this turn. */
  private static final class Call {
    final PendingCall pending;
    OptionalLong due;
    Optional<ToolResult> result = Optional.empty();
    boolean refused;

    Call(PendingCall pending, OptionalLong due) {
      this.pending = pending;
      this.due = due;
    }
  }

  /** Answers on their way. */
  private static final class Submission {
    final SubmitToolResultsRequest request;
    int failures;
    OptionalLong due = OptionalLong.empty();

    Submission(SubmitToolResultsRequest request) {
      this.request = request;
    }

    boolean isAbout(String callId) {
      return request.getResultsList().stream().anyMatch(each -> each.getCallId().equals(callId))
          || request.getApprovalsList().stream().anyMatch(each -> each.getCallId().equals(callId));
    }

    boolean isResultOf(String callId) {
      return request.getApprovalsCount() == 0 && isAbout(callId);
    }
  }

  /**
   * A turn.
   *
   * @param asks whether there is a callback that decides about approvals
   */
  public TurnStream(
      StreamRequest request,
      Map<String, Tool> tools,
      Duration reconnectFor,
      boolean asks,
      double jitter) {
    super(request, reconnectFor, jitter);
    this.sessionId = request.sessionId();
    this.tools = tools;
    this.asks = asks;
    if (request instanceof StreamRequest.Execute execute) {
      this.requestId = execute.request().getRequestId();
    } else {
      this.requestId = "";
      this.turnId = ((StreamRequest.Watch) request).request().getTurnId();
    }
    this.liveTurn = turnId;
  }

  /**
   * The turn whose calls are ours: the one that the request started, or that is watched. Empty
   * until it is known.
   */
  public String turnId() {
    return turnId;
  }

  /** The turn that runs, as far as the stream has come; empty until the request was admitted. */
  String liveTurn() {
    return liveTurn;
  }

  /** The id that the input had in the queue; empty where it did not wait. */
  String queuedId() {
    return queuedId;
  }

  /** The session. */
  public String sessionId() {
    return sessionId;
  }

  // --- What the shell reports --------------------------------------------------------------------

  /** A tool returned or failed. */
  public List<Action> onToolResult(ToolResult result, long now) {
    Call call = calls.get(result.getCallId());
    if (call != null && call.result.isEmpty() && !isOver()) {
      answer(call, result);
    }
    return take();
  }

  /** A person decided. */
  public List<Action> onApproval(String callId, Approval decision, long now) {
    if (!isOver()) {
      dev.contextd.v1.Approval approval = approvalOf(callId, decision);
      decisions.put(callId, approval);
      send(SubmitToolResultsRequest.newBuilder().addApprovals(approval));
    }
    return take();
  }

  /**
   * Answers were taken, or are not needed any more. One that came too early is sent when it is
   * asked for.
   */
  public List<Action> onSubmitted(int number) {
    submissions.remove(number);
    return take();
  }

  /** Answers did not arrive. */
  public List<Action> onSubmitFailed(int number, Problem problem, long now) {
    Submission submission = submissions.get(number);
    if (submission != null && !isOver()) {
      if (Statuses.mayPass(problem)
          || Statuses.isBrokenTransport(problem)
          || problem.reason().equals("RATE_LIMITED")) {
        long wait = Backoff.delay(submission.failures, problem.retryAfter(), jitter());
        submission.due = OptionalLong.of(now + wait);
        submission.failures++;
      } else {
        submissions.remove(number);
        refused(submission, problem);
      }
    }
    return take();
  }

  /** A decision as the API takes it. */
  public static dev.contextd.v1.Approval approvalOf(String callId, Approval decision) {
    return dev.contextd.v1.Approval.newBuilder()
        .setCallId(callId)
        .setDecision(
            decision.approved()
                ? ApprovalDecision.APPROVAL_DECISION_APPROVE
                : ApprovalDecision.APPROVAL_DECISION_DENY)
        .setEditedArgumentsJson(decision.arguments().map(Json::write).orElse(""))
        .setReason(decision.reason())
        .build();
  }

  // --- Events
  // --------------------------------------------------------------------------------------

  @Override
  void onPayload(dev.contextd.v1.Event event, long now) {
    if (event.getSeq() > 0 && !event.getTurnId().isEmpty()) {
      liveTurn = event.getTurnId();
    }
    switch (event.getPayloadCase()) {
      case ADMITTED -> {
        if (admittedAgain(event)) {
          return;
        }
      }
      case SYNC -> sync(event, now);
      case TURN_STARTED -> {
        terminal = Optional.empty();
        if (!requestId.isEmpty() && event.getTurnStarted().getRequestId().equals(requestId)) {
          turnId = event.getTurnId();
        }
      }
      case MESSAGE_COMMITTED -> remember(event.getMessageCommitted().getMessage());
      case TOOL_CALL_REQUESTED -> {
        requested(event, event.getToolCallRequested(), now);
        return;
      }
      case TOOL_CALL_COMPLETED -> closed(event.getToolCallCompleted().getResult().getCallId());
      case TOOL_CALL_CANCELLED -> closed(event.getToolCallCancelled().getCallId());
      case TURN_COMPLETED, TURN_CANCELLED, TURN_FAILED -> terminal = Optional.of(event);
      default -> noteQueue(event);
    }
    if (isShown(event)) {
      emit(Events.of(event));
    }
    if (event.hasApprovalRequested() && !event.getReplay() && isOurs()) {
      ask(event.getApprovalRequested());
    }
  }

  /**
   * Notes how the turn was admitted. True when it was admitted before: each connection says it
   * again.
   */
  private boolean admittedAgain(dev.contextd.v1.Event event) {
    boolean again = !liveTurn.isEmpty();
    sessionId = event.getSessionId();
    liveTurn = event.getTurnId();
    if (!event.getAdmitted().getQueuedMessageId().isEmpty()) {
      queuedId = event.getAdmitted().getQueuedMessageId();
    }
    if (event.getAdmitted().getAdmission() == Admission.ADMISSION_STARTED) {
      turnId = event.getTurnId();
    }
    return again;
  }

  private void remember(Message message) {
    if (message.getRole() == Role.ROLE_ASSISTANT) {
      texts.put(message.getMessageId(), Parts.words(message.getPartsList()));
    }
  }

  private void sync(dev.contextd.v1.Event event, long now) {
    if (!event.getTurnId().isEmpty()) {
      liveTurn = event.getTurnId();
    }
    if (!isOurs()) {
      return;
    }
    for (PendingCall pending : event.getSync().getPendingCallsList()) {
      String callId = pending.getCall().getCallId();
      Call call = calls.get(callId);
      if (call == null) {
        begin(pending, now);
      } else if (call.result.isPresent() && !isOnItsWay(callId)) {
        answer(call, call.result.get());
      }
    }
    for (PendingApproval waiting : event.getSync().getPendingApprovalsList()) {
      String callId = waiting.getCall().getCallId();
      dev.contextd.v1.Approval decision = decisions.get(callId);
      if (decision == null) {
        ask(waiting);
      } else if (!isOnItsWay(callId)) {
        send(SubmitToolResultsRequest.newBuilder().addApprovals(decision));
      }
    }
  }

  /**
   * Whether the live turn is the one that this host runs: another one's calls are its own host's.
   */
  private boolean isOurs() {
    return !turnId.isEmpty() && turnId.equals(liveTurn);
  }

  private void requested(dev.contextd.v1.Event event, PendingCall pending, long now) {
    var call = pending.getCall();
    boolean handled =
        isOurs()
            && pending.getExecutor() == ToolExecutor.TOOL_EXECUTOR_HOST
            && tools.containsKey(call.getToolName());
    emit(
        new Event.ToolCallRequested(
            call.getCallId(), call.getToolName(), call.getArgumentsJson(), handled, event));
    if (handled && !event.getReplay()) {
      begin(pending, now);
    }
  }

  /** Learns whether the input that waits will never be taken. */
  private void noteQueue(dev.contextd.v1.Event event) {
    if (queuedId.isEmpty()) {
      return;
    }
    if (event.hasQueuedMessageCancelled()
        && event.getQueuedMessageCancelled().getQueuedMessageId().equals(queuedId)) {
      notTaken = "CANCELLED";
    } else if (event.hasQueuedMessageExpired()
        && event.getQueuedMessageExpired().getQueuedMessageId().equals(queuedId)) {
      notTaken = "EXPIRED";
    } else if (event.hasQueuedMessageDropped()
        && event.getQueuedMessageDropped().getQueuedMessageId().equals(queuedId)) {
      var dropped = event.getQueuedMessageDropped();
      notTaken = "DROPPED (" + Enums.name(dropped.getReason(), dropped.getReasonValue()) + ")";
    }
  }

  // --- Calls
  // -----------------------------------------------------------------------------------------

  private void begin(PendingCall pending, long now) {
    String callId = pending.getCall().getCallId();
    Tool tool = tools.get(pending.getCall().getToolName());
    if (calls.containsKey(callId)
        || tool == null
        || pending.getExecutor() != ToolExecutor.TOOL_EXECUTOR_HOST) {
      return;
    }
    OptionalLong due =
        tool.timeout()
            .map(time -> OptionalLong.of(now + time.toNanos()))
            .orElse(OptionalLong.empty());
    calls.put(callId, new Call(pending, due));
    add(new Action.RunTool(tool, turnId, pending));
  }

  private void answer(Call call, ToolResult result) {
    call.result = Optional.of(result);
    call.due = OptionalLong.empty();
    send(SubmitToolResultsRequest.newBuilder().addResults(result));
  }

  private void send(SubmitToolResultsRequest.Builder answers) {
    SubmitToolResultsRequest request = answers.setSessionId(sessionId).build();
    submitted++;
    submissions.put(submitted, new Submission(request));
    add(new Action.Submit(submitted, request));
  }

  private boolean isOnItsWay(String callId) {
    return submissions.values().stream().anyMatch(each -> each.isAbout(callId));
  }

  /** Answers will never be taken as they are. */
  private void refused(Submission submission, Problem problem) {
    if (problem.reason().equals("SESSION_NOT_FOUND")) {
      return; // the stream reports it
    }
    if (submission.request.getResultsCount() == 1 && REFUSED_RESULTS.contains(problem.reason())) {
      String callId = submission.request.getResults(0).getCallId();
      Call call = calls.get(callId);
      if (call != null && !call.refused) {
        call.refused = true;
        answer(
            call, ToolResults.failure(callId, "the result cannot be used: " + problem.message()));
        return;
      }
    }
    finish(new Action.Fail(ApiException.of(problem)));
  }

  /** A call has its result, or never will: nothing more is to be done for it. */
  private void closed(String callId) {
    Call call = calls.get(callId);
    if (call != null) {
      call.due = OptionalLong.empty();
      if (call.result.isEmpty()) {
        call.result = Optional.of(ToolResult.newBuilder().setCallId(callId).build());
        add(new Action.DropTool(callId));
      }
    }
    add(new Action.ForgetCall(callId));
    submissions.values().removeIf(each -> each.isResultOf(callId));
  }

  private void ask(PendingApproval waiting) {
    var call = waiting.getCall();
    if (asks && asked.add(call.getCallId())) {
      Optional<Instant> deadline =
          waiting.hasDeadline()
              ? Optional.of(Times.instant(waiting.getDeadline()))
              : Optional.empty();
      add(
          new Action.AskApproval(
              new ApprovalRequest(
                  sessionId,
                  turnId,
                  call.getCallId(),
                  call.getToolName(),
                  call.getArgumentsJson(),
                  deadline)));
    }
  }

  // --- Times
  // -----------------------------------------------------------------------------------------

  @Override
  OptionalLong deadlineOfCalls() {
    OptionalLong found = OptionalLong.empty();
    for (Call call : calls.values()) {
      found = earliest(found, call.due);
    }
    for (Submission submission : submissions.values()) {
      found = earliest(found, submission.due);
    }
    return found;
  }

  @Override
  void onTimeOfCalls(long now) {
    for (Map.Entry<String, Call> each : calls.entrySet()) {
      Call call = each.getValue();
      if (isPast(call.due, now)) {
        String name = call.pending.getCall().getToolName();
        String seconds = seconds(tools.get(name).timeout().orElseThrow());
        add(new Action.DropTool(each.getKey()));
        answer(
            call,
            ToolResults.failure(
                each.getKey(), name + " did not finish within " + seconds + " s and was given up"));
      }
    }
    for (Map.Entry<Integer, Submission> each : submissions.entrySet()) {
      if (isPast(each.getValue().due, now)) {
        each.getValue().due = OptionalLong.empty();
        add(new Action.Submit(each.getKey(), each.getValue().request));
      }
    }
  }

  private static boolean isPast(OptionalLong due, long now) {
    return due.isPresent() && now - due.getAsLong() >= 0;
  }

  private static String seconds(Duration time) {
    return java.math.BigDecimal.valueOf(time.toMillis(), 3).stripTrailingZeros().toPlainString();
  }

  // --- The end
  // ---------------------------------------------------------------------------------------

  @Override
  void ended(long now) {
    if (!notTaken.isEmpty()) {
      finish(new Action.Fail(new InputNotTakenException(queuedId, notTaken)));
    } else if (terminal.isPresent()) {
      Result result = resultOf(terminal.get());
      String unseen = texts.containsKey(result.messageId()) ? "" : result.messageId();
      finish(new Action.Finish(Optional.of(result), unseen));
    } else {
      again(Problem.of(Status.Code.UNAVAILABLE, "the stream ended before its turn"), now);
    }
  }

  @Override
  void broke(Problem problem, long now) {
    // A session that was deleted: its turn ended with it.
    if (problem.reason().equals("SESSION_NOT_FOUND") && terminal.isPresent()) {
      ended(now);
    } else {
      super.broke(problem, now);
    }
  }

  @Override
  void lost(Problem problem, long now) {
    // The same request again from its beginning: attached if it is still there, carried out anew if
    // it is not.
    tellAgain();
    terminal = Optional.empty();
    again(problem, now);
  }

  @Override
  boolean wasYielded(String messageId) {
    return !seenMessages.add(messageId);
  }

  @Override
  boolean mayWait() {
    return !liveTurn.isEmpty() || failures() < LIMIT_TRIES;
  }

  @Override
  void finish(Action last) {
    for (Map.Entry<String, Call> each : calls.entrySet()) {
      if (each.getValue().result.isEmpty()) {
        add(new Action.DropTool(each.getKey()));
      }
    }
    super.finish(last);
  }

  private Result resultOf(dev.contextd.v1.Event event) {
    var raw =
        switch (event.getPayloadCase()) {
          case TURN_COMPLETED -> event.getTurnCompleted().getResult();
          case TURN_CANCELLED -> event.getTurnCancelled().getResult();
          default -> event.getTurnFailed().getResult();
        };
    Result.State state = Result.State.FAILED;
    String reason =
        Enums.name(
            event.getTurnFailed().getFailure().getReason(),
            event.getTurnFailed().getFailure().getReasonValue());
    if (event.hasTurnCompleted()) {
      state = Result.State.COMPLETED;
      reason =
          Enums.name(
              event.getTurnCompleted().getReason(), event.getTurnCompleted().getReasonValue());
    } else if (event.hasTurnCancelled()) {
      state = Result.State.CANCELLED;
      reason =
          Enums.name(event.getTurnCancelled().getCause(), event.getTurnCancelled().getCauseValue());
    }
    return new Result(
        texts.getOrDefault(raw.getFinalMessageId(), ""),
        raw.getTotalUsage(),
        state,
        reason,
        event.getTurnId(),
        event.getSessionId(),
        raw.getStepCount(),
        raw.getFinishReason(),
        raw.getFinalMessageId(),
        event.hasTurnFailed() ? Optional.of(event.getTurnFailed().getFailure()) : Optional.empty(),
        raw);
  }
}
