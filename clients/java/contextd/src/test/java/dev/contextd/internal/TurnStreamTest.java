package dev.contextd.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.contextd.ApiException;
import dev.contextd.Approval;
import dev.contextd.Event;
import dev.contextd.Problem;
import dev.contextd.Result;
import dev.contextd.Tool;
import dev.contextd.v1.Admission;
import dev.contextd.v1.Admitted;
import dev.contextd.v1.CompletionReason;
import dev.contextd.v1.ExecuteTurnRequest;
import dev.contextd.v1.Heartbeat;
import dev.contextd.v1.Message;
import dev.contextd.v1.MessageCommitted;
import dev.contextd.v1.Part;
import dev.contextd.v1.PendingApproval;
import dev.contextd.v1.PendingCall;
import dev.contextd.v1.Role;
import dev.contextd.v1.StepStarted;
import dev.contextd.v1.Sync;
import dev.contextd.v1.ToolCall;
import dev.contextd.v1.ToolCallCancelled;
import dev.contextd.v1.ToolCallCompleted;
import dev.contextd.v1.ToolExecutor;
import dev.contextd.v1.ToolOutcome;
import dev.contextd.v1.ToolResult;
import dev.contextd.v1.TurnCompleted;
import dev.contextd.v1.TurnResult;
import dev.contextd.v1.TurnStarted;
import dev.contextd.v1.WatchEventsRequest;
import io.grpc.Status;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** The core of a run, without sockets, threads and clock. */
class TurnStreamTest {
  private static final Problem LOST = Problem.of(Status.Code.UNAVAILABLE, "gone");
  private static final Tool WORK =
      Tool.of("work", "Works.", () -> "done").withTimeout(Duration.ofSeconds(5));

  /** A turn, with what it asked for and a clock to turn. */
  private static final class Machine {
    static final long START = Duration.ofSeconds(100).toNanos();

    final TurnStream turn;
    final List<Action> asked = new ArrayList<>();
    long now = START;
    long seq;

    Machine() {
      this(false);
    }

    Machine(boolean asks) {
      var request = ExecuteTurnRequest.newBuilder().setSessionId("s").setRequestId("r").build();
      turn =
          new TurnStream(
              new StreamRequest.Execute(request),
              Map.of("work", WORK),
              Duration.ofMinutes(1),
              asks,
              0.5);
      take(turn.start(now));
    }

    List<Action> take(List<Action> actions) {
      asked.addAll(actions);
      return actions;
    }

    <A extends Action> List<A> of(Class<A> kind) {
      return asked.stream().filter(kind::isInstance).map(kind::cast).toList();
    }

    List<String> kinds() {
      return of(Action.Emit.class).stream()
          .map(each -> each.event().getClass().getSimpleName())
          .toList();
    }

    List<Action> durable(String turnId, Consumer<dev.contextd.v1.Event.Builder> payload) {
      seq++;
      return event(seq, turnId, payload);
    }

    List<Action> durable(Consumer<dev.contextd.v1.Event.Builder> payload) {
      return durable("t", payload);
    }

    List<Action> passing(Consumer<dev.contextd.v1.Event.Builder> payload) {
      return event(0, "t", payload);
    }

    List<Action> event(long seq, String turnId, Consumer<dev.contextd.v1.Event.Builder> payload) {
      var event =
          dev.contextd.v1.Event.newBuilder().setSeq(seq).setSessionId("s").setTurnId(turnId);
      payload.accept(event);
      return take(turn.onEvent(connection(), event.build(), now));
    }

    void admitted() {
      admitted(Admission.ADMISSION_STARTED, "t");
    }

    void admitted(Admission admission, String turnId) {
      event(0, turnId, event -> event.setAdmitted(Admitted.newBuilder().setAdmission(admission)));
    }

    void step() {
      durable(event -> event.setStepStarted(StepStarted.getDefaultInstance()));
    }

    void requested(String callId) {
      durable(event -> event.setToolCallRequested(pending(callId)));
    }

    void sync(String... callIds) {
      Sync.Builder sync = Sync.newBuilder();
      for (String callId : callIds) {
        sync.addPendingCalls(pending(callId));
      }
      passing(event -> event.setSync(sync));
    }

    void lost() {
      lost(LOST);
    }

    void lost(Problem problem) {
      take(turn.onEnd(connection(), Optional.of(problem), now));
      waitForIt();
    }

    void waitForIt() {
      OptionalLong deadline = turn.deadline();
      if (deadline.isPresent()) {
        now = Math.max(now, deadline.getAsLong());
        take(turn.onTime(now));
      }
    }

    int connection() {
      List<Action.Open> opened = of(Action.Open.class);
      return opened.get(opened.size() - 1).connection();
    }

    ExecuteTurnRequest lastRequest() {
      List<Action.Open> opened = of(Action.Open.class);
      return ((StreamRequest.Execute) opened.get(opened.size() - 1).request()).request();
    }

    void completed() {
      durable(
          event ->
              event.setTurnCompleted(
                  TurnCompleted.newBuilder().setReason(CompletionReason.COMPLETION_REASON_STOP)));
      take(turn.onEnd(connection(), Optional.empty(), now));
    }

    List<String> ran() {
      return of(Action.RunTool.class).stream()
          .map(each -> each.pending().getCall().getCallId())
          .toList();
    }
  }

  private static PendingCall pending(String callId) {
    return PendingCall.newBuilder()
        .setCall(call(callId))
        .setExecutor(ToolExecutor.TOOL_EXECUTOR_HOST)
        .build();
  }

  private static ToolCall call(String callId) {
    return ToolCall.newBuilder()
        .setCallId(callId)
        .setToolName("work")
        .setArgumentsJson("{}")
        .build();
  }

  @Test
  void aLostStreamGoesOnAfterTheLastSeq() {
    Machine machine = new Machine();
    machine.admitted();
    machine.step();
    machine.lost();
    assertEquals(1, machine.lastRequest().getAfterSeq());
    assertEquals("r", machine.lastRequest().getRequestId());
    machine.admitted(Admission.ADMISSION_ATTACHED, "t");
    assertEquals(List.of("Admitted", "StepStarted"), machine.kinds()); // admitted once
  }

  @Test
  void anEventThatWasSeenAndAStreamThatWasLeftDoNotCount() {
    Machine machine = new Machine();
    machine.admitted();
    machine.step();
    machine.seq = 0;
    assertEquals(
        List.of(),
        machine.durable(event -> event.setStepStarted(StepStarted.getDefaultInstance())));
    machine.lost();
    var late =
        dev.contextd.v1.Event.newBuilder()
            .setSeq(9)
            .setStepStarted(StepStarted.getDefaultInstance());
    assertEquals(List.of(), machine.turn.onEvent(1, late.build(), machine.now));
    assertEquals(List.of(), machine.turn.onEnd(1, Optional.of(LOST), machine.now));
  }

  @Test
  void aCallIsBegunLiveOrBySyncAndOnce() {
    Machine machine = new Machine();
    machine.admitted();
    machine.durable(event -> event.setReplay(true).setToolCallRequested(pending("replayed")));
    assertEquals(List.of(), machine.ran());
    machine.requested("live");
    machine.sync("live", "replayed");
    machine.sync("live", "replayed");
    assertEquals(List.of("live", "replayed"), machine.ran());
  }

  @Test
  void aResultIsSentUntilItIsTaken() {
    Machine machine = new Machine();
    machine.admitted();
    machine.requested("c");
    machine.take(machine.turn.onToolResult(ToolResults.success("c", "done"), machine.now));
    int number = machine.of(Action.Submit.class).get(0).number();
    machine.take(machine.turn.onSubmitFailed(number, LOST, machine.now));
    machine.waitForIt();
    assertEquals(
        List.of(number, number),
        machine.of(Action.Submit.class).stream().map(Action.Submit::number).toList());
    machine.take(machine.turn.onSubmitted(number));
    // It was taken, and lost again with the database: the result is sent anew, the tool is not run.
    machine.sync("c");
    assertEquals(3, machine.of(Action.Submit.class).size());
    assertEquals(List.of("c"), machine.ran());
  }

  @Test
  void aResultThatIsRefusedBecomesAnErrorForTheModel() {
    Machine machine = new Machine();
    machine.admitted();
    machine.requested("c");
    machine.take(machine.turn.onToolResult(ToolResults.success("c", "bad"), machine.now));
    Problem refusal =
        Problem.of(Status.Code.INVALID_ARGUMENT, "no such media", "INVALID_REQUEST", Map.of());
    machine.take(machine.turn.onSubmitFailed(1, refusal, machine.now));
    Action.Submit second = machine.of(Action.Submit.class).get(1);
    assertEquals(ToolOutcome.TOOL_OUTCOME_ERROR, second.request().getResults(0).getOutcome());
    machine.take(machine.turn.onSubmitFailed(second.number(), refusal, machine.now));
    assertEquals(1, machine.of(Action.Fail.class).size());
  }

  @Test
  void aToolIsGivenUpAtItsTimeAndItsLateResultDropped() {
    Machine machine = new Machine();
    machine.admitted();
    machine.requested("c");
    assertEquals(
        Machine.START + Duration.ofSeconds(5).toNanos(), machine.turn.deadline().orElseThrow());
    machine.waitForIt();
    assertEquals(List.of(new Action.DropTool("c")), machine.of(Action.DropTool.class));
    String told =
        machine.of(Action.Submit.class).get(0).request().getResults(0).getParts(0).getText();
    assertTrue(told.contains("did not finish within 5 s"), told);
    assertEquals(
        List.of(), machine.turn.onToolResult(ToolResults.success("c", "late"), machine.now));
  }

  @Test
  void aCallThatWasClosedIsStopped() {
    Machine machine = new Machine();
    machine.admitted();
    machine.requested("c");
    machine.durable(
        event -> event.setToolCallCancelled(ToolCallCancelled.newBuilder().setCallId("c")));
    assertEquals(List.of(new Action.DropTool("c")), machine.of(Action.DropTool.class));
    assertEquals(
        List.of(), machine.turn.onToolResult(ToolResults.success("c", "late"), machine.now));
  }

  @Test
  void theResultOfAClosedCallIsForgottenAlsoWhereAnotherRunBeganIt() {
    Machine machine = new Machine();
    machine.admitted();
    machine.requested("c");
    machine.take(machine.turn.onToolResult(ToolResults.success("c", "done"), machine.now));
    assertEquals(List.of(), machine.of(Action.ForgetCall.class));
    for (String callId : List.of("c", "of an earlier run")) {
      var result = ToolResult.newBuilder().setCallId(callId);
      machine.durable(
          event -> event.setToolCallCompleted(ToolCallCompleted.newBuilder().setResult(result)));
    }
    assertEquals(
        List.of(new Action.ForgetCall("c"), new Action.ForgetCall("of an earlier run")),
        machine.of(Action.ForgetCall.class));
  }

  @Test
  void whatIsForgottenWasStoppedBefore() {
    Machine machine = new Machine();
    machine.admitted();
    machine.requested("c");
    List<Action> asked =
        machine.durable(
            event -> event.setToolCallCancelled(ToolCallCancelled.newBuilder().setCallId("c")));
    assertEquals(
        List.of(new Action.DropTool("c"), new Action.ForgetCall("c")), asked.subList(0, 2));
  }

  @Test
  void aMessageThatCameBeforeTheStreamIsAskedForAtTheEnd() {
    Machine machine = new Machine();
    machine.admitted();
    var result = TurnResult.newBuilder().setFinalMessageId("m");
    machine.durable(event -> event.setTurnCompleted(TurnCompleted.newBuilder().setResult(result)));
    machine.take(machine.turn.onEnd(machine.connection(), Optional.empty(), machine.now));
    assertEquals("m", machine.of(Action.Finish.class).get(0).unseen());
  }

  @Test
  void aWatchKeepsNothingOfTheMessagesThatItYielded() throws ReflectiveOperationException {
    var request = WatchEventsRequest.newBuilder().setSessionId("s").setFollow(true).build();
    EventStream watch =
        new EventStream(new StreamRequest.Watch(request), Duration.ofMinutes(1), 0.5);
    watch.start(0);
    for (int seq = 1; seq <= 1000; seq++) {
      var message = Message.newBuilder().setMessageId("m" + seq).setRole(Role.ROLE_ASSISTANT);
      var committed = MessageCommitted.newBuilder().setMessage(message);
      var event = dev.contextd.v1.Event.newBuilder().setSeq(seq).setMessageCommitted(committed);
      watch.onEvent(1, event.build(), 0);
    }
    for (Field field : EventStream.class.getDeclaredFields()) {
      field.setAccessible(true);
      if (field.get(watch) instanceof Collection<?> held) {
        assertEquals(0, held.size(), field.getName());
      } else if (field.get(watch) instanceof Map<?, ?> held) {
        assertEquals(0, held.size(), field.getName());
      }
    }
  }

  @Test
  void callsOfAnotherTurnAreLeftToItsHost() {
    Machine machine = new Machine();
    machine.admitted(Admission.ADMISSION_QUEUED, "other");
    machine.durable("other", event -> event.setToolCallRequested(pending("theirs")));
    machine.event(
        0, "other", event -> event.setSync(Sync.newBuilder().addPendingCalls(pending("theirs"))));
    assertEquals(List.of(), machine.ran());
    machine.durable("other", event -> event.setTurnCompleted(TurnCompleted.getDefaultInstance()));
    machine.durable(
        "ours", event -> event.setTurnStarted(TurnStarted.newBuilder().setRequestId("r")));
    machine.durable("ours", event -> event.setToolCallRequested(pending("ours")));
    assertEquals(List.of("ours"), machine.ran());
  }

  @Test
  void callsOfATurnThatWasAttachedToAreLeftToItsHost() {
    Machine machine = new Machine();
    machine.admitted(Admission.ADMISSION_ATTACHED, "other");
    machine.durable("other", event -> event.setToolCallRequested(pending("theirs")));
    assertEquals(List.of(), machine.ran());
  }

  @Test
  void anApprovalIsAskedForOnceAndSentUntilItIsTaken() {
    Machine machine = new Machine(true);
    machine.admitted();
    PendingApproval waiting = PendingApproval.newBuilder().setCall(call("c")).build();
    machine.durable(event -> event.setApprovalRequested(waiting));
    machine.passing(event -> event.setSync(Sync.newBuilder().addPendingApprovals(waiting)));
    assertEquals(1, machine.of(Action.AskApproval.class).size());
    machine.take(machine.turn.onApproval("c", Approval.approve(), machine.now));
    machine.take(machine.turn.onSubmitted(1));
    machine.passing(event -> event.setSync(Sync.newBuilder().addPendingApprovals(waiting)));
    assertEquals(2, machine.of(Action.Submit.class).size());
    assertEquals(1, machine.of(Action.AskApproval.class).size());
  }

  @Test
  void aStreamThatFallsSilentIsGivenUp() {
    Machine machine = new Machine();
    machine.admitted();
    assertEquals(
        Machine.START + EventStream.SILENCE.toNanos(), machine.turn.deadline().orElseThrow());
    machine.waitForIt();
    assertEquals(1, machine.of(Action.Close.class).size());
    Problem closed = Problem.of(Status.Code.CANCELLED, "closed");
    assertEquals(List.of(), machine.turn.onEnd(1, Optional.of(closed), machine.now));
    machine.waitForIt();
    assertEquals(2, machine.of(Action.Open.class).size());
  }

  @Test
  void withoutAnyServerARunIsGivenUpAfterItsTime() {
    Machine machine = new Machine();
    for (int round = 0; round < 500 && machine.of(Action.Fail.class).isEmpty(); round++) {
      machine.lost();
    }
    assertTrue(machine.of(Action.Fail.class).get(0).error() instanceof ApiException.Unavailable);
    long seconds = Duration.ofNanos(machine.now - Machine.START).toSeconds();
    assertTrue(seconds > 50 && seconds <= 60, "given up after " + seconds + " s");
  }

  @Test
  void contactBeginsTheTimeAnew() {
    Machine machine = new Machine();
    for (int round = 0; round < 200; round++) {
      machine.lost();
      machine.passing(event -> event.setHeartbeat(Heartbeat.getDefaultInstance()));
    }
    assertEquals(List.of(), machine.of(Action.Fail.class));
  }

  @Test
  void theServerSaysHowLongToWait() {
    Machine machine = new Machine();
    Problem overloaded =
        new Problem(
            Status.Code.UNAVAILABLE,
            "overloaded",
            "OVERLOADED",
            Map.of(),
            List.of(),
            List.of(),
            Optional.of(Duration.ofSeconds(7)),
            "",
            "",
            "");
    machine.turn.onEnd(1, Optional.of(overloaded), machine.now);
    assertEquals(
        Machine.START + Duration.ofSeconds(7).toNanos(), machine.turn.deadline().orElseThrow());
  }

  @Test
  void whatWillNotPassIsThrown() {
    Machine machine = new Machine();
    machine.lost(Problem.of(Status.Code.RESOURCE_EXHAUSTED, "full", "QUEUE_FULL", Map.of()));
    assertTrue(
        machine.of(Action.Fail.class).get(0).error() instanceof ApiException.ResourceExhausted);
    assertTrue(machine.turn.deadline().isEmpty());
  }

  @Test
  void aBrokenTransportIsTriedAgainButNotForEver() {
    Machine machine = new Machine();
    Problem odd = Problem.of(Status.Code.INTERNAL, "RST_STREAM");
    for (int round = 0; round < Statuses.ODD_ERRORS; round++) {
      machine.lost(odd);
    }
    assertEquals(List.of(), machine.of(Action.Fail.class));
    machine.lost(odd);
    assertEquals(1, machine.of(Action.Fail.class).size());
  }

  @Test
  void eventsThatRetentionRemovedArePassedOver() {
    Machine machine = new Machine();
    machine.admitted();
    machine.lost(
        Problem.of(Status.Code.OUT_OF_RANGE, "", "EVENTS_EXPIRED", Map.of("oldest_seq", "41")));
    assertEquals(40, machine.lastRequest().getAfterSeq());
  }

  @Test
  void afterLostEventsTheTurnIsToldAgainWithoutItsMessagesTwice() {
    Machine machine = new Machine();
    machine.admitted();
    Message message =
        Message.newBuilder()
            .setMessageId("m")
            .setRole(Role.ROLE_ASSISTANT)
            .addParts(Part.newBuilder().setText("Hello."))
            .build();
    machine.durable(
        event -> event.setMessageCommitted(MessageCommitted.newBuilder().setMessage(message)));
    machine.lost(Problem.of(Status.Code.DATA_LOSS, "", "EVENTS_LOST", Map.of()));
    assertEquals(0, machine.lastRequest().getAfterSeq());
    machine.seq = 0;
    machine.durable(
        event ->
            event
                .setReplay(true)
                .setMessageCommitted(MessageCommitted.newBuilder().setMessage(message)));
    machine.completed();
    assertEquals(
        List.of("Admitted", "TextDelta", "MessageCommitted", "TurnCompleted"), machine.kinds());
  }

  @Test
  void theEndOfAnEarlierTurnIsNotTheEnd() {
    Machine machine = new Machine();
    machine.admitted(Admission.ADMISSION_QUEUED, "other");
    machine.durable("other", event -> event.setTurnCompleted(TurnCompleted.getDefaultInstance()));
    assertEquals(List.of(), machine.of(Action.Finish.class));
    machine.durable("t", event -> event.setTurnStarted(TurnStarted.newBuilder().setRequestId("r")));
    machine.completed();
    Result result = machine.of(Action.Finish.class).get(0).result().orElseThrow();
    assertEquals("t", result.turnId());
    assertEquals("STOP", result.reason());
  }

  @Test
  void aStreamThatEndsBeforeItsTurnIsOpenedAgain() {
    Machine machine = new Machine();
    machine.admitted();
    machine.take(machine.turn.onEnd(1, Optional.empty(), machine.now));
    machine.waitForIt();
    assertEquals(2, machine.of(Action.Open.class).size());
  }

  @Test
  void aKindThatIsNewerThanThisPackageIsShownAsUnknown() {
    Machine machine = new Machine();
    machine.admitted();
    machine.durable(event -> {});
    List<Action.Emit> emitted = machine.of(Action.Emit.class);
    assertTrue(emitted.get(1).event() instanceof Event.Unknown);
    assertEquals(1, machine.turn.cursor());
  }
}
