package dev.contextd;

import com.google.protobuf.ByteString;
import dev.contextd.internal.Blobs;
import dev.contextd.internal.Host;
import dev.contextd.internal.Settings;
import dev.contextd.internal.Transport;
import dev.contextd.v1.CountTokensRequest;
import dev.contextd.v1.CreateSessionRequest;
import dev.contextd.v1.ErrorReason;
import dev.contextd.v1.GetSessionRequest;
import dev.contextd.v1.ListModelsRequest;
import dev.contextd.v1.ListSessionsRequest;
import dev.contextd.v1.Model;
import dev.contextd.v1.Part;
import dev.contextd.v1.UpdateSessionRequest;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * A client of contextd. It holds connections and threads, so programs make one and close it at
 * their end.
 */
public final class Contextd implements AutoCloseable {
  static final int PAGE = 100;
  private final Host host;

  private Contextd(Host host) {
    this.host = host;
  }

  /** Connects as the {@code CONTEXTD_*} variables say; without them to http://127.0.0.1:7070. */
  public static Contextd connect() {
    return builder().connect();
  }

  /**
   * Connects to {@code http://host:7070} (plain text), {@code https://host} (TLS), several hosts by
   * comma, or {@code dns:///name:7070}; for the rest as the {@code CONTEXTD_*} variables say.
   */
  public static Contextd connect(String url) {
    return builder().url(url).connect();
  }

  /** Settings of a client. */
  public static Builder builder() {
    return new Builder(System.getenv());
  }

  /** Settings of a client. What is not said here, the {@code CONTEXTD_*} variables do. */
  public static final class Builder {
    private final Map<String, String> env;
    private Optional<String> url = Optional.empty();
    private Optional<String> apiKey = Optional.empty();
    private Optional<Path> caFile = Optional.empty();
    private Optional<Path> certFile = Optional.empty();
    private Optional<Path> keyFile = Optional.empty();
    private Duration timeout = Duration.ofMinutes(1);
    private Duration reconnectFor = Duration.ofMinutes(5);
    private int maxParallelTools = 32;

    Builder(Map<String, String> env) {
      this.env = env;
    }

    /** The address. Default: {@code CONTEXTD_URL}, else http://127.0.0.1:7070. */
    public Builder url(String url) {
      this.url = Optional.of(url);
      return this;
    }

    /** The API key. Default: {@code CONTEXTD_API_KEY}. */
    public Builder apiKey(String apiKey) {
      this.apiKey = Optional.of(apiKey);
      return this;
    }

    /**
     * Certificate authorities (PEM) of the server. Default: {@code CONTEXTD_CA_FILE}, else those of
     * Java.
     */
    public Builder caFile(Path caFile) {
      this.caFile = Optional.of(caFile);
      return this;
    }

    /** A client certificate (PEM). Default: {@code CONTEXTD_CERT_FILE}. */
    public Builder certFile(Path certFile) {
      this.certFile = Optional.of(certFile);
      return this;
    }

    /** Its private key (PEM, PKCS #8). Default: {@code CONTEXTD_KEY_FILE}. */
    public Builder keyFile(Path keyFile) {
      this.keyFile = Optional.of(keyFile);
      return this;
    }

    /** For how long a call is tried; runs of turns go by {@link #reconnectFor}. Default: 60 s. */
    public Builder timeout(Duration timeout) {
      this.timeout = timeout;
      return this;
    }

    /** The time without any server after which a run or a watch is given up. Default: 5 min. */
    public Builder reconnectFor(Duration reconnectFor) {
      this.reconnectFor = reconnectFor;
      return this;
    }

    /** Tools that run at the same time, each in a thread. Default: 32. */
    public Builder maxParallelTools(int maxParallelTools) {
      this.maxParallelTools = maxParallelTools;
      return this;
    }

    /** Makes the client. Connections are opened when they are needed. */
    public Contextd connect() {
      Settings settings =
          Settings.of(new Settings.Given(url, apiKey, caFile, certFile, keyFile), env);
      return new Contextd(
          new Host(new Transport(settings, timeout), reconnectFor, maxParallelTools));
    }
  }

  /** Creates a session, with an id of the server's. */
  public Session session() {
    return session(options -> {});
  }

  /** Creates a session, with an id of the server's. */
  public Session session(Consumer<SessionOptions> options) {
    SessionOptions given = SessionOptions.of(options);
    return new Session(host, create("", given), given.tools());
  }

  /** Opens the session with this id of yours, or creates it. */
  public Session session(String id) {
    return session(id, options -> {});
  }

  /**
   * Opens the session with this id of yours, or creates it. What is given is in force afterwards.
   */
  public Session session(String id, Consumer<SessionOptions> options) {
    SessionOptions given = SessionOptions.of(options);
    return new Session(host, open(id, given), given.tools());
  }

  private dev.contextd.v1.Session open(String id, SessionOptions options) {
    Transport.Call<dev.contextd.v1.Session> opening = opening(id, options);
    try {
      return host.transport().call(opening);
    } catch (ApiException.NotFound error) {
      if (!error.is(ErrorReason.ERROR_REASON_SESSION_NOT_FOUND)) {
        throw error;
      }
    }
    try {
      return create(id, options);
    } catch (ApiException.AlreadyExists anotherHostWasFaster) {
      return host.transport().call(opening);
    }
  }

  private static Transport.Call<dev.contextd.v1.Session> opening(
      String id, SessionOptions options) {
    dev.contextd.v1.Session config = options.config();
    if (config.getSerializedSize() == 0) {
      GetSessionRequest request = GetSessionRequest.newBuilder().setSessionId(id).build();
      return stubs -> stubs.sessions().getSession(request).getSession();
    }
    UpdateSessionRequest request =
        UpdateSessionRequest.newBuilder()
            .setSession(config.toBuilder().setSessionId(id))
            .setRequestId(newId())
            .build();
    return stubs -> stubs.sessions().updateSession(request).getSession();
  }

  private dev.contextd.v1.Session create(String id, SessionOptions options) {
    CreateSessionRequest request =
        CreateSessionRequest.newBuilder()
            .setSession(options.config().toBuilder().setSessionId(id))
            .setRequestId(newId())
            .build();
    return host.transport().call(stubs -> stubs.sessions().createSession(request).getSession());
  }

  /** All sessions, the last updated first; read page by page. */
  public Stream<dev.contextd.v1.Session> sessions() {
    return host.transport()
        .items(
            token -> {
              var request =
                  ListSessionsRequest.newBuilder().setPageSize(PAGE).setPageToken(token).build();
              return stubs -> {
                var answer = stubs.sessions().listSessions(request);
                return new Transport.Page<>(answer.getSessionsList(), answer.getNextPageToken());
              };
            });
  }

  /** The models that sessions can use. */
  public Stream<Model> models() {
    return models("");
  }

  /** The models of a provider. */
  public Stream<Model> models(String provider) {
    return host.transport()
        .items(
            token -> {
              var request =
                  ListModelsRequest.newBuilder()
                      .setPageSize(PAGE)
                      .setPageToken(token)
                      .setProvider(provider)
                      .build();
              return stubs -> {
                var answer = stubs.models().listModels(request);
                return new Transport.Page<>(answer.getModelsList(), answer.getNextPageToken());
              };
            });
  }

  /** Tokens of a text for a model. */
  public int countTokens(String model, String text) {
    return countTokens(request -> request.setModel(model).addMessages(Content.input(text)));
  }

  /** Tokens of a prompt. */
  public int countTokens(Consumer<CountTokensRequest.Builder> options) {
    CountTokensRequest.Builder request = CountTokensRequest.newBuilder();
    options.accept(request);
    return host.transport()
        .call(stubs -> stubs.context().countTokens(request.build()).getTotal().getTokens());
  }

  /** Stores content that is too large for a message; the part that it gives goes into the input. */
  public Part putBlob(String mediaType, byte[] data) {
    return host.transport()
        .call(stubs -> Content.blob(mediaType, Blobs.put(stubs, mediaType, data)));
  }

  /** Reads stored content, such as the whole output of a tool that was cut. */
  public ByteString getBlob(String blobId) {
    return host.transport().call(stubs -> Blobs.get(stubs, blobId));
  }

  /** Closes the connections and interrupts tools. Turns that run go on. */
  @Override
  public void close() {
    host.close();
  }

  static String newId() {
    return UUID.randomUUID().toString();
  }
}
