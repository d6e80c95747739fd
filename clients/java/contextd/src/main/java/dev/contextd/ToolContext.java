package dev.contextd;

import java.time.Instant;
import java.util.Optional;

/**
 * What a tool may know of its call.
 *
 * @param sessionId the session
 * @param turnId the turn
 * @param callId the call: a good idempotency key, as a call that was begun by a host that died is
 *     run again by the next one
 * @param toolName the tool
 * @param deadline when contextd gives the call up
 * @param argumentsEdited whether a person changed the arguments when approving
 */
public record ToolContext(
    String sessionId,
    String turnId,
    String callId,
    String toolName,
    Optional<Instant> deadline,
    boolean argumentsEdited) {}
