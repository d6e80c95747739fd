package dev.contextd.mcp;

import dev.contextd.Content;
import dev.contextd.ToolOutput;
import dev.contextd.v1.Part;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.spec.McpSchema;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Base64;
import java.util.List;

/** Results of MCP as output of tools. */
final class McpContent {
  /** Content that contextd takes inline. */
  private static final int MAX_MEDIA_BYTES = 3 * 1024 * 1024;

  private McpContent() {}

  static ToolOutput outputOf(McpSchema.CallToolResult result) {
    List<McpSchema.Content> content = result.content() == null ? List.of() : result.content();
    List<Part> parts =
        content.stream().map(McpContent::part).filter(McpContent::saysSomething).toList();
    if (parts.isEmpty() && result.structuredContent() != null) {
      parts = List.of(Content.text(json(result.structuredContent())));
    }
    return new ToolOutput(parts, Boolean.TRUE.equals(result.isError()));
  }

  private static boolean saysSomething(Part part) {
    return !part.hasText() || !part.getText().isEmpty();
  }

  private static Part part(McpSchema.Content content) {
    if (content instanceof McpSchema.TextContent text) {
      return Content.text(text.text());
    }
    if (content instanceof McpSchema.ImageContent image) {
      return media(image.mimeType(), image.data());
    }
    if (content instanceof McpSchema.AudioContent audio) {
      return media(audio.mimeType(), audio.data());
    }
    if (content instanceof McpSchema.ResourceLink link) {
      return Content.text(link.name() + ": " + link.uri());
    }
    if (content instanceof McpSchema.EmbeddedResource embedded) {
      if (embedded.resource() instanceof McpSchema.TextResourceContents text) {
        return Content.text(text.text());
      }
      if (embedded.resource() instanceof McpSchema.BlobResourceContents blob) {
        return media(blob.mimeType(), blob.blob());
      }
    }
    return Content.text("[content of type " + content.type() + "]");
  }

  private static Part media(String mediaType, String base64) {
    byte[] data = Base64.getDecoder().decode(base64);
    String type = mediaType == null ? "application/octet-stream" : mediaType;
    if (data.length > MAX_MEDIA_BYTES) {
      return Content.text("[" + type + " of " + data.length + " bytes left out: too large]");
    }
    return Content.media(type, data);
  }

  private static String json(Object value) {
    try {
      return McpJsonDefaults.getMapper().writeValueAsString(value);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
