package dev.contextd.internal;

import dev.contextd.ApprovalRequest;
import dev.contextd.Event;
import dev.contextd.Result;
import dev.contextd.Tool;
import dev.contextd.v1.PendingCall;
import dev.contextd.v1.SubmitToolResultsRequest;
import java.util.Optional;

/**
 * What a stream asks its shell to do. The shell does it and reports back by the method that is
 * named here.
 */
public sealed interface Action {
  /** Has the shell do it. */
  void perform(Shell shell);

  /** Does what streams ask for: a method for each kind of action. */
  interface Shell {
    /** Opens a stream. */
    void open(Open action);

    /** Gives a stream up. */
    void close(Close action);

    /** Runs a tool. */
    void runTool(RunTool action);

    /** Stops a tool. */
    void dropTool(DropTool action);

    /** Forgets the result of a tool. */
    void forgetCall(ForgetCall action);

    /** Asks for a decision. */
    void askApproval(AskApproval action);

    /** Sends answers. */
    void submit(Submit action);

    /** Gives an event to the caller. */
    void emit(Emit action);

    /** Ends. */
    void finish(Finish action);

    /** Ends with an exception. */
    void fail(Fail action);
  }

  /**
   * Open a stream; report its events with {@code onEvent} and its end with {@code onEnd}, both with
   * this number.
   */
  record Open(int connection, StreamRequest request) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.open(this);
    }
  }

  /** Give that stream up: it has been silent for too long, or is not needed any more. */
  record Close(int connection) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.close(this);
    }
  }

  /** Run a tool and report with {@code onToolResult}. */
  record RunTool(Tool tool, String turnId, PendingCall pending) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.runTool(this);
    }
  }

  /** The result of this call is not wanted any more: stop it if that is possible. */
  record DropTool(String callId) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.dropTool(this);
    }
  }

  /** This call is closed: its result is not needed any more. */
  record ForgetCall(String callId) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.forgetCall(this);
    }
  }

  /** Ask the host's callback and report with {@code onApproval}. */
  record AskApproval(ApprovalRequest request) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.askApproval(this);
    }
  }

  /**
   * Send answers and report with {@code onSubmitted} or {@code onSubmitFailed}, with this number.
   */
  record Submit(int number, SubmitToolResultsRequest request) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.submit(this);
    }
  }

  /** Give an event to the caller. */
  record Emit(Event event) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.emit(this);
    }
  }

  /**
   * It is over. There is no result where the stream is not about one turn. {@code unseen} is the
   * message whose words the result is to have, where it came before this stream began.
   */
  record Finish(Optional<Result> result, String unseen) implements Action {
    Finish(Optional<Result> result) {
      this(result, "");
    }

    @Override
    public void perform(Shell shell) {
      shell.finish(this);
    }
  }

  /** It is over: throw this. */
  record Fail(Exception error) implements Action {
    @Override
    public void perform(Shell shell) {
      shell.fail(this);
    }
  }
}
