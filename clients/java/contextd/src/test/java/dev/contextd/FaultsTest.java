package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Turns through kills, drains, cuts and times without a server. CONTEXTD_FAULT_ROUNDS says how many
 * rounds of each (3 by default), CONTEXTD_FAULT_AWAY for how many seconds there is no server (3 by
 * default).
 */
class FaultsTest {
  private static final int ROUNDS = number("CONTEXTD_FAULT_ROUNDS", 3);
  private static final int AWAY_SECONDS = number("CONTEXTD_FAULT_AWAY", 3);

  /** What a turn of the script takes by itself, a little less. */
  private static final int TURN_MILLIS = 1300;

  private static final int TOOL_MILLIS = 150;

  /** Keeps the database. Clients do not know it, but it may take turns over. */
  private static Server keeper;

  private static List<Server> replicas;

  private static int number(String variable, int usual) {
    String found = System.getenv(variable);
    return found == null ? usual : Integer.parseInt(found);
  }

  static IntStream rounds() {
    return IntStream.range(0, ROUNDS);
  }

  @BeforeAll
  static void startReplicas() {
    Map<String, String> scripts = Map.of("steps", Scripts.STEPS);
    keeper = new Server(scripts, Map.of()).start();
    Map<String, String> database = Map.of("CONTEXTD_DATABASE_URL", keeper.databaseUrl());
    replicas = Stream.generate(() -> new Server(scripts, database).start()).limit(2).toList();
  }

  @AfterAll
  static void stopReplicas() {
    replicas.forEach(Server::close);
    keeper.close();
  }

  record Key(String key) {}

  /** What a host saw of a turn. */
  private static final class Seen {
    final StringBuilder words = new StringBuilder();
    final List<Long> seqs = new ArrayList<>();
    final List<String> results = new ArrayList<>();
    final Map<String, Integer> calls = new ConcurrentHashMap<>();
    int resets;
    int reconnects;
    Result result;

    Object lookup(Key key) {
      calls.merge(key.key(), 1, Integer::sum);
      return "<" + key.key() + ">";
    }

    Object slowLookup(Key key) throws InterruptedException {
      Object found = lookup(key);
      TimeUnit.MILLISECONDS.sleep(TOOL_MILLIS);
      return found;
    }

    void see(Event event) {
      if (event instanceof Event.TextDelta delta) {
        words.append(delta.text());
      } else if (event instanceof Event.TextReset) {
        resets++;
      } else if (event.seq() > 0) {
        seqs.add(event.seq());
      }
      if (event instanceof Event.ToolCallCompleted completed) {
        results.add(completed.text());
      }
    }

    /** Every word once, every event once, every call once. */
    void check() {
      assertEquals(String.join("", Scripts.SAID), words.toString());
      assertEquals(0, resets);
      long first = seqs.get(0);
      assertEquals(LongStream.range(first, first + seqs.size()).boxed().toList(), seqs);
      assertEquals(Map.of("a", 1, "b", 1, "c", 1, "d", 1), calls);
      assertEquals(List.of("<a>", "<b>", "<c>", "<d>"), results.stream().sorted().toList());
      assertEquals(Result.State.COMPLETED, result.state());
      assertEquals("STOP", result.reason());
      assertEquals(Scripts.SAID.get(3), result.text());
      assertEquals(4, result.steps());
    }
  }

  private static Seen run(String url, String id) {
    Seen seen = new Seen();
    Tool lookup = Tool.of("lookup", "Looks up.", Key.class, seen::lookup);
    Tool slow = Tool.of("slow_lookup", "Looks up slowly.", Key.class, seen::slowLookup);
    try (Contextd client = Contextd.connect(url)) {
      Session session =
          client.session(id, options -> options.model("scripted/steps").tools(lookup, slow));
      Run run = session.run("Go.");
      run.forEach(seen::see);
      seen.result = run.result();
      seen.reconnects = run.reconnects();
    }
    return seen;
  }

  /** Runs a turn with a fault meanwhile. */
  private static Seen during(String url, String id, Runnable fault) throws Exception {
    CompletableFuture<Seen> turn = CompletableFuture.supplyAsync(() -> run(url, id));
    fault.run();
    Seen seen = turn.get(180, TimeUnit.SECONDS);
    seen.check();
    return seen;
  }

  private static String fleet() {
    return replicas.get(0).url() + "," + replicas.get(1).url();
  }

  /** Both replicas, so that one of them is the turn's. */
  private static List<Server> inTurn(int round) {
    return round % 2 == 0 ? replicas : List.of(replicas.get(1), replicas.get(0));
  }

  private static void someTime() {
    sleep(ThreadLocalRandom.current().nextInt(50, TURN_MILLIS));
  }

  private static void sleep(long millis) {
    try {
      TimeUnit.MILLISECONDS.sleep(millis);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesKill9OfItsReplica(int round) throws Exception {
    during(
        fleet(),
        "kill-" + round,
        () -> {
          someTime();
          for (Server victim : inTurn(round)) {
            victim.kill();
            sleep(300);
            victim.start();
          }
        });
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesADrain(int round) throws Exception {
    during(
        fleet(),
        "drain-" + round,
        () -> {
          someTime();
          for (Server victim : inTurn(round)) {
            victim.drain();
            victim.start();
          }
        });
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesACutEvery200Ms(int round) throws Exception {
    try (Cutter cutter = new Cutter(replicas.get(round % 2).port(), Duration.ofMillis(200))) {
      Seen seen = during(cutter.url(), "cut-" + round, () -> {});
      assertTrue(seen.reconnects >= 3, "reconnects: " + seen.reconnects);
    }
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesATimeWithoutAServer(int round) throws Exception {
    during(
        fleet(),
        "away-" + round,
        () -> {
          someTime();
          replicas.forEach(Server::kill);
          sleep(Duration.ofSeconds(AWAY_SECONDS).toMillis());
          replicas.forEach(Server::start);
        });
  }
}
