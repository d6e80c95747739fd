package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Turns through kills, drains, cuts and times without a server. CONTEXTD_FAULT_ROUNDS says how many
 * rounds of each (3 by default), CONTEXTD_FAULT_AWAY for how many seconds there is no server (3 by
 * default), and CONTEXTD_FAULT_PARALLEL how many rounds of a fault run at the same time, each with
 * servers of its own (1 by default).
 */
class FaultsTest {
  private static final int ROUNDS = number("CONTEXTD_FAULT_ROUNDS", 3);
  private static final int PARALLEL = number("CONTEXTD_FAULT_PARALLEL", 1);
  private static final int AWAY_SECONDS = number("CONTEXTD_FAULT_AWAY", 3);

  /** What a turn of the script takes by itself, a little less. */
  private static final int TURN_MILLIS = 1300;

  private static final int TOOL_MILLIS = 150;

  /** One for each of the rounds that run at the same time. */
  private static final List<Fleet> FLEETS = new ArrayList<>();

  private static final ExecutorService THREADS = Executors.newCachedThreadPool();

  /**
   * Two replicas on the database of a third server. Clients do not know that one, but it may take
   * turns over.
   */
  private record Fleet(Server keeper, List<Server> replicas) {
    static Fleet start() {
      Map<String, String> scripts = Map.of("steps", Scripts.STEPS);
      Server keeper = new Server(scripts, Map.of()).start();
      Map<String, String> database = Map.of("CONTEXTD_DATABASE_URL", keeper.databaseUrl());
      return new Fleet(
          keeper, Stream.generate(() -> new Server(scripts, database).start()).limit(2).toList());
    }

    String url() {
      return replicas.get(0).url() + "," + replicas.get(1).url();
    }

    /** Both replicas, so that one of them is the turn's. */
    List<Server> inTurn(int round) {
      return round % 2 == 0 ? replicas : List.of(replicas.get(1), replicas.get(0));
    }

    String logs() {
      return Stream.concat(Stream.of(keeper), replicas.stream())
          .map(Server::log)
          .collect(Collectors.joining("\n"));
    }

    void close() {
      replicas.forEach(Server::close);
      keeper.close();
    }
  }

  /** A round of a fault. */
  private interface Round {
    void run(Fleet fleet, int round) throws Exception;
  }

  private static int number(String variable, int usual) {
    String found = System.getenv(variable);
    return found == null ? usual : Integer.parseInt(found);
  }

  /** The first and the last of the rounds that run at the same time. */
  static Stream<Arguments> rounds() {
    return IntStream.iterate(0, first -> first < ROUNDS, first -> first + PARALLEL)
        .mapToObj(first -> Arguments.of(first, Math.min(first + PARALLEL, ROUNDS) - 1));
  }

  @BeforeAll
  static void startFleets() {
    for (int i = 0; i < Math.min(PARALLEL, ROUNDS); i++) {
      FLEETS.add(Fleet.start());
    }
  }

  @AfterAll
  static void stopFleets() {
    FLEETS.forEach(Fleet::close);
    THREADS.shutdown();
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

  /** Runs these rounds at the same time, each with a fleet, and fails if one of them does. */
  private static void runRounds(int first, int last, Round round) {
    Map<Integer, Future<Void>> running = new TreeMap<>();
    for (int number = first; number <= last; number++) {
      int each = number;
      Fleet fleet = FLEETS.get(each - first);
      running.put(
          each,
          THREADS.submit(
              () -> {
                round.run(fleet, each);
                return null;
              }));
    }
    List<Executable> checks = new ArrayList<>();
    running.forEach((number, future) -> checks.add(() -> succeeds(number, number - first, future)));
    assertAll(checks);
  }

  private static void succeeds(int round, int fleet, Future<Void> future) throws Exception {
    try {
      future.get();
    } catch (ExecutionException error) {
      System.err.println("the servers of round " + round + ":\n" + FLEETS.get(fleet).logs());
      throw new AssertionError("round " + round, error.getCause());
    }
  }

  /** Runs a turn with a fault meanwhile. */
  private static Seen during(String url, String id, Runnable fault) throws Exception {
    Future<Seen> turn = THREADS.submit(() -> run(url, id));
    fault.run();
    Seen seen = turn.get(180, TimeUnit.SECONDS);
    System.out.println(id + ": " + seen.reconnects + " reconnects");
    seen.check();
    return seen;
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

  private static void kill(Fleet fleet, int round) throws Exception {
    during(
        fleet.url(),
        "kill-" + round,
        () -> {
          someTime();
          for (Server victim : fleet.inTurn(round)) {
            victim.kill();
            sleep(300);
            victim.start();
          }
        });
  }

  private static void drain(Fleet fleet, int round) throws Exception {
    during(
        fleet.url(),
        "drain-" + round,
        () -> {
          someTime();
          for (Server victim : fleet.inTurn(round)) {
            victim.drain();
            victim.start();
          }
        });
  }

  private static void cut(Fleet fleet, int round) throws Exception {
    int port = fleet.replicas().get(round % 2).port();
    try (Cutter cutter = new Cutter(port, Duration.ofMillis(200))) {
      Seen seen = during(cutter.url(), "cut-" + round, () -> {});
      assertTrue(seen.reconnects >= 3, "reconnects: " + seen.reconnects);
    }
  }

  private static void leave(Fleet fleet, int round) throws Exception {
    during(
        fleet.url(),
        "away-" + round,
        () -> {
          someTime();
          fleet.replicas().forEach(Server::kill);
          sleep(Duration.ofSeconds(AWAY_SECONDS).toMillis());
          fleet.replicas().forEach(Server::start);
        });
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesKill9OfItsReplica(int first, int last) {
    runRounds(first, last, FaultsTest::kill);
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesADrain(int first, int last) {
    runRounds(first, last, FaultsTest::drain);
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesACutEvery200Ms(int first, int last) {
    runRounds(first, last, FaultsTest::cut);
  }

  @ParameterizedTest
  @MethodSource("rounds")
  void aTurnSurvivesATimeWithoutAServer(int first, int last) {
    runRounds(first, last, FaultsTest::leave);
  }
}
