package dev.contextd;

import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What a gRPC status says, read from its details.
 *
 * @param code the gRPC code
 * @param message a sentence for people
 * @param reason a name of {@code ErrorReason} without its prefix; empty when it is not from
 *     contextd
 * @param metadata what the reason comes with
 * @param fields the fields of the request that are wrong
 * @param quotas the limits that were met
 * @param retryAfter how long the server asks to wait
 * @param resourceType the kind of what was not found, or is there already
 * @param resourceName its name
 * @param requestId under which the server's log has the details of an internal error
 */
public record Problem(
    Status.Code code,
    String message,
    String reason,
    Map<String, String> metadata,
    List<FieldViolation> fields,
    List<QuotaViolation> quotas,
    Optional<Duration> retryAfter,
    String resourceType,
    String resourceName,
    String requestId) {

  /**
   * One field of a request that is wrong.
   *
   * @param field its path
   * @param reason a name of {@code FieldReason} without its prefix
   * @param description a sentence
   */
  public record FieldViolation(String field, String reason, String description) {}

  /**
   * One limit that was met.
   *
   * @param subject whose
   * @param description a sentence
   */
  public record QuotaViolation(String subject, String description) {}

  /** A problem without details. */
  public static Problem of(Status.Code code, String message) {
    return of(code, message, "", Map.of());
  }

  /** A problem with a reason. */
  public static Problem of(
      Status.Code code, String message, String reason, Map<String, String> metadata) {
    return new Problem(
        code,
        message,
        reason,
        Map.copyOf(metadata),
        List.of(),
        List.of(),
        Optional.empty(),
        "",
        "",
        "");
  }
}
