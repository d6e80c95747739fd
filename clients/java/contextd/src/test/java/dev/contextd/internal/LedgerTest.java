package dev.contextd.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;

import dev.contextd.v1.ToolOutcome;
import dev.contextd.v1.ToolResult;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class LedgerTest {
  private final ExecutorService threads = Executors.newSingleThreadExecutor();
  private final AtomicInteger ran = new AtomicInteger();
  private final Ledger ledger = new Ledger();

  @AfterEach
  void stop() {
    threads.shutdown();
  }

  private ToolRun run(String callId) {
    return ledger.run("s", callId, () -> new ToolRun(callId, () -> this::work, threads));
  }

  private Object work() {
    return "done " + ran.incrementAndGet();
  }

  @Test
  void aCallIsRunOnce() {
    assertSame(run("c"), run("c"));
  }

  @Test
  void aCallThatIsClosedLeavesOnlyItsKey() {
    ToolRun first = run("c");
    assertEquals("done 1", first.result().join().getParts(0).getText());
    ledger.forget("s", "c");
    ledger.forget("s", "of another host");
    assertNotSame(first, run("c"));
    ToolResult again = run("c").result().join();
    assertEquals(ToolOutcome.TOOL_OUTCOME_ERROR, again.getOutcome());
    assertEquals(1, ran.get());
    assertEquals("done 2", run("of another host").result().join().getParts(0).getText());
  }
}
