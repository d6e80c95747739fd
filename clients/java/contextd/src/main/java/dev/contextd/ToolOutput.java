package dev.contextd;

import dev.contextd.v1.Part;
import java.util.List;

/**
 * What a tool gives beyond text: media, several parts, or an error with parts.
 *
 * @param parts the content; {@link Content} makes them
 * @param isError whether the model is told that the tool failed
 */
public record ToolOutput(List<Part> parts, boolean isError) {
  /** Keeps a copy. */
  public ToolOutput {
    parts = List.copyOf(parts);
  }

  /** Output of these parts. */
  public static ToolOutput of(Part... parts) {
    return new ToolOutput(List.of(parts), false);
  }
}
