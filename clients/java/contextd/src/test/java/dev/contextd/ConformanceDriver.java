package dev.contextd;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.contextd.internal.Json;
import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A host for {@code contextd conformance}: runs one turn, and writes what it sees and does as lines
 * of JSON.
 */
final class ConformanceDriver {
  record Sum(int a, int b) {}

  record Slow(int ms) {}

  record Large(int chars) {}

  record Named(String name) {}

  private final PrintStream out = new PrintStream(System.out, true, UTF_8);

  private ConformanceDriver() {}

  public static void main(String[] arguments) {
    new ConformanceDriver().run();
  }

  private void run() {
    Tool[] tools = {
      tool("add", Sum.class, given -> String.valueOf(given.a() + given.b())),
      tool(
          "slow",
          Slow.class,
          given -> {
            TimeUnit.MILLISECONDS.sleep(given.ms());
            return "done";
          }),
      tool("large", Large.class, given -> "x".repeat(given.chars())),
      tool("delete", Named.class, given -> "deleted " + given.name()).withApproval(),
    };
    try (Contextd client = Contextd.connect()) {
      Session session =
          client.session(
              System.getenv("CONTEXTD_CONFORMANCE_SESSION"), options -> options.tools(tools));
      Run run =
          session.run(
              System.getenv("CONTEXTD_CONFORMANCE_INPUT"),
              options -> options.onApproval(ConformanceDriver::decide));
      run.forEach(this::show);
      Result result = run.result();
      say("end", end(result));
    } catch (ContextdException error) {
      say("error", String.valueOf(error.getMessage()));
    }
  }

  private <A extends Record> Tool tool(String name, Class<A> type, Tool.Handler<A> handler) {
    return Tool.of(
        name,
        "For tests.",
        type,
        (given, context) -> {
          Map<String, Object> line = new LinkedHashMap<>();
          line.put("tool", name);
          line.put("call", context.callId());
          line.put("args", given);
          write(line);
          return handler.call(given);
        });
  }

  private static Approval decide(ApprovalRequest request) {
    boolean keep = String.valueOf(request.arguments().get("name")).startsWith("keep");
    return keep ? Approval.deny("it is to be kept") : Approval.approve();
  }

  private void show(Event event) {
    if (event instanceof Event.TextDelta delta) {
      say("text", delta.text());
    } else if (event instanceof Event.TextReset) {
      say("reset", true);
    }
  }

  private static Map<String, String> end(Result result) {
    return Map.of(
        "state", result.state().name(),
        "reason", result.reason(),
        "text", result.text(),
        "turn", result.turnId());
  }

  private void say(String key, Object value) {
    write(Map.of(key, value));
  }

  private synchronized void write(Map<String, ?> line) {
    out.println(Json.write(line));
  }
}
