package dev.contextd;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.logging.LogRecord;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A server that is not there: within 5 s, with the URL, the cause and the next step. */
class ReachTest {
  @TempDir private Path place;

  private interface Peer {
    void answer(Socket socket) throws Exception;
  }

  private static int listen(ServerSocket listener, Peer peer) {
    Thread thread =
        new Thread(
            () -> {
              while (true) {
                try {
                  Socket socket = listener.accept();
                  Thread answer =
                      new Thread(
                          () -> {
                            try (socket) {
                              peer.answer(socket);
                            } catch (Exception gone) {
                              // The client has seen enough.
                            }
                          });
                  answer.setDaemon(true);
                  answer.start();
                } catch (IOException closed) {
                  return;
                }
              }
            });
    thread.setDaemon(true);
    thread.start();
    return listener.getLocalPort();
  }

  private static ServerSocket plain() throws IOException {
    return new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  }

  private static void http2(Socket socket) throws Exception {
    socket.getOutputStream().write("\0\0\0\4\0\0\0\0\0".getBytes(ISO_8859_1));
    byte[] first = socket.getInputStream().readNBytes(3);
    if (new String(first, ISO_8859_1).equals("PRI")) {
      TimeUnit.SECONDS.sleep(5);
    }
  }

  private static void http1(Socket socket) throws Exception {
    socket.getInputStream().readNBytes(3);
    socket.getOutputStream().write("HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(ISO_8859_1));
    socket.getOutputStream().flush();
    TimeUnit.MILLISECONDS.sleep(200);
  }

  /** A server of TLS whose certificate is for a name; the certificate is NAME.pem. */
  private ServerSocket tls(String name) throws Exception {
    Path cert = place.resolve(name + ".pem");
    Path key = place.resolve(name + ".key");
    Path store = place.resolve(name + ".p12");
    run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
            + " -addext subjectAltName=DNS:%s -keyout %s -out %s".formatted(name, key, cert));
    run(
        "openssl pkcs12 -export -in %s -inkey %s -out %s -passout pass:secret"
            .formatted(cert, key, store));
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream file = Files.newInputStream(store)) {
      keys.load(file, "secret".toCharArray());
    }
    KeyManagerFactory managers =
        KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    managers.init(keys, "secret".toCharArray());
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(managers.getKeyManagers(), null, null);
    return context
        .getServerSocketFactory()
        .createServerSocket(0, 50, InetAddress.getLoopbackAddress());
  }

  private static void run(String command) throws Exception {
    Process process = new ProcessBuilder(command.split(" ")).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), ISO_8859_1);
    assertEquals(0, process.waitFor(), said);
  }

  private static void check(String url, Optional<Path> ca, String... words) {
    Contextd.Builder builder = new Contextd.Builder(Map.of()).url(url).apiKey("the-key");
    ca.ifPresent(builder::caFile);
    try (Contextd client = builder.connect()) {
      long began = System.nanoTime();
      var error = assertThrows(ApiException.Unreachable.class, client::session);
      assertTrue(System.nanoTime() - began < Duration.ofMillis(5500).toNanos());
      for (String word : words) {
        assertTrue(error.getMessage().contains(word), error.getMessage());
      }
      assertTrue(error.getMessage().contains(url), error.getMessage());
      assertFalse(error.getMessage().contains("the-key"));
    }
  }

  @Test
  void nothingListens() throws Exception {
    int port;
    try (ServerSocket free = plain()) {
      port = free.getLocalPort();
    }
    check("http://127.0.0.1:" + port, Optional.empty(), "connection refused", "contextd serve");
  }

  @Test
  void anUnknownName() {
    check(
        "http://no-such-host.invalid:7070",
        Optional.empty(),
        "cannot be resolved",
        "Check the host name");
  }

  @Test
  void httpsToAPlainServer() throws Exception {
    try (ServerSocket listener = plain()) {
      int port = listen(listener, ReachTest::http2);
      check("https://localhost:" + port, Optional.empty(), "does not speak TLS", "Use http://");
    }
  }

  @Test
  void httpToAServerWithTls() throws Exception {
    try (ServerSocket listener = tls("localhost")) {
      int port = listen(listener, ReachTest::http2);
      check("http://localhost:" + port, Optional.empty(), "expects TLS", "Use https://");
    }
  }

  @Test
  void anUnknownAuthority() throws Exception {
    try (ServerSocket listener = tls("localhost")) {
      int port = listen(listener, ReachTest::http2);
      check("https://localhost:" + port, Optional.empty(), "unknown authority", "CONTEXTD_CA_FILE");
    }
  }

  @Test
  void theCertificateOfAnotherHost() throws Exception {
    try (ServerSocket listener = tls("other.example")) {
      int port = listen(listener, ReachTest::http2);
      check(
          "https://localhost:" + port,
          Optional.of(place.resolve("other.example.pem")),
          "another host",
          "host name of the certificate");
    }
  }

  @Test
  void aServerOfHttp1() throws Exception {
    try (ServerSocket listener = plain()) {
      int port = listen(listener, ReachTest::http1);
      check("http://localhost:" + port, Optional.empty(), "is not a gRPC server", "7070");
    }
  }

  @Test
  void aServerThatSaysNothing() throws Exception {
    try (ServerSocket listener = plain()) {
      int port = listen(listener, socket -> TimeUnit.SECONDS.sleep(10));
      check("http://localhost:" + port, Optional.empty(), "does not answer", "network policies");
    }
  }

  @Test
  void aServerThatWasReachedIsWaitedForWithALineInTheLog() throws Exception {
    Server server = new Server(Scripts.ALL, Map.of()).start();
    try (server;
        Contextd client = Contextd.connect(server.url());
        ApprovalTest.Lines lines = new ApprovalTest.Lines()) {
      client.session("known");
      server.kill();
      CompletableFuture<Void> back =
          CompletableFuture.runAsync(
              server::start, CompletableFuture.delayedExecutor(6, TimeUnit.SECONDS));
      client.session("known");
      back.join();
      List<String> logged = lines.records.stream().map(LogRecord::getMessage).toList();
      assertEquals(2, logged.size(), logged.toString());
      assertTrue(
          logged.get(0).startsWith("contextd at " + server.url() + " does not answer"),
          logged.toString());
      assertEquals("contextd at " + server.url() + " answers again", logged.get(1));
    }
  }
}
