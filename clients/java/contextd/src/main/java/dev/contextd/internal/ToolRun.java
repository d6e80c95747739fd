package dev.contextd.internal;

import dev.contextd.v1.ToolResult;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;

/** A call that was begun: its result to come, and how to stop it. */
final class ToolRun {
  private final String callId;
  private final CompletableFuture<ToolResult> result = new CompletableFuture<>();
  private final CompletableFuture<Object> stage = new CompletableFuture<>();
  private final Future<?> thread;

  /** Begins. {@code bound} gives the call, or throws what is wrong with its arguments. */
  ToolRun(String callId, Callable<Callable<Object>> bound, ExecutorService threads) {
    this.callId = callId;
    this.thread = threads.submit(() -> run(bound));
  }

  private ToolRun(ToolResult known) {
    this.callId = known.getCallId();
    this.thread = CompletableFuture.completedFuture(null);
    result.complete(known);
  }

  /** A call that is closed, should the server ask for it again. */
  static ToolRun forgotten(String callId) {
    String text = "this call was answered before, and its result is not kept";
    return new ToolRun(ToolResults.failure(callId, text));
  }

  /** The result, which always comes. */
  CompletableFuture<ToolResult> result() {
    return result;
  }

  /** Interrupts it. Its result says so, unless it is there already. */
  void stop() {
    if (result.complete(ToolResults.failure(callId, "the call was given up"))) {
      thread.cancel(true);
      stage.cancel(true);
    }
  }

  private void run(Callable<Callable<Object>> bound) {
    try {
      Object output = bound.call().call();
      if (output instanceof CompletionStage<?> later) {
        follow(later);
      } else {
        result.complete(ToolResults.success(callId, output));
      }
    } catch (Throwable error) { // the model is told whatever it was
      result.complete(ToolResults.failure(callId, error));
    }
  }

  private void follow(CompletionStage<?> later) {
    var unused =
        stage.whenComplete(
            (never, stopped) -> {
              if (stopped != null) {
                later.toCompletableFuture().cancel(true);
              }
            });
    var unusedToo =
        later.whenComplete(
            (output, error) -> {
              try {
                result.complete(
                    error == null
                        ? ToolResults.success(callId, output)
                        : ToolResults.failure(callId, cause(error)));
              } catch (RuntimeException unwritable) {
                result.complete(ToolResults.failure(callId, unwritable));
              }
            });
  }

  private static Throwable cause(Throwable error) {
    return error instanceof CompletionException && error.getCause() != null
        ? error.getCause()
        : error;
  }
}
