package dev.contextd.internal;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.contextd.Content;
import dev.contextd.ToolContext;
import dev.contextd.ToolException;
import dev.contextd.ToolOutput;
import dev.contextd.v1.Part;
import dev.contextd.v1.PendingCall;
import dev.contextd.v1.ToolOutcome;
import dev.contextd.v1.ToolResult;
import java.nio.ByteBuffer;
import java.nio.charset.CodingErrorAction;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Makes results of what tools return and throw. */
public final class ToolResults {
  /**
   * Texts of one result; contextd keeps far less of it (120,000 characters by default) and refuses
   * more than 3 MiB.
   */
  private static final int MAX_BYTES = 2 * 1024 * 1024;

  private ToolResults() {}

  /** The result of a tool that returned. */
  public static ToolResult success(String callId, Object output) {
    boolean isError = output instanceof ToolOutput given && given.isError();
    return ToolResult.newBuilder()
        .setCallId(callId)
        .addAllParts(cut(parts(output)))
        .setOutcome(isError ? ToolOutcome.TOOL_OUTCOME_ERROR : ToolOutcome.TOOL_OUTCOME_SUCCESS)
        .build();
  }

  /** The result of a tool that threw. The model is told why, and may try something else. */
  public static ToolResult failure(String callId, Throwable error) {
    String message = error.getMessage() == null ? "" : error.getMessage();
    if (error instanceof ToolException) {
      return failure(callId, message);
    }
    String name = error.getClass().getSimpleName();
    return failure(callId, message.isEmpty() ? name : name + ": " + message);
  }

  /** The result of a call that failed, in words. */
  public static ToolResult failure(String callId, String text) {
    return ToolResult.newBuilder()
        .setCallId(callId)
        .addAllParts(cut(List.of(Content.text(text.isEmpty() ? "failed" : text))))
        .setOutcome(ToolOutcome.TOOL_OUTCOME_ERROR)
        .build();
  }

  /** What a tool may know of a call that waits for it. */
  static ToolContext contextOf(String sessionId, String turnId, PendingCall pending) {
    Optional<Instant> deadline =
        pending.hasDeadline()
            ? Optional.of(Times.instant(pending.getDeadline()))
            : Optional.empty();
    return new ToolContext(
        sessionId,
        turnId,
        pending.getCall().getCallId(),
        pending.getCall().getToolName(),
        deadline,
        pending.getArgumentsEdited());
  }

  private static List<Part> parts(Object output) {
    if (output == null || output.equals("")) {
      return List.of();
    }
    if (output instanceof String text) {
      return List.of(Content.text(text));
    }
    if (output instanceof Part part) {
      return List.of(part);
    }
    if (output instanceof ToolOutput given) {
      return given.parts();
    }
    return List.of(Content.text(Json.write(output)));
  }

  private static List<Part> cut(List<Part> parts) {
    int room = MAX_BYTES;
    List<Part> kept = new ArrayList<>();
    for (Part part : parts) {
      byte[] data = part.getText().getBytes(UTF_8);
      if (data.length > room) {
        String text = beginning(data, room) + "\n[cut here: " + data.length + " bytes in all]";
        kept.add(part.toBuilder().setText(text).build());
      } else {
        kept.add(part);
      }
      room = Math.max(0, room - data.length);
    }
    return kept;
  }

  /** As many whole characters as have room. */
  private static String beginning(byte[] data, int room) {
    int end = room;
    while (end > 0 && (data[end] & 0xC0) == 0x80) {
      end--;
    }
    try {
      return UTF_8
          .newDecoder()
          .onMalformedInput(CodingErrorAction.REPLACE)
          .decode(ByteBuffer.wrap(data, 0, end))
          .toString();
    } catch (java.nio.charset.CharacterCodingException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
