package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** TLS, API keys and the variables of the environment. */
class SecureTest {
  @TempDir private static Path place;

  private static Server server;
  private static String key;
  private static Path cert;

  @BeforeAll
  static void start() throws Exception {
    Assumptions.assumeTrue(
        List.of(System.getenv("PATH").split(":")).stream()
            .anyMatch(each -> Files.exists(Path.of(each, "openssl"))),
        "no openssl to make a certificate with");
    Files.setPosixFilePermissions(place, PosixFilePermissions.fromString("rwxr-xr-x"));
    cert = place.resolve("cert.pem");
    Path certKey = place.resolve("key.pem");
    run(
        ("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
                + " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
                + " -keyout "
                + certKey
                + " -out "
                + cert)
            .split(" "));
    List<String> lines =
        run(Server.program(), "admin", "key", "generate", "--tenant", "acme").lines().toList();
    key = lines.stream().filter(line -> line.startsWith("ctxd_")).findFirst().orElseThrow();
    Path keys = place.resolve("keys.toml");
    Files.write(keys, lines.stream().filter(line -> !line.equals(key)).toList());
    server =
        new Server(
                Scripts.ALL,
                Map.of(
                    "CONTEXTD_TLS_CERT", cert.toString(),
                    "CONTEXTD_TLS_KEY", certKey.toString(),
                    "CONTEXTD_KEYS_FILE", keys.toString(),
                    "CONTEXTD_AUTH_REQUIRED", "true"))
            .start();
  }

  @AfterAll
  static void stop() {
    if (server != null) {
      server.close();
    }
  }

  private static String run(String... command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said =
        new String(
            process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
    return said;
  }

  private static String https(String host) {
    return "https://" + host + ":" + server.port();
  }

  @Test
  void aKeyAndACertificateLetOneIn() {
    try (Contextd client =
        Contextd.builder().url(https("localhost")).apiKey(key).caFile(cert).connect()) {
      Session session = client.session(options -> options.model("scripted/echo"));
      assertEquals("You said: Hello!", session.runText("Hello!"));
    }
  }

  @Test
  void variablesDoTheSame() {
    Map<String, String> env =
        Map.of(
            "CONTEXTD_URL", https("127.0.0.1"),
            "CONTEXTD_API_KEY", key,
            "CONTEXTD_CA_FILE", cert.toString());
    try (Contextd client = new Contextd.Builder(env).connect()) {
      assertFalse(client.session().id().isEmpty());
    }
  }

  @Test
  void withoutTheKeyOneIsRefusedAtOnce() {
    try (Contextd client =
        new Contextd.Builder(Map.of()).url(https("localhost")).caFile(cert).connect()) {
      var error = assertThrows(ApiException.Unauthenticated.class, client::session);
      assertFalse(error.getMessage().contains(key));
    }
  }

  @Test
  void withoutTheAuthorityTheServerIsNotTrusted() {
    try (Contextd client =
        new Contextd.Builder(Map.of())
            .url(https("localhost"))
            .apiKey(key)
            .timeout(Duration.ofSeconds(2))
            .connect()) {
      assertThrows(ApiException.Unavailable.class, client::session);
    }
  }
}
