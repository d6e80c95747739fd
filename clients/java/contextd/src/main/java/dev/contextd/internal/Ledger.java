package dev.contextd.internal;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;

/** The calls that this process has begun. None is begun twice, whichever run asks for it. */
final class Ledger {
  /** Calls that ended are remembered for as long as so many newer ones leave room. */
  private static final int REMEMBERED = 10_000;

  private final Map<Key, ToolRun> calls = new LinkedHashMap<>();

  private record Key(String sessionId, String callId) {}

  /** The call that runs or ran already, else a new one. */
  synchronized ToolRun run(String sessionId, String callId, Supplier<ToolRun> start) {
    Key key = new Key(sessionId, callId);
    ToolRun found = calls.get(key);
    if (found == null) {
      found = start.get();
      calls.put(key, found);
      forget();
    }
    return found;
  }

  private void forget() {
    Iterator<ToolRun> oldest = calls.values().iterator();
    while (calls.size() > REMEMBERED && oldest.next().result().isDone()) {
      oldest.remove();
    }
  }
}
