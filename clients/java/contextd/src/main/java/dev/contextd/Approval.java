package dev.contextd;

import java.util.Map;
import java.util.Optional;

/**
 * A person's decision about a call.
 *
 * @param approved whether it may run
 * @param arguments arguments in place of those of the model
 * @param reason why not, for the model
 */
public record Approval(boolean approved, Optional<Map<String, Object>> arguments, String reason) {
  /**
   * Decides about the calls of a run. Only {@link Approval#approve} lets a call run: what the
   * handler throws, and null, deny the call and are logged.
   */
  @FunctionalInterface
  public interface Handler {
    /** Decides; it may take its time. */
    Approval decide(ApprovalRequest request) throws Exception;
  }

  /** The call may run. */
  public static Approval approve() {
    return new Approval(true, Optional.empty(), "");
  }

  /** The call may run with other arguments. */
  public static Approval approve(Map<String, Object> arguments) {
    return new Approval(true, Optional.of(arguments), "");
  }

  /** The call may not run. */
  public static Approval deny(String reason) {
    return new Approval(false, Optional.empty(), reason);
  }
}
