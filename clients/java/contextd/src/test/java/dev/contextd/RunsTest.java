package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.contextd.v1.Admission;
import dev.contextd.v1.BusyPolicy;
import dev.contextd.v1.ErrorReason;
import dev.contextd.v1.ToolOutcome;
import dev.contextd.v1.TurnState;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Turns, tools, approvals and the queue on a real server. */
class RunsTest {
  private static Server server;
  private static Contextd client;

  @BeforeAll
  static void start() {
    server = Server.shared();
    client = Contextd.connect(server.url());
  }

  @AfterAll
  static void stop() {
    client.close();
  }

  record Who(String who) {}

  record File(String path) {}

  record Seconds(int seconds) {}

  private static Session session(String model, Tool... tools) {
    Session session = client.session(options -> options.model("scripted/" + model));
    if (tools.length > 0) {
      session.update(options -> options.tools(tools));
    }
    return session;
  }

  private static final Tool DELETE =
      Tool.of("delete_file", "Deletes a file.", File.class, file -> "deleted " + file.path())
          .withApproval();

  @Test
  void runTextGivesTheWordsOfTheAnswer() {
    assertEquals("You said: hello", session("echo").runText("hello"));
  }

  @Test
  void textYieldsTheWordsAlone() {
    String text = String.join("", session("echo").run("hello").text().toList());
    assertEquals("You said: hello", text);
  }

  @Test
  void theResultSaysWhatTheTurnUsed() {
    Result result = session("echo").run("hello").result();
    assertEquals(Result.State.COMPLETED, result.state());
    assertEquals("STOP", result.reason());
    assertEquals(1, result.steps());
    assertTrue(result.usage().getTotalTokens() > 0);
    assertEquals(
        result.usage().getInputTokens() + result.usage().getOutputTokens(),
        result.usage().getTotalTokens());
  }

  @Test
  void openingASessionAgainAppliesWhatIsGiven() {
    client.session("opened-twice", options -> options.instructions("One.").model("scripted/echo"));
    assertEquals("One.", client.session("opened-twice").raw().getSystemPrompt());
    Session again = client.session("opened-twice", options -> options.instructions("Two."));
    assertEquals("Two.", again.raw().getSystemPrompt());
    assertEquals("scripted/echo", again.raw().getModel());
  }

  @Test
  void toolsOfOneStepRunInParallel() {
    CyclicBarrier together = new CyclicBarrier(3);
    Tool meet =
        Tool.of(
            "meet",
            "Meets.",
            Who.class,
            who -> {
              together.await(10, TimeUnit.SECONDS);
              return who.who();
            });
    assertEquals("All met.", session("parallel", meet).runText("go"));
  }

  @Test
  @SuppressWarnings("FutureReturnValueIgnored") // it is what the tool returns
  void aToolMayAnswerLater() {
    Tool work =
        Tool.of("work", "Works.", () -> CompletableFuture.supplyAsync(() -> Map.of("by", "hand")));
    assertEquals("Result: {\"by\":\"hand\"}", session("one", work).runText("go"));
  }

  @Test
  void aToolThatTakesTooLongIsInterruptedAndTheModelIsTold() throws Exception {
    CountDownLatch interrupted = new CountDownLatch(1);
    Tool sleep =
        Tool.of(
                "sleep",
                "Sleeps.",
                Seconds.class,
                given -> {
                  try {
                    TimeUnit.SECONDS.sleep(given.seconds());
                  } catch (InterruptedException error) {
                    interrupted.countDown();
                  }
                  return "slept";
                })
            .withTimeout(Duration.ofMillis(200));
    assertEquals(
        "Result: sleep did not finish within 0.2 s and was given up",
        session("sleep", sleep).runText("go"));
    assertTrue(interrupted.await(5, TimeUnit.SECONDS));
  }

  @Test
  void anExceptionOfAToolIsAnErrorForTheModel() {
    Tool work =
        Tool.of(
            "work",
            "Fails.",
            () -> {
              throw new ToolException("the disk is full");
            });
    Run run = session("one", work).run("go");
    List<ToolOutcome> outcomes = new ArrayList<>();
    for (Event event : run) {
      if (event instanceof Event.ToolCallCompleted completed) {
        outcomes.add(completed.outcome());
      }
    }
    assertEquals(List.of(ToolOutcome.TOOL_OUTCOME_ERROR), outcomes);
    assertEquals("Result: the disk is full", run.result().text());
  }

  @Test
  void aToolMayKnowItsCall() {
    List<ToolContext> seen = new ArrayList<>();
    Tool work =
        Tool.ofSchema(
            "work",
            "Works.",
            Map.of("type", "object"),
            (given, context) -> {
              seen.add(context);
              return "fine";
            });
    Session session = session("one", work);
    Result result = session.run("go").result();
    assertEquals(1, seen.size());
    assertEquals(session.id(), seen.get(0).sessionId());
    assertEquals(result.turnId(), seen.get(0).turnId());
    assertEquals("work", seen.get(0).toolName());
    assertTrue(seen.get(0).deadline().isPresent());
  }

  @Test
  void anApprovalByCallbackLetsTheCallRun() {
    List<ApprovalRequest> asked = new ArrayList<>();
    Run run =
        session("delete", DELETE)
            .run(
                "go",
                options ->
                    options.onApproval(
                        request -> {
                          asked.add(request);
                          return Approval.approve();
                        }));
    assertEquals("Result: deleted /tmp/x", run.result().text());
    assertEquals(1, asked.size());
    assertEquals(Map.of("path", "/tmp/x"), asked.get(0).arguments());
  }

  @Test
  void aDenialReachesTheModelWithItsReason() {
    Run run =
        session("delete", DELETE)
            .run("go", options -> options.onApproval(request -> Approval.deny("not today")));
    assertTrue(run.result().text().contains("not today"));
  }

  @Test
  void anApprovalMayChangeTheArguments() {
    Run run =
        session("delete", DELETE)
            .run(
                "go",
                options ->
                    options.onApproval(request -> Approval.approve(Map.of("path", "/tmp/y"))));
    assertTrue(run.result().text().contains("deleted /tmp/y"));
  }

  @Test
  void anApprovalMayComeFromElsewhere() {
    Session session = session("delete", DELETE);
    Run run = session.run("go");
    for (Event event : run) {
      if (event instanceof Event.ApprovalRequested asked) {
        session.approve(asked.callId());
      }
    }
    assertEquals("Result: deleted /tmp/x", run.result().text());
  }

  @Test
  void aMessageSentMeanwhileIsTakenByTheTurnThatRuns() {
    Session session = session("queue");
    Tool work =
        Tool.of(
            "work",
            "Works.",
            () -> {
              session.send("and this");
              return "done";
            });
    Run run = session.run("begin", work);
    assertEquals(1, run.events().filter(Event.MessagesApplied.class::isInstance).count());
    assertEquals("Then: and this", run.result().text());
  }

  @Test
  void aSecondRunLeavesTheCallsOfTheFirstOneToIt() throws Exception {
    Session session = session("queue");
    List<String> ran = new ArrayList<>();
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch goOn = new CountDownLatch(1);
    Tool work =
        Tool.of(
            "work",
            "Works.",
            () -> {
              ran.add("first");
              begun.countDown();
              return goOn.await(10, TimeUnit.SECONDS);
            });
    CompletableFuture<Result> first =
        CompletableFuture.supplyAsync(() -> session.run("begin", work).result());
    assertTrue(begun.await(10, TimeUnit.SECONDS));
    try (Contextd other = Contextd.connect(server.url())) {
      Run second =
          other
              .session(session.id())
              .run("more", Tool.of("work", "Works.", () -> ran.add("second")));
      for (Event event : second) {
        if (event instanceof Event.Admitted admitted) {
          assertEquals(Admission.ADMISSION_QUEUED, admitted.admission());
          goOn.countDown();
        }
      }
      assertEquals("Then: more", second.result().text());
    }
    first.get(10, TimeUnit.SECONDS);
    assertEquals(List.of("first"), ran);
  }

  @Test
  void aQueuedInputThatIsWithdrawnThrows() {
    Session session = session("slow");
    Run running = session.run("go");
    running.iterator().next();
    Run run = session.run("again");
    Event.Admitted admitted = (Event.Admitted) run.iterator().next();
    session.withdraw(admitted.queuedMessageId());
    assertEquals("CANCELLED", assertThrows(InputNotTakenException.class, run::result).outcome());
    session.cancel();
    assertEquals(Result.State.CANCELLED, running.result().state());
  }

  @Test
  void aRunThatWasLeftIsResumedAndItsCallNotRunAgain() throws Exception {
    AtomicInteger ran = new AtomicInteger();
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch goOn = new CountDownLatch(1);
    Tool work =
        Tool.of(
            "work",
            "Works.",
            () -> {
              ran.incrementAndGet();
              begun.countDown();
              goOn.await(10, TimeUnit.SECONDS);
              return "late";
            });
    Session session = session("one", work);
    try (Run run = session.run("go")) {
      for (Event event : run) {
        if (event instanceof Event.ToolCallRequested) {
          break;
        }
      }
    }
    assertTrue(begun.await(10, TimeUnit.SECONDS));
    Run resumed = session.resume().orElseThrow();
    goOn.countDown();
    assertEquals("Result: late", resumed.result().text());
    assertEquals(1, ran.get());
  }

  @Test
  void anotherProcessResumesATurnAndRunsWhatWaits() {
    Tool work = Tool.of("work", "Works.", () -> "from the second host");
    Session session = session("one", work);
    try (Run run = session.run("go")) {
      for (Event event : run) {
        if (event instanceof Event.StepStarted) {
          break; // the first host is gone before it runs anything
        }
      }
    }
    try (Contextd other = Contextd.connect(server.url())) {
      Session same = other.session(session.id());
      Run resumed = same.resume(work).orElseThrow();
      assertEquals("Result: from the second host", String.join("", resumed.text().toList()));
      assertEquals(Optional.empty(), same.resume());
    }
  }

  @Test
  void aRepeatedRequestIdAttachesAndTellsTheWholeTurn() {
    Session session = session("echo");
    Result first = session.run("hello", options -> options.requestId("req-1")).result();
    try (Contextd other = Contextd.connect(server.url())) {
      Result again =
          other.session(session.id()).run("hello", options -> options.requestId("req-1")).result();
      assertEquals(first.turnId(), again.turnId());
      assertEquals("You said: hello", again.text());
    }
    assertEquals(1, session.turns().count());
  }

  @Test
  void aTurnThatFailsThrowsWithItsReason() {
    Run run = session("broken").run("go");
    TurnFailedException error = assertThrows(TurnFailedException.class, run::result);
    assertEquals("PROVIDER_BAD_REQUEST", error.reason());
    assertEquals(Result.State.FAILED, error.result().state());
  }

  @Test
  void anAnswerThatIsMadeAgainYieldsNoWordTwice() {
    List<Event> seen = session("flaky").run("go").events().toList();
    assertTrue(seen.stream().anyMatch(Event.TurnRetrying.class::isInstance));
    assertFalse(seen.stream().anyMatch(Event.TextReset.class::isInstance));
    StringBuilder text = new StringBuilder();
    for (Event event : seen) {
      if (event instanceof Event.TextDelta delta) {
        text.append(delta.text());
      }
    }
    assertEquals("one two three four five", text.toString());
  }

  @Test
  void cancelKeepsThePartialAnswer() {
    Session session = session("slow");
    Run run = session.run("go");
    for (Event event : run) {
      if (event instanceof Event.TextDelta) {
        session.cancel(options -> options.setTurnId(run.turnId()).setReason("enough"));
        break;
      }
    }
    Result result = run.result();
    assertEquals(Result.State.CANCELLED, result.state());
    assertEquals("REQUESTED", result.reason());
    assertTrue(result.text().startsWith("word"));
  }

  @Test
  void aRunThatIsCancelledBeforeItWasAdmittedIsCancelledThen() throws Exception {
    Run run = session("slow").run("go");
    CompletableFuture<Void> cancelled = CompletableFuture.runAsync(() -> run.cancel("enough"));
    assertEquals(Result.State.CANCELLED, run.result().state());
    cancelled.get(10, TimeUnit.SECONDS);
  }

  @Test
  void cancellingARunThatWaitsLeavesTheTurnThatRunsAlone() {
    Session session = session("slow");
    Run running = session.run("go");
    readTo(running, Event.TurnStarted.class);
    Run waiting = session.run("again");
    readTo(waiting, Event.Admitted.class);
    waiting.cancel();
    assertThrows(InputNotTakenException.class, waiting::result);
    assertEquals(TurnState.TURN_STATE_RUNNING, session.turn(running.turnId()).getState());
    running.cancel();
    assertEquals(Result.State.CANCELLED, running.result().state());
  }

  @Test
  void aRunThatNothingReadsCannotBeCancelled() {
    try (Contextd hasty =
        Contextd.builder().url(server.url()).timeout(Duration.ofMillis(500)).connect()) {
      Run run = hasty.session(options -> options.model("scripted/slow")).run("go");
      assertTrue(
          assertThrows(ContextdException.class, run::cancel).getMessage().contains("not admitted"));
    }
  }

  private static void readTo(Run run, Class<? extends Event> kind) {
    Iterator<Event> events = run.iterator();
    while (!kind.isInstance(events.next())) {}
  }

  @Test
  void aResumeAfterTheLastMessageStillHasItsText() {
    Session made =
        session("steps", Tool.of("lookup", "Looks up.", Who.class, given -> given.who()));
    Session session = client.session(made.id()); // knows no function, so that the call waits
    Run run = session.run("go");
    readTo(run, Event.ToolCallRequested.class);
    Run resumed = session.resume(options -> {}, Optional.of(run.cursor())).orElseThrow();
    run.cancel();
    assertEquals("Step one begins here.", resumed.result().text());
    assertEquals(Result.State.CANCELLED, resumed.result().state());
  }

  @Test
  void aBusySessionThatIsToRejectThrows() {
    Session session = session("slow");
    Run running = session.run("go");
    running.iterator().next();
    Run refused = session.run("again", options -> options.busy(BusyPolicy.BUSY_POLICY_REJECT));
    ApiException error = assertThrows(ApiException.FailedPrecondition.class, refused::result);
    assertTrue(error.is(ErrorReason.ERROR_REASON_TURN_IN_PROGRESS));
    assertFalse(error.metadata().get("turn_id").isEmpty());
    session.cancel();
    running.close();
  }

  @Test
  void aCallOfAToolThatTheRunDoesNotHaveIsAnsweredByHand() {
    Session session = session("one", Tool.of("work", "Works.", () -> "unused"));
    Run run = client.session(session.id()).run("go"); // without the function
    for (Event event : run) {
      if (event instanceof Event.ToolCallRequested requested) {
        assertFalse(requested.handled());
        session.submit(requested.callId(), "by hand");
      }
    }
    assertEquals("Result: by hand", run.result().text());
  }

  @Test
  void watchTellsWhatOthersDo() {
    Session session = session("echo");
    session.run("hello").result();
    List<Event> events = session.watch(0, false).events().toList();
    assertTrue(events.get(0) instanceof Event.TurnStarted);
    assertTrue(events.get(events.size() - 1) instanceof Event.TurnCompleted);
  }

  @Test
  void aWatchThatIsClosedByAnotherThreadEnds() throws Exception {
    Session session = session("echo");
    Watch watch = session.watch(0, true);
    CountDownLatch seen = new CountDownLatch(1);
    CompletableFuture<Void> reader =
        CompletableFuture.runAsync(() -> watch.forEach(event -> seen.countDown()));
    session.run("hello").result();
    assertTrue(seen.await(10, TimeUnit.SECONDS));
    watch.close();
    reader.get(10, TimeUnit.SECONDS);
  }

  @Test
  void mediaGoesWithTheText() {
    Session session = session("echo");
    byte[] image = {(byte) 0x89, 'P', 'N', 'G', 0};
    session
        .run(Content.input(Content.text("Look:"), Content.media("image/png", image)), options -> {})
        .result();
    Message user = session.messages().findFirst().orElseThrow();
    assertEquals("Look:", user.text());
    String blob = user.parts().get(1).getMedia().getBlobId();
    assertEquals(image.length, client.getBlob(blob).size());
  }

  @Test
  void aLoopThatWasLeftGivesItsConnectionBack() throws Exception {
    Session session =
        client.session(
            options ->
                options.model("scripted/slow").policy("")); // the default policy, as without this
    String turn = leave(session);
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (session.turn(turn).getEndTime().getSeconds() == 0) {
      assertTrue(System.nanoTime() < until, "the stream is still read");
      System.gc();
      TimeUnit.MILLISECONDS.sleep(50);
    }
    assertEquals("DISCONNECTED", lastCause(session));
  }

  /** Without a reader the turn is cancelled, which shows that the stream was closed. */
  private static String leave(Session session) {
    Run run = session.run("go", options -> options.cancelAfterDisconnect(Duration.ofSeconds(1)));
    Iterator<Event> events = run.iterator();
    while (run.turnId().isEmpty()) {
      events.next();
    }
    return run.turnId();
  }

  private static String lastCause(Session session) {
    List<Event> events = session.watch(0, false).events().toList();
    var cancelled = (Event.TurnCancelled) events.get(events.size() - 1);
    return cancelled.payload().getCause().name().replace("CANCEL_CAUSE_", "");
  }

  @Test
  void aClosedClientSaysSo() {
    Contextd closed = Contextd.connect(server.url());
    Session session = closed.session(options -> options.model("scripted/echo"));
    Run run = session.run("hello");
    closed.close();
    assertEquals(
        "the client is closed", assertThrows(ContextdException.class, run::result).getMessage());
  }
}
