package dev.contextd;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A real server for tests: {@code contextd serve} on a PostgreSQL of its own, with scripts in place
 * of models. It can be killed and started again on the same data and the same port.
 */
public final class Server implements AutoCloseable {
  private static final long SECONDS = 60;

  /**
   * Short, so that tests of crashes are quick; a busy machine renews it in time all the same. A
   * turn whose lease runs out five times in a row fails.
   */
  private static final String LEASE = "3s";

  /** Ports that no system assigns by itself: a server that is down keeps its port to itself. */
  private static final int FIRST_PORT = 10_000;

  private static final int END_PORT = 32_000;

  private final Path place;
  private final Map<String, String> variables = new LinkedHashMap<>();
  private final int port = freePort();
  private Process process;

  /** A server with these models. */
  public Server(Map<String, String> scripts, Map<String, String> variables) {
    this.variables.putAll(variables);
    try {
      place = Files.createTempDirectory("contextd-java-");
      // Started by root, PostgreSQL runs as another user.
      Files.setPosixFilePermissions(place, PosixFilePermissions.fromString("rwxr-xr-x"));
      Path folder = Files.createDirectory(place.resolve("scripts"));
      for (Map.Entry<String, String> script : scripts.entrySet()) {
        Files.writeString(folder.resolve(script.getKey() + ".json"), script.getValue());
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The server that nothing happens to, which tests share; it ends with them. */
  static Server shared() {
    return Shared.SERVER;
  }

  private static final class Shared {
    static final Server SERVER = new Server(Scripts.ALL, Map.of()).start();

    static {
      Runtime.getRuntime().addShutdownHook(new Thread(SERVER::close));
    }
  }

  /** The program. */
  public static String program() {
    String named = System.getenv("CONTEXTD_BIN");
    return named == null
        ? Path.of("../../../target/debug/contextd").toAbsolutePath().toString()
        : named;
  }

  /** A port that no program listens on. */
  public static int freePort() {
    while (true) {
      int port = ThreadLocalRandom.current().nextInt(FIRST_PORT, END_PORT);
      try (ServerSocket probe = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
        return probe.getLocalPort();
      } catch (BindException taken) {
        // Try another port.
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  /** Starts it, and waits until it listens. */
  public Server start() {
    ProcessBuilder builder = new ProcessBuilder(program(), "serve");
    Map<String, String> env = builder.environment();
    env.keySet()
        .removeIf(
            name ->
                name.startsWith("CONTEXTD_")
                    || name.endsWith("_API_KEY")
                    || name.endsWith("_BASE_URL"));
    env.put("CONTEXTD_LISTEN", "127.0.0.1:" + port);
    env.put("CONTEXTD_DATA_DIR", place.resolve("data").toString());
    env.put("CONTEXTD_SCRIPT_DIR", place.resolve("scripts").toString());
    env.put("CONTEXTD_LEASE_TTL", LEASE);
    env.put("XDG_CONFIG_HOME", place.toString());
    env.putAll(variables);
    builder.redirectError(ProcessBuilder.Redirect.appendTo(place.resolve("log").toFile()));
    try {
      process = builder.start();
      Process started = process;
      CompletableFuture<Void> patience =
          CompletableFuture.runAsync(
              started::destroyForcibly,
              CompletableFuture.delayedExecutor(SECONDS, TimeUnit.SECONDS));
      String ready = process.inputReader(UTF_8).readLine();
      patience.cancel(true);
      if (ready == null || !ready.startsWith("contextd listens on ")) {
        throw new IllegalStateException(
            "the server does not start: " + Files.readString(place.resolve("log")));
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return this;
  }

  /** Its address. */
  public String url() {
    return "http://127.0.0.1:" + port;
  }

  int port() {
    return port;
  }

  /** Ends it as {@code kill -9} does. */
  public void kill() {
    end(true);
  }

  /** Ends it as a shutdown of its machine does. */
  public void drain() {
    end(false);
  }

  private void end(boolean forcibly) {
    if (process != null) {
      Process ending = forcibly ? process.destroyForcibly() : process;
      if (!forcibly) {
        ending.destroy();
      }
      try {
        if (!ending.waitFor(SECONDS, TimeUnit.SECONDS)) {
          throw new IllegalStateException("the server does not end");
        }
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
      process = null;
    }
  }

  /** The newest lines of its log. */
  String log() {
    try {
      String all = Files.readString(place.resolve("log"));
      return all.substring(Math.max(0, all.length() - 20_000));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The PostgreSQL that it runs, for other replicas on this machine. */
  String databaseUrl() {
    try {
      String folder = Files.readAllLines(place.resolve("data/postgresql/postmaster.pid")).get(4);
      return "postgres://contextd@localhost/contextd?host=" + folder;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Stops it at once, as a second signal does, and takes its files away. */
  @Override
  public void close() {
    if (process != null) {
      process.destroy();
      try {
        process.waitFor(200, TimeUnit.MILLISECONDS);
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
    }
    drain();
    awaitDatabase();
    try (Stream<Path> files = Files.walk(place)) {
      files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Waits until its PostgreSQL, which ends after it, takes no more files away. */
  private void awaitDatabase() {
    Path running = place.resolve("data/postgresql/postmaster.pid");
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
    try {
      while (Files.exists(running) && System.nanoTime() < end) {
        Thread.sleep(10);
      }
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }
}
