package dev.contextd.internal;

import dev.contextd.Tool;
import dev.contextd.v1.ToolSet;
import java.util.LinkedHashMap;
import java.util.Map;

/** Tools as contextd takes them. */
public final class ToolSets {
  private ToolSets() {}

  /** Tools by name. */
  public static Map<String, Tool> byName(Iterable<Tool> tools) {
    Map<String, Tool> found = new LinkedHashMap<>();
    for (Tool tool : tools) {
      if (found.put(tool.name(), tool) != null) {
        throw new IllegalArgumentException("two tools are called " + tool.name());
      }
    }
    return found;
  }

  /** Their definitions. */
  public static ToolSet of(Map<String, Tool> tools) {
    return ToolSet.newBuilder()
        .addAllHostTools(tools.values().stream().map(Tool::definition).toList())
        .build();
  }
}
