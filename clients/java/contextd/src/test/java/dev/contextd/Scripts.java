package dev.contextd;

import dev.contextd.internal.Json;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The models of servers for tests. */
public final class Scripts {
  private static final String WORDS =
      "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen";

  /** What the model says before it calls a tool, step by step, and at its end. */
  static final List<String> SAID =
      List.of(
          "Step one begins here.",
          "Step two goes on, with two calls.",
          "Step three is the last one.",
          "It is <d>. " + WORDS);

  /** A turn of three steps with tools. */
  static final String STEPS =
      script(
          step(Map.of("call", 0), slowly(SAID.get(0)), call("lookup", Map.of("key", "a"))),
          step(
              Map.of("call", 1),
              slowly(SAID.get(1)),
              call("lookup", Map.of("key", "b")),
              call("slow_lookup", Map.of("key", "c"))),
          step(Map.of("call", 2), slowly(SAID.get(2)), call("slow_lookup", Map.of("key", "d"))),
          step(Map.of(), slowly("It is {{result:slow_lookup}}. " + WORDS)));

  /** The models of the server that tests share. */
  static final Map<String, String> ALL = all();

  private Scripts() {}

  private static Map<String, String> all() {
    Map<String, String> all = new HashMap<>();
    all.put("steps", STEPS);
    all.put("echo", script(step(Map.of(), text("You said: {{user}}"))));
    all.put("delete", oneTool("delete_file", Map.of("path", "/tmp/x")));
    all.put("sleep", oneTool("sleep", Map.of("seconds", 30)));
    all.put("one", oneTool("work", Map.of()));
    all.put(
        "parallel",
        script(
            step(
                Map.of("call", 0),
                call("meet", Map.of("who", "a")),
                call("meet", Map.of("who", "b")),
                call("meet", Map.of("who", "c"))),
            step(Map.of(), text("All met."))));
    all.put(
        "slow",
        script(
            step(
                Map.of(),
                Map.of("repeat", Map.of("text", "word ", "times", 100), "delay_ms", 100))));
    all.put(
        "queue",
        script(
            step(Map.of("call", 0, "user_contains", "begin"), call("work", Map.of())),
            step(Map.of(), text("Then: {{user}}"))));
    all.put("broken", script(step(Map.of(), error("bad_request", Map.of()))));
    all.put(
        "flaky",
        script(
            step(
                Map.of(),
                text("one two three "),
                error("overloaded", Map.of("times", 1)),
                text("four five"))));
    all.put(
        "small",
        "{\"context_window\": 3000, \"max_output\": 500, "
            + script(
                    step(Map.of("system_contains", "summar"), text("A short summary.")),
                    step(
                        Map.of(),
                        text("Noted. "),
                        Map.of("repeat", Map.of("text", "blah ", "times", 40))))
                .substring(1));
    return Map.copyOf(all);
  }

  /** A model that calls a tool and repeats its result. */
  public static String oneTool(String name, Map<String, Object> arguments) {
    return script(
        step(Map.of("call", 0), call(name, arguments)),
        step(Map.of(), text("Result: {{result:" + name + "}}")));
  }

  @SafeVarargs
  @SuppressWarnings("varargs") // only read
  private static String script(Map<String, Object>... steps) {
    return Json.write(Map.of("steps", List.of(steps)));
  }

  @SafeVarargs
  @SuppressWarnings("varargs") // only read
  private static Map<String, Object> step(Map<String, Object> when, Map<String, Object>... say) {
    Map<String, Object> step = new HashMap<>();
    step.put("say", new ArrayList<>(List.of(say)));
    if (!when.isEmpty()) {
      step.put("when", when);
    }
    return step;
  }

  private static Map<String, Object> text(String text) {
    return Map.of("text", text);
  }

  private static Map<String, Object> slowly(String text) {
    return Map.of("text", text, "delay_ms", 30);
  }

  private static Map<String, Object> error(String kind, Map<String, Object> more) {
    Map<String, Object> error = new HashMap<>(Map.of("kind", kind, "message", "no such thing"));
    error.putAll(more);
    return Map.of("error", error);
  }

  private static Map<String, Object> call(String name, Map<String, Object> arguments) {
    return Map.of("tool_call", Map.of("name", name, "arguments", arguments));
  }
}
