package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.contextd.v1.ErrorReason;
import dev.contextd.v1.Policy;
import dev.contextd.v1.QueuePolicy;
import dev.contextd.v1.TurnLimits;
import io.grpc.Status;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Refusals of the server as exceptions. */
class ErrorsTest {
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

  @Test
  void aReasonThatIsNotKnownGoesByItsCode() {
    ApiException error =
        ApiException.of(Problem.of(Status.Code.NOT_FOUND, "gone", "NEWER_THAN_THIS", Map.of()));
    assertTrue(error instanceof ApiException.NotFound);
    assertEquals("NEWER_THAN_THIS", error.reason());
    assertEquals(
        ApiException.class, ApiException.of(Problem.of(Status.Code.UNKNOWN, "?")).getClass());
  }

  @Test
  void fieldsThatAreWrongAreListed() {
    TurnLimits limits = TurnLimits.newBuilder().setMaxSteps(5000).build();
    ApiException error =
        assertThrows(
            ApiException.InvalidArgument.class,
            () -> client.session("not valid", options -> options.limits(limits)));
    assertTrue(error.is(ErrorReason.ERROR_REASON_INVALID_REQUEST));
    Set<String> wrong =
        error.fields().stream()
            .map(each -> each.field() + " " + each.reason())
            .collect(Collectors.toSet());
    assertTrue(wrong.contains("session.limits.max_steps OUT_OF_RANGE"), wrong.toString());
    assertTrue(error.getMessage().contains("session.limits.max_steps"), error.getMessage());
  }

  @Test
  void whatIsNotThereIsNamed() {
    Session session = client.session();
    ApiException error =
        assertThrows(
            ApiException.NotFound.class,
            () -> session.turn("01a209ad-e498-7015-8757-37cccabbf574"));
    assertTrue(error.is(ErrorReason.ERROR_REASON_TURN_NOT_FOUND));
    assertEquals("01a209ad-e498-7015-8757-37cccabbf574", error.resourceName());
  }

  @Test
  void aFullQueueSaysWhenToComeBack() {
    Policy overrides =
        Policy.newBuilder().setQueue(QueuePolicy.newBuilder().setMaxPending(1)).build();
    Session session = client.session(options -> options.policyOverrides(overrides));
    session.send("one");
    ApiException error =
        assertThrows(ApiException.ResourceExhausted.class, () -> session.send("two"));
    assertTrue(error.is(ErrorReason.ERROR_REASON_QUEUE_FULL));
    assertEquals(Map.of("limit", "1"), error.metadata());
    assertTrue(error.retryAfter().isPresent());
    assertEquals(1, error.quotas().size());
  }

  @Test
  void aServerThatIsNotThereIsUnavailable() {
    try (Contextd lost =
        Contextd.builder().url("http://127.0.0.1:1").timeout(Duration.ofSeconds(2)).connect()) {
      assertThrows(ApiException.Unavailable.class, lost::session);
    }
  }

  @Test
  void aRunIsGivenUpAfterItsTimeWithoutAServer() {
    Cutter proxy = new Cutter(server.port(), Duration.ofHours(1));
    try (Contextd lost =
        Contextd.builder().url(proxy.url()).reconnectFor(Duration.ofMillis(500)).connect()) {
      Session session = lost.session(options -> options.model("scripted/echo"));
      proxy.close();
      assertThrows(ApiException.Unavailable.class, () -> session.run("hello").result());
    }
  }

  @Test
  void twoToolsOfOneNameAreRefused() {
    Tool tool = Tool.of("work", "Works.", () -> "done");
    assertThrows(
        IllegalArgumentException.class, () -> client.session(options -> options.tools(tool, tool)));
  }
}
