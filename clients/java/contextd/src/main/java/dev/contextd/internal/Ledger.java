package dev.contextd.internal;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/** The calls that this process has begun. None is begun twice, whichever run asks for it. */
final class Ledger {
  /** Calls that ended are remembered for as long as so many newer ones leave room. */
  private static final int REMEMBERED = 10_000;

  /** Of a call that is closed, no more is kept than that it was begun. */
  private final Map<Key, Optional<ToolRun>> calls = new LinkedHashMap<>();

  private record Key(String sessionId, String callId) {}

  /** The call that runs or ran already, else a new one. */
  synchronized ToolRun run(String sessionId, String callId, Supplier<ToolRun> start) {
    Key key = new Key(sessionId, callId);
    Optional<ToolRun> found = calls.getOrDefault(key, Optional.empty());
    if (found.isPresent()) {
      return found.get();
    }
    if (calls.containsKey(key)) {
      return ToolRun.forgotten(callId);
    }
    ToolRun begun = start.get();
    calls.put(key, Optional.of(begun));
    dropOldest();
    return begun;
  }

  /** The call is closed: its result is not needed any more. */
  synchronized void forget(String sessionId, String callId) {
    calls.computeIfPresent(new Key(sessionId, callId), (key, call) -> Optional.empty());
  }

  private void dropOldest() {
    Iterator<Optional<ToolRun>> oldest = calls.values().iterator();
    while (calls.size() > REMEMBERED
        && oldest.next().map(call -> call.result().isDone()).orElse(true)) {
      oldest.remove();
    }
  }
}
