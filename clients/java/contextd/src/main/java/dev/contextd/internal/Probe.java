package dev.contextd.internal;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import dev.contextd.ApiException;
import dev.contextd.Problem;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertPathBuilderException;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateExpiredException;
import java.security.cert.CertificateFactory;
import java.security.cert.CertificateNotYetValidException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/**
 * Why a server cannot be reached: asked of plain sockets, because a gRPC channel that does not
 * connect says little.
 */
final class Probe {
  /**
   * The first connection comes about within this time, or the call fails. The last second is for
   * finding the cause.
   */
  static final Duration CONTACT = Duration.ofSeconds(5);

  static final Duration TIME = Duration.ofSeconds(1);

  /** Hosts of one URL that are asked. */
  private static final int MAX_HOSTS = 3;

  /** The beginning of an HTTP/2 connection: the preface and empty SETTINGS. */
  private static final byte[] PREFACE =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0".getBytes(ISO_8859_1);

  private static final char SETTINGS_FRAME = 4;

  private Probe() {}

  private record Finding(String cause, String step) {}

  /** Nothing is wrong: gRPC can talk to this server, which is slow. */
  private static final Finding NOTHING = new Finding("", "");

  /**
   * The exception for a server that was not reached; empty for one that is there and slow. Takes at
   * most {@link #TIME}.
   */
  static Optional<ApiException.Unreachable> unreachable(Settings settings) {
    List<String> hosts =
        settings.targets().stream()
            .limit(MAX_HOSTS)
            .map(target -> target.replace("dns:///", ""))
            .toList();
    List<CompletableFuture<Finding>> asked = new ArrayList<>();
    for (String host : hosts) {
      CompletableFuture<Finding> found = new CompletableFuture<>();
      asked.add(found);
      Host.named("contextd-probe").newThread(() -> found.complete(probe(host, settings))).start();
    }
    long ends = System.nanoTime() + TIME.toNanos();
    List<Finding> findings = new ArrayList<>();
    for (int i = 0; i < hosts.size(); i++) {
      findings.add(await(asked.get(i), hosts.get(i), ends - System.nanoTime()));
    }
    if (findings.contains(NOTHING)) {
      return Optional.empty();
    }
    String causes =
        findings.stream().map(Finding::cause).distinct().collect(Collectors.joining("; "));
    String text =
        "no contextd server was reached at %s: %s. %s"
            .formatted(settings.url(), causes, findings.get(0).step());
    return Optional.of(new ApiException.Unreachable(Problem.of(Status.Code.UNAVAILABLE, text)));
  }

  private static Finding await(CompletableFuture<Finding> found, String host, long nanos) {
    try {
      return found.get(Math.max(nanos, 0), TimeUnit.NANOSECONDS);
    } catch (TimeoutException | ExecutionException late) {
      return noAnswer(host);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      return noAnswer(host);
    }
  }

  private static Finding noAnswer(String host) {
    return new Finding(
        host + " does not answer",
        "Check the address in the URL (CONTEXTD_URL), and firewalls and network policies on the way.");
  }

  /** Connects to {@code host:port} and finds out what is there. */
  private static Finding probe(String host, Settings settings) {
    try (Socket plain = connect(host)) {
      return settings.tls() ? overTls(host, plain, settings) : plain(host, plain);
    } catch (UnknownHostException unknown) {
      return new Finding(
          "the name " + name(host) + " cannot be resolved",
          "Check the host name in the URL (CONTEXTD_URL).");
    } catch (ConnectException refused) {
      return new Finding(
          host + " refuses the connection (connection refused)",
          "Start the server (`contextd serve`), or set CONTEXTD_URL to the address of a running one.");
    } catch (SocketTimeoutException late) {
      return noAnswer(host);
    } catch (IOException error) {
      return new Finding(
          host + ": " + error.getMessage(), "Check the address in the URL (CONTEXTD_URL).");
    }
  }

  private static Finding plain(String host, Socket plain) throws IOException {
    String answered;
    try {
      answered = firstBytes(plain);
    } catch (SocketTimeoutException late) {
      throw late;
    } catch (IOException reset) {
      answered = "";
    }
    if (answered.startsWith("\u0015\u0003") || (answered.isEmpty() && speaksTls(host))) {
      return new Finding(
          host + " expects TLS, and the URL is plain text",
          "Use https:// in the URL (CONTEXTD_URL).");
    }
    return isHttp2(answered) ? NOTHING : otherProtocol(host);
  }

  private static Finding overTls(String host, Socket plain, Settings settings) {
    try (SSLSocket secure = handshake(host, plain, settings.caFile(), true)) {
      String answered = firstBytes(secure);
      return isHttp2(answered) ? NOTHING : otherProtocol(host);
    } catch (SocketTimeoutException late) {
      return noAnswer(host);
    } catch (IOException | GeneralSecurityException error) {
      return ofCertificate(host, error).orElseGet(() -> ofTls(host, error));
    }
  }

  private static Finding ofTls(String host, Exception error) {
    String message = String.valueOf(error.getMessage());
    if (message.toLowerCase(Locale.ROOT).contains("certificate")) {
      return new Finding(
          host + " requires a client certificate that it accepts (" + message + ")",
          "Set CONTEXTD_CERT_FILE and CONTEXTD_KEY_FILE (certFile and keyFile).");
    }
    if (speaksPlain(host)) {
      return new Finding(
          host + " does not speak TLS, and the URL begins with https://",
          "Use http:// in the URL (CONTEXTD_URL), or set CONTEXTD_TLS_CERT and CONTEXTD_TLS_KEY at the server.");
    }
    return new Finding(
        "TLS with " + host + " failed: " + message,
        "Check the server's certificate and its TLS settings.");
  }

  private static Optional<Finding> ofCertificate(String host, Throwable error) {
    for (Throwable each = error; each != null; each = each.getCause()) {
      if (each instanceof CertPathBuilderException) {
        return Optional.of(
            new Finding(
                "the certificate of " + host + " is signed by an unknown authority",
                "Set CONTEXTD_CA_FILE (caFile) to the authority's certificate (PEM)."));
      }
      if (each instanceof CertificateExpiredException
          || each instanceof CertificateNotYetValidException) {
        return Optional.of(
            new Finding(
                "the certificate of " + host + " is not valid: " + each.getMessage(),
                "Renew the server's certificate."));
      }
      if (each instanceof CertificateException
          && each.getCause() == null
          && String.valueOf(each.getMessage()).startsWith("No ")) {
        return Optional.of(
            new Finding(
                "the certificate of " + host + " is for another host, not for " + name(host),
                "Use a host name of the certificate in the URL (CONTEXTD_URL), or give the server one for this name."));
      }
    }
    return Optional.empty();
  }

  private static Finding otherProtocol(String host) {
    return new Finding(
        host + " is not a gRPC server (no HTTP/2)",
        "Check the port in the URL (CONTEXTD_URL): contextd's own is 7070, not that of metrics and health.");
  }

  private static Socket connect(String host) throws IOException {
    Socket socket = new Socket();
    InetSocketAddress address = new InetSocketAddress(name(host), port(host));
    if (address.isUnresolved()) {
      throw new UnknownHostException(name(host));
    }
    socket.connect(address, (int) TIME.toMillis());
    socket.setSoTimeout((int) TIME.toMillis());
    return socket;
  }

  private static SSLSocket handshake(String host, Socket plain, Optional<Path> ca, boolean verify)
      throws IOException, GeneralSecurityException {
    SSLContext context = SSLContext.getInstance("TLS");
    TrustManagerFactory trust =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(ca.isPresent() ? authorities(ca.get()) : null);
    context.init(null, trust.getTrustManagers(), null);
    SSLSocket secure =
        (SSLSocket) context.getSocketFactory().createSocket(plain, name(host), port(host), true);
    SSLParameters parameters = secure.getSSLParameters();
    parameters.setApplicationProtocols(new String[] {"h2"});
    if (verify) {
      parameters.setEndpointIdentificationAlgorithm("HTTPS");
    }
    secure.setSSLParameters(parameters);
    secure.startHandshake();
    return secure;
  }

  private static KeyStore authorities(Path file) throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (InputStream pem = Files.newInputStream(file)) {
      int number = 0;
      for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
        store.setCertificateEntry(String.valueOf(number++), each);
      }
    }
    return store;
  }

  /** What comes after the preface: nothing, where the server closes. */
  private static String firstBytes(Socket socket) throws IOException {
    socket.getOutputStream().write(PREFACE);
    socket.getOutputStream().flush();
    byte[] answered = new byte[9];
    int read = socket.getInputStream().read(answered);
    return read <= 0 ? "" : new String(answered, 0, read, ISO_8859_1);
  }

  private static boolean isHttp2(String answered) {
    return answered.length() > 3
        && answered.charAt(3) == SETTINGS_FRAME
        && !answered.startsWith("HTTP");
  }

  private static boolean speaksPlain(String host) {
    try (Socket plain = connect(host)) {
      String answered = firstBytes(plain);
      return isHttp2(answered) || answered.startsWith("HTTP");
    } catch (IOException error) {
      return false;
    }
  }

  /** A certificate that is not trusted is one of TLS all the same. */
  private static boolean speaksTls(String host) {
    try (Socket plain = connect(host);
        SSLSocket secure = handshake(host, plain, Optional.empty(), false)) {
      return secure.isConnected();
    } catch (SSLException refused) {
      return ofCertificate(host, refused).isPresent();
    } catch (IOException | GeneralSecurityException error) {
      return false;
    }
  }

  private static String name(String host) {
    return host.substring(0, host.lastIndexOf(':')).replaceAll("^\\[|\\]$", "");
  }

  private static int port(String host) {
    return Integer.parseInt(host.substring(host.lastIndexOf(':') + 1));
  }
}
