package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Only an explicit yes lets a call run that needs approval. */
class ApprovalTest {
  /** What is logged. */
  static final class Lines extends Handler implements AutoCloseable {
    private final Logger logger = Logger.getLogger("dev.contextd");
    final List<LogRecord> records = new CopyOnWriteArrayList<>();

    Lines() {
      logger.addHandler(this);
    }

    @Override
    public void publish(LogRecord line) {
      records.add(line);
    }

    @Override
    public void flush() {}

    @Override
    public void close() {
      logger.removeHandler(this);
    }
  }

  /** What a host may pass in spite of the types. */
  private static final Optional<Map<String, Object>> NO_ARGUMENTS = null;

  private static Contextd client;

  @BeforeAll
  static void start() {
    client = Contextd.connect(Server.shared().url());
  }

  @AfterAll
  static void stop() {
    client.close();
  }

  static Stream<Arguments> answers() {
    List<Arguments> rows = new ArrayList<>();
    rows.add(row("approve()", Approval::approve, true));
    rows.add(row("approve(arguments)", () -> Approval.approve(Map.of()), true));
    rows.add(row("deny", () -> Approval.deny("no"), false));
    rows.add(row("deny(null)", () -> Approval.deny(null), false));
    rows.add(row("null", () -> null, false));
    rows.add(row("null arguments", () -> new Approval(true, NO_ARGUMENTS, ""), false));
    rows.add(
        row(
            "not approved, with arguments",
            () -> new Approval(false, Optional.of(Map.of()), ""),
            false));
    rows.add(
        row(
            "arguments that refer to themselves",
            () -> {
              Map<String, Object> circle = new java.util.HashMap<>();
              circle.put("self", circle);
              return Approval.approve(circle);
            },
            false));
    rows.add(
        row(
            "an exception",
            () -> {
              throw new IllegalStateException("the password is 1234");
            },
            false));
    rows.add(
        row(
            "an error",
            () -> {
              throw new AssertionError("the password is 1234");
            },
            false));
    return rows.stream();
  }

  private interface Answer {
    Approval give() throws Exception;
  }

  private static Arguments row(String name, Answer answer, boolean runs) {
    Approval.Handler handler = request -> answer.give();
    return Arguments.of(name, handler, runs);
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("answers")
  void onlyAnExplicitYesRunsTheCall(String name, Approval.Handler handler, boolean runs) {
    AtomicBoolean ran = new AtomicBoolean();
    Tool work =
        Tool.of(
                "work",
                "Works.",
                () -> {
                  ran.set(true);
                  return "done";
                })
            .withApproval();
    Session session = client.session(options -> options.model("scripted/one").tools(work));
    String text = session.run("go", options -> options.onApproval(handler)).result().text();
    assertEquals(runs, ran.get());
    assertFalse(text.contains("1234"));
  }

  @Test
  void anExceptionOfTheCallbackIsLogged() {
    Tool work = Tool.of("work", "Works.", () -> "done").withApproval();
    Session session = client.session(options -> options.model("scripted/one").tools(work));
    try (Lines lines = new Lines()) {
      String text =
          session
              .run(
                  "go",
                  options ->
                      options.onApproval(
                          request -> {
                            throw new IllegalStateException("no person is there");
                          }))
              .result()
              .text();
      assertTrue(text.contains("its approval callback failed"), text);
      assertEquals(1, lines.records.size());
      assertTrue(lines.records.get(0).getMessage().contains("was denied"));
      assertEquals("no person is there", lines.records.get(0).getThrown().getMessage());
    }
  }

  @Test
  void anExceptionOfAToolIsLoggedWithItsTrace() {
    Tool work =
        Tool.of(
            "work",
            "Works.",
            () -> {
              throw new IllegalStateException("no such luck");
            });
    Session session = client.session(options -> options.model("scripted/one").tools(work));
    try (Lines lines = new Lines()) {
      session.runText("go");
      assertEquals(1, lines.records.size());
      assertTrue(lines.records.get(0).getMessage().startsWith("tool work failed (call "));
      Throwable thrown = lines.records.get(0).getThrown();
      assertTrue(
          Stream.of(thrown.getStackTrace())
              .anyMatch(frame -> frame.getClassName().contains("ApprovalTest")));
    }
  }
}
