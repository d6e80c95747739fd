package dev.contextd;

import dev.contextd.internal.Enums;
import dev.contextd.internal.Parts;
import dev.contextd.v1.Part;
import dev.contextd.v1.ToolCall;
import dev.contextd.v1.ToolResult;
import java.util.List;

/**
 * A message of the transcript.
 *
 * @param raw all of it
 */
public record Message(dev.contextd.v1.Message raw) {
  /** Its id. */
  public String id() {
    return raw.getMessageId();
  }

  /** {@code SYSTEM}, {@code USER}, {@code ASSISTANT} or {@code TOOL}. */
  public String role() {
    return Enums.name(raw.getRole(), raw.getRoleValue());
  }

  /** The words for people: text and refusals. */
  public String text() {
    return Parts.words(raw.getPartsList());
  }

  /** The content in order. */
  public List<Part> parts() {
    return raw.getPartsList();
  }

  /** The calls that the model makes in it. */
  public List<ToolCall> toolCalls() {
    return raw.getPartsList().stream().filter(Part::hasToolCall).map(Part::getToolCall).toList();
  }

  /** The results in it. */
  public List<ToolResult> toolResults() {
    return raw.getPartsList().stream()
        .filter(Part::hasToolResult)
        .map(Part::getToolResult)
        .toList();
  }
}
