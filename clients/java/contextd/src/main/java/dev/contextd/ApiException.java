package dev.contextd;

import dev.contextd.v1.ErrorReason;
import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The server refused a request, or could not be reached.
 *
 * <p>Each gRPC code has a subclass, which is a family of reasons. Tell these apart by {@link #is},
 * never by the text.
 */
public sealed class ApiException extends ContextdException {
  private final transient Problem problem;

  private ApiException(Problem problem) {
    super(text(problem));
    this.problem = problem;
  }

  /** The exception of a problem, by its code. */
  public static ApiException of(Problem problem) {
    return switch (problem.code()) {
      case INVALID_ARGUMENT -> new InvalidArgument(problem);
      case OUT_OF_RANGE -> new OutOfRange(problem);
      case RESOURCE_EXHAUSTED -> new ResourceExhausted(problem);
      case DATA_LOSS -> new DataLoss(problem);
      case NOT_FOUND -> new NotFound(problem);
      case ALREADY_EXISTS -> new AlreadyExists(problem);
      case ABORTED -> new Aborted(problem);
      case FAILED_PRECONDITION -> new FailedPrecondition(problem);
      case UNAVAILABLE -> new Unavailable(problem);
      case DEADLINE_EXCEEDED -> new TimedOut(problem);
      case UNAUTHENTICATED -> new Unauthenticated(problem);
      case PERMISSION_DENIED -> new PermissionDenied(problem);
      case UNIMPLEMENTED -> new Unimplemented(problem);
      case INTERNAL -> new Internal(problem);
      case OK, CANCELLED, UNKNOWN -> new ApiException(problem);
    };
  }

  private static String text(Problem problem) {
    StringBuilder text = new StringBuilder();
    text.append(problem.reason().isEmpty() ? problem.code().name() : problem.reason());
    text.append(": ").append(problem.message());
    for (Problem.FieldViolation each : problem.fields()) {
      text.append("\n  ").append(each.field()).append(": ").append(each.description());
    }
    return text.toString();
  }

  /** Whether this is the reason. */
  public boolean is(ErrorReason reason) {
    return reason.name().equals("ERROR_REASON_" + problem.reason());
  }

  /** All that the status says. */
  public Problem problem() {
    return problem;
  }

  /** The gRPC code. */
  public Status.Code code() {
    return problem.code();
  }

  /** Why, such as {@code QUEUE_FULL}; empty when the answer did not come from contextd. */
  public String reason() {
    return problem.reason();
  }

  /** What the reason comes with; see the comment on the reason in {@code error.proto}. */
  public Map<String, String> metadata() {
    return problem.metadata();
  }

  /** The fields of the request that are wrong. */
  public List<Problem.FieldViolation> fields() {
    return problem.fields();
  }

  /** The limits that were met. */
  public List<Problem.QuotaViolation> quotas() {
    return problem.quotas();
  }

  /** After which the server asks to try again. */
  public Optional<Duration> retryAfter() {
    return problem.retryAfter();
  }

  /** The kind of what was not found, or is there already. */
  public String resourceType() {
    return problem.resourceType();
  }

  /** Its name. */
  public String resourceName() {
    return problem.resourceName();
  }

  /** Under which the server's log has the details of an internal error. */
  public String requestId() {
    return problem.requestId();
  }

  /** INVALID_ARGUMENT: see {@link #fields()}. */
  public static final class InvalidArgument extends ApiException {
    private InvalidArgument(Problem problem) {
      super(problem);
    }
  }

  /**
   * OUT_OF_RANGE: retention removed the events; go on from {@code metadata().get("oldest_seq")} -
   * 1.
   */
  public static final class OutOfRange extends ApiException {
    private OutOfRange(Problem problem) {
      super(problem);
    }
  }

  /**
   * RESOURCE_EXHAUSTED: a queue is full, a limit or a quota is met, or the request is too large.
   */
  public static final class ResourceExhausted extends ApiException {
    private ResourceExhausted(Problem problem) {
      super(problem);
    }
  }

  /** DATA_LOSS: the database no longer has events that were shown; read the session anew. */
  public static final class DataLoss extends ApiException {
    private DataLoss(Problem problem) {
      super(problem);
    }
  }

  /** NOT_FOUND: {@link #resourceType()} and {@link #resourceName()} say what. */
  public static final class NotFound extends ApiException {
    private NotFound(Problem problem) {
      super(problem);
    }
  }

  /** ALREADY_EXISTS: a session has the id, or was deleted a moment ago. */
  public static final class AlreadyExists extends ApiException {
    private AlreadyExists(Problem problem) {
      super(problem);
    }
  }

  /** ABORTED: something changed since it was read; read it again and repeat. */
  public static final class Aborted extends ApiException {
    private Aborted(Problem problem) {
      super(problem);
    }
  }

  /** FAILED_PRECONDITION: not in the state that the session is in. */
  public static final class FailedPrecondition extends ApiException {
    private FailedPrecondition(Problem problem) {
      super(problem);
    }
  }

  /** UNAVAILABLE: no server could be reached, or none can serve now. */
  public static sealed class Unavailable extends ApiException {
    private Unavailable(Problem problem) {
      super(problem);
    }
  }

  /**
   * The first connection to the server did not come about: the message says why, and what to do.
   */
  public static final class Unreachable extends Unavailable {
    /** With a problem that was found on this side. */
    public Unreachable(Problem problem) {
      super(problem);
    }
  }

  /** DEADLINE_EXCEEDED. */
  public static final class TimedOut extends ApiException {
    private TimedOut(Problem problem) {
      super(problem);
    }
  }

  /** UNAUTHENTICATED: the API key is missing, unknown, expired or revoked. */
  public static final class Unauthenticated extends ApiException {
    private Unauthenticated(Problem problem) {
      super(problem);
    }
  }

  /** PERMISSION_DENIED: {@code metadata().get("access")} says what would be enough. */
  public static final class PermissionDenied extends ApiException {
    private PermissionDenied(Problem problem) {
      super(problem);
    }
  }

  /** UNIMPLEMENTED: the server is older than this client, or leaves this out. */
  public static final class Unimplemented extends ApiException {
    private Unimplemented(Problem problem) {
      super(problem);
    }
  }

  /** INTERNAL: an error of the server; its log has it under {@link #requestId()}. */
  public static final class Internal extends ApiException {
    private Internal(Problem problem) {
      super(problem);
    }
  }
}
