package dev.contextd.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.contextd.ConfigurationException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Where the server is. */
class SettingsTest {
  private static final Settings.Given NOTHING =
      new Settings.Given(
          Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty());

  private static Settings.Given url(String url, Optional<Path> caFile, Optional<Path> certFile) {
    return new Settings.Given(
        Optional.of(url), Optional.empty(), caFile, certFile, Optional.empty());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "http://localhost|dns:///localhost:7070|false",
        "http://localhost:1234/|dns:///localhost:1234|false",
        "https://contextd.example.com|dns:///contextd.example.com:443|true",
        "http://a:1,b:2|dns:///a:1 dns:///b:2|false",
        "https://a,https://b:8443|dns:///a:443 dns:///b:8443|true",
        "http://[::1]:7070|dns:///[::1]:7070|false",
        "dns:///contextd:7070|dns:///contextd:7070|false",
        "https+dns:///contextd:7070|dns:///contextd:7070|true",
      })
  void aUrlNamesHosts(String url, String targets, boolean tls) {
    Settings found = Settings.of(url(url, Optional.empty(), Optional.empty()), Map.of());
    assertEquals(List.of(targets.split(" ")), found.targets());
    assertEquals(tls, found.tls());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "localhost:7070",
        "grpc://a",
        "http://",
        "http://a:port",
        "http://a/path",
        "http://u@a"
      })
  void otherUrlsAreRefused(String url) {
    Settings.Given given = url(url, Optional.empty(), Optional.empty());
    var error = assertThrows(ConfigurationException.class, () -> Settings.of(given, Map.of()));
    assertTrue(error.getMessage().contains(url), error.getMessage());
  }

  @Test
  void argumentsWinOverVariables() {
    Map<String, String> env =
        Map.of(
            "CONTEXTD_URL", "http://env:1", "CONTEXTD_API_KEY", "env-key", "CONTEXTD_CA_FILE", "");
    Settings found = Settings.of(NOTHING, env);
    assertEquals(List.of("dns:///env:1"), found.targets());
    assertEquals(Optional.of("env-key"), found.apiKey());
    assertEquals(Optional.empty(), found.caFile());
    Settings.Given given = url("http://arg:2", Optional.empty(), Optional.empty());
    assertEquals(List.of("dns:///arg:2"), Settings.of(given, env).targets());
    assertEquals(List.of("dns:///127.0.0.1:7070"), Settings.of(NOTHING, Map.of()).targets());
  }

  @Test
  void aCertificateTakesAKeyAndAnHttpsUrl() {
    Settings.Given half = url("https://a", Optional.empty(), Optional.of(Path.of("c.pem")));
    assertThrows(ConfigurationException.class, () -> Settings.of(half, Map.of()));
    Settings.Given plain = url("http://a", Optional.of(Path.of("ca.pem")), Optional.empty());
    assertThrows(ConfigurationException.class, () -> Settings.of(plain, Map.of()));
  }

  @Test
  void theKeyIsNotShown() {
    assertFalse(
        Settings.of(NOTHING, Map.of("CONTEXTD_API_KEY", "secret")).toString().contains("secret"));
  }

  private static Settings.Given key(String key) {
    return new Settings.Given(
        Optional.empty(), Optional.of(key), Optional.empty(), Optional.empty(), Optional.empty());
  }

  @ParameterizedTest
  @ValueSource(strings = {"secret-key\n", "secret-key\r\n", " secret-key ", "\tsecret-key"})
  void whiteSpaceAroundAKeyIsLeftOut(String key) {
    assertEquals(Optional.of("secret-key"), Settings.of(key(key), Map.of()).apiKey());
    Map<String, String> env = Map.of("CONTEXTD_API_KEY", key);
    assertEquals(Optional.of("secret-key"), Settings.of(NOTHING, env).apiKey());
  }

  @ParameterizedTest
  @ValueSource(strings = {"secret\nkey", "secret key", "s\u00e9cret-key", "secret\0key"})
  void aKeyThatCannotBeSentIsRefusedAndNotShown(String key) {
    var error = assertThrows(ConfigurationException.class, () -> Settings.of(key(key), Map.of()));
    assertTrue(error.getMessage().contains("position"), error.getMessage());
    assertFalse(error.getMessage().contains("cret"), error.getMessage());
    assertFalse(key(key).toString().contains("cret"));
  }

  @Test
  void theAddressOfTheCommandLineIsReadWhereNoUrlIsGiven() {
    assertEquals(
        List.of("dns:///10.0.0.1:7070"),
        Settings.of(NOTHING, Map.of("CONTEXTD_ADDRESS", "10.0.0.1:7070")).targets());
    assertEquals(
        List.of("dns:///a:443"),
        Settings.of(NOTHING, Map.of("CONTEXTD_ADDRESS", "https://a")).targets());
    assertEquals(
        List.of("dns:///b:7070"),
        Settings.of(NOTHING, Map.of("CONTEXTD_URL", "http://b", "CONTEXTD_ADDRESS", "c:1"))
            .targets());
  }
}
