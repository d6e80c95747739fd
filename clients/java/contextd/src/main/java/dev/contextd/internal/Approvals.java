package dev.contextd.internal;

import dev.contextd.Approval;
import dev.contextd.ApprovalRequest;

/** Asks a host about a call. Only an explicit yes lets the call run. */
final class Approvals {
  /** The reason that the model reads where the host gave no usable decision. */
  static final String NOT_DECIDED =
      "The host did not approve this call: its approval callback failed.";

  private Approvals() {}

  /** The decision; a denial for a callback that throws, or that gives no usable decision. */
  static Approval decide(Approval.Handler handler, ApprovalRequest request) {
    try {
      return checked(handler.decide(request));
    } catch (Throwable error) { // also an Error: the call is not to wait for its deadline
      Logs.failedApproval(request, error);
      return Approval.deny(NOT_DECIDED);
    }
  }

  private static Approval checked(Approval decision) {
    if (decision == null) {
      throw new IllegalArgumentException(
          "the approval callback returned null; it returns Approval.approve() or Approval.deny()");
    }
    if (!decision.approved()) {
      return Approval.deny(decision.reason() == null ? "" : decision.reason());
    }
    if (decision.arguments() == null || decision.reason() == null) {
      throw new IllegalArgumentException("the arguments or the reason of an approval are null");
    }
    decision.arguments().ifPresent(Json::write); // throws what cannot be written
    return decision;
  }
}
