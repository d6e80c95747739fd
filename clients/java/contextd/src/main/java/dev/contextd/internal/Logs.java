package dev.contextd.internal;

import dev.contextd.ApprovalRequest;
import dev.contextd.Problem;
import dev.contextd.ToolContext;
import dev.contextd.ToolException;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;

/** What this package logs, under the logger {@code dev.contextd}: what a developer has to see. */
final class Logs {
  private static final System.Logger LOG = System.getLogger("dev.contextd");

  private Logs() {}

  /**
   * The call of a tool, which logs what it throws. {@link ToolException} is for the model alone.
   */
  static Callable<Object> logging(Callable<Object> call, ToolContext context) {
    return () -> {
      try {
        Object output = call.call();
        if (output instanceof CompletionStage<?> later) {
          var unused =
              later.whenComplete(
                  (result, error) -> {
                    if (error != null) {
                      failedTool(context, causeOf(error));
                    }
                  });
        }
        return output;
      } catch (Throwable error) {
        failedTool(context, error);
        throw error;
      }
    };
  }

  private static Throwable causeOf(Throwable error) {
    return error instanceof CompletionException && error.getCause() != null
        ? error.getCause()
        : error;
  }

  private static void failedTool(ToolContext context, Throwable error) {
    boolean expected = error instanceof ToolException || error instanceof CancellationException;
    if (!expected) {
      String text =
          "tool %s failed (call %s, session %s)"
              .formatted(context.toolName(), context.callId(), context.sessionId());
      LOG.log(System.Logger.Level.ERROR, text, error);
    }
  }

  /** An approval callback threw, or gave no decision. */
  static void failedApproval(ApprovalRequest request, Throwable error) {
    String text =
        "call %s of tool %s was denied: the approval callback failed (session %s)"
            .formatted(request.callId(), request.name(), request.sessionId());
    LOG.log(System.Logger.Level.ERROR, text, error);
  }

  /** Whether the server answers: the first failure is logged, and the first answer after it. */
  static final class Outage {
    private final String url;
    private final AtomicBoolean lasts = new AtomicBoolean();

    Outage(String url) {
      this.url = url;
    }

    /** A call or a stream failed, and is tried again for at most so long. */
    void failed(Problem problem, Duration left) {
      boolean passing = Statuses.mayPass(problem) || Statuses.isBrokenTransport(problem);
      if (passing && lasts.compareAndSet(false, true)) {
        String cause = problem.reason().isEmpty() ? problem.message() : problem.reason();
        LOG.log(
            System.Logger.Level.WARNING,
            "contextd at %s does not answer (%s); trying again for up to %d s"
                .formatted(url, cause, left.toSeconds()));
      }
    }

    /** It answered. */
    void answered() {
      if (lasts.compareAndSet(true, false)) {
        LOG.log(System.Logger.Level.INFO, "contextd at " + url + " answers again");
      }
    }
  }
}
