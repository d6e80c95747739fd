package dev.contextd;

import dev.contextd.internal.TurnShell;
import dev.contextd.v1.Failure;
import dev.contextd.v1.QueuedMessage;
import dev.contextd.v1.QueuedMessageState;
import java.util.Iterator;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A turn. Iterate for its events, or ask for its {@link #result}; both run the tools that the model
 * calls, and the turn starts with the first of these.
 *
 * <p>It goes on by itself after lost connections and restarts of the server. Each word and each
 * event comes once, and each call is run once. One thread at a time reads it. Leaving it, or
 * closing it, cancels nothing: {@link Session#resume} comes back to the turn.
 */
public final class Run implements Iterable<Event>, AutoCloseable {
  private final Session session;
  private final TurnShell shell;
  private Optional<String> unseenText = Optional.empty();

  Run(Session session, TurnShell shell) {
    this.session = session;
    this.shell = shell;
  }

  /** The events that have not been read; all iterators of a run are one. */
  @Override
  public Iterator<Event> iterator() {
    return shell;
  }

  /** The events as a stream. */
  public Stream<Event> events() {
    int traits = Spliterator.ORDERED | Spliterator.NONNULL;
    return StreamSupport.stream(Spliterators.spliteratorUnknownSize(shell, traits), false);
  }

  /** The words of the answer as they come, without the other events. */
  public Stream<String> text() {
    return events()
        .filter(Event.TextDelta.class::isInstance)
        .map(event -> ((Event.TextDelta) event).text());
  }

  /**
   * What came of the turn, when it has ended. Events that were not read are passed over. One that
   * was cancelled has a result of state {@code CANCELLED}.
   *
   * @throws TurnFailedException if the turn failed
   */
  public Result result() {
    while (shell.hasNext()) {
      shell.next();
    }
    Result result = withText(shell.result().orElseThrow(Run::left));
    Optional<Failure> failure = result.failure();
    if (failure.isPresent()) {
      throw new TurnFailedException(failure.get(), result);
    }
    return result;
  }

  private static ContextdException left() {
    return new ContextdException("the run was left before its turn ended");
  }

  /** Reads the last message where it was committed before this run took the turn up. */
  private Result withText(Result result) {
    if (shell.unseen().isEmpty()) {
      return result;
    }
    if (unseenText.isEmpty()) {
      unseenText =
          session
              .messages(options -> options.setNewestFirst(true))
              .filter(message -> message.id().equals(shell.unseen()))
              .map(Message::text)
              .findFirst()
              .or(() -> Optional.of(""));
    }
    return result.withText(unseenText.get());
  }

  /** As {@link #cancel(String)}, without a reason. */
  public void cancel() {
    cancel("");
  }

  /**
   * Cancels the turn, or withdraws its input while that waits for another turn. Before the request
   * was admitted there is nothing to cancel yet: this waits for it, at most for the client's
   * timeout, so that another thread has to read the run meanwhile.
   *
   * @param reason why, for the log and the event
   */
  public void cancel(String reason) {
    TurnShell.Standing admitted = shell.awaitAdmission();
    if (admitted.turnId().isEmpty() && !admitted.queuedId().isEmpty()) {
      QueuedMessage withdrawn = session.withdraw(admitted.queuedId());
      if (withdrawn.getState() == QueuedMessageState.QUEUED_MESSAGE_STATE_CANCELLED) {
        return;
      }
    }
    TurnShell.Standing now = shell.standing();
    // Its own turn, or the one that took the input.
    String turnId = now.turnId().isEmpty() ? now.liveTurn() : now.turnId();
    session.cancel(options -> options.setTurnId(turnId).setReason(reason));
  }

  /** The turn; empty until it is known which one is this run's. */
  public String turnId() {
    return shell.turnId();
  }

  /** The session. */
  public String sessionId() {
    return shell.sessionId();
  }

  /** The newest seq that was handled: {@code afterSeq} to go on from here. */
  public long cursor() {
    return shell.cursor();
  }

  /** How often the connection was made anew. */
  public int reconnects() {
    return shell.reconnects();
  }

  /** Leaves the turn to itself. */
  @Override
  public void close() {
    shell.close();
  }
}
