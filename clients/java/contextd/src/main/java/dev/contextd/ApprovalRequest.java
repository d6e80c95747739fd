package dev.contextd;

import dev.contextd.internal.Json;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * A call that waits for a person.
 *
 * @param sessionId the session
 * @param turnId the turn
 * @param callId the call
 * @param name the tool
 * @param argumentsJson the arguments that the model wrote
 * @param deadline when contextd closes it with an error
 */
public record ApprovalRequest(
    String sessionId,
    String turnId,
    String callId,
    String name,
    String argumentsJson,
    Optional<Instant> deadline) {
  /** The arguments; empty when they are not an object. */
  public Map<String, Object> arguments() {
    return Json.lenientObject(argumentsJson);
  }
}
