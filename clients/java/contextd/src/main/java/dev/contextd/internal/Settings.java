package dev.contextd.internal;

import dev.contextd.ConfigurationException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Where the server is and how to reach it, from arguments and {@code CONTEXTD_*} variables.
 *
 * @param url the address as it was given
 * @param targets a gRPC target for each host that the URL names
 * @param tls whether TLS is used
 * @param apiKey the API key
 * @param caFile certificate authorities of the server
 * @param certFile a client certificate
 * @param keyFile its private key
 */
public record Settings(
    String url,
    List<String> targets,
    boolean tls,
    Optional<String> apiKey,
    Optional<Path> caFile,
    Optional<Path> certFile,
    Optional<Path> keyFile) {
  private static final String DEFAULT_URL = "http://127.0.0.1:7070";
  private static final int PLAIN_PORT = 7070;
  private static final int TLS_PORT = 443;

  /**
   * What was given, by the caller.
   *
   * @param url the address
   * @param apiKey the API key
   * @param caFile certificate authorities
   * @param certFile a client certificate
   * @param keyFile its private key
   */
  public record Given(
      Optional<String> url,
      Optional<String> apiKey,
      Optional<Path> caFile,
      Optional<Path> certFile,
      Optional<Path> keyFile) {

    /** Leaves the key out. */
    @Override
    public String toString() {
      return "Given[url=" + url + "]";
    }
  }

  /** What an argument does not say, the environment does. Empty variables count as unset. */
  public static Settings of(Given given, Map<String, String> env) {
    String url =
        given
            .url()
            .or(() -> variable(env, "CONTEXTD_URL"))
            .or(() -> variable(env, "CONTEXTD_ADDRESS").map(Settings::withScheme))
            .orElse(DEFAULT_URL);
    boolean tls = isTls(url);
    Settings found =
        new Settings(
            url,
            targets(url),
            tls,
            given
                .apiKey()
                .flatMap(Settings::key)
                .or(() -> variable(env, "CONTEXTD_API_KEY").flatMap(Settings::key)),
            given.caFile().or(() -> variable(env, "CONTEXTD_CA_FILE").map(Path::of)),
            given.certFile().or(() -> variable(env, "CONTEXTD_CERT_FILE").map(Path::of)),
            given.keyFile().or(() -> variable(env, "CONTEXTD_KEY_FILE").map(Path::of)));
    if (found.certFile.isPresent() != found.keyFile.isPresent()) {
      throw new ConfigurationException(
          "a client certificate takes both certFile (CONTEXTD_CERT_FILE) and keyFile (CONTEXTD_KEY_FILE)");
    }
    if (!tls && (given.caFile().isPresent() || given.certFile().isPresent())) {
      throw new ConfigurationException(url + " is plain text; certificates take an https:// URL");
    }
    return found;
  }

  /**
   * A key without the white space around it, such as the newline at the end of a file. No message
   * shows a key.
   */
  private static Optional<String> key(String text) {
    String key = text.strip();
    for (int i = 0; i < key.length(); i++) {
      if (key.charAt(i) < '!' || key.charAt(i) > '~') {
        throw new ConfigurationException(
            "the API key has a character at position %d of %d that no key has: a space, a control character, or one that is not ASCII"
                .formatted(i + 1, key.length()));
      }
    }
    return Optional.of(key).filter(found -> !found.isEmpty());
  }

  /**
   * {@code CONTEXTD_ADDRESS}, which the command line also reads: its plain-text form has no scheme.
   */
  private static String withScheme(String address) {
    return address.contains("://") || address.startsWith("dns:") ? address : "http://" + address;
  }

  private static Optional<String> variable(Map<String, String> env, String name) {
    return Optional.ofNullable(env.get(name)).filter(value -> !value.isEmpty());
  }

  private static boolean isTls(String url) {
    return url.startsWith("https://") || url.startsWith("https+dns:///");
  }

  /**
   * The targets of a URL: {@code http://host:7070}, {@code https://host}, several hosts by comma,
   * or {@code dns:///name:7070} (plain text) and {@code https+dns:///name:443}, whose addresses are
   * used in turn.
   */
  static List<String> targets(String url) {
    int port = isTls(url) ? TLS_PORT : PLAIN_PORT;
    for (String prefix : List.of("dns:///", "http+dns:///", "https+dns:///")) {
      if (url.startsWith(prefix)) {
        return List.of("dns:///" + withPort(url.substring(prefix.length()), url, port));
      }
    }
    String scheme = isTls(url) ? "https://" : "http://";
    if (!url.startsWith(scheme)) {
      throw new ConfigurationException(
          "\"" + url + "\" is not a URL of a server: it begins with http://, https:// or dns:///");
    }
    List<String> found = new ArrayList<>();
    for (String host : url.substring(scheme.length()).split(",", -1)) {
      String bare = host.strip();
      String name = bare.startsWith(scheme) ? bare.substring(scheme.length()) : bare;
      found.add("dns:///" + withPort(name, url, port));
    }
    return List.copyOf(found);
  }

  /** {@code host:port}; refuses paths, users and whatever else does not belong there. */
  private static String withPort(String host, String url, int port) {
    URI parsed;
    try {
      parsed = new URI("http://" + host);
    } catch (URISyntaxException error) {
      throw new ConfigurationException("\"" + url + "\": " + error.getMessage(), error);
    }
    boolean bare =
        parsed.getHost() != null
            && parsed.getRawUserInfo() == null
            && parsed.getRawQuery() == null
            && parsed.getRawFragment() == null
            && (parsed.getRawPath().isEmpty() || parsed.getRawPath().equals("/"));
    if (!bare) {
      throw new ConfigurationException("\"" + url + "\" names a host and a port, nothing else");
    }
    return parsed.getHost() + ":" + (parsed.getPort() < 0 ? port : parsed.getPort());
  }

  /** Leaves the key out. */
  @Override
  public String toString() {
    return "Settings[targets=" + targets + ", tls=" + tls + "]";
  }
}
