package dev.contextd.internal;

import dev.contextd.v1.PromptFormat;
import dev.contextd.v1.Usage;
import java.util.Optional;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** Reads responses of model services, in the shape of their vendor, as messages and usage. */
public final class Vendors {
  private Vendors() {}

  /**
   * What a model said and what it used.
   *
   * @param messagesJson the messages, in the vendor's shape
   * @param usage what it used, where the response says so
   */
  public record Response(String messagesJson, Optional<Usage> usage) {}

  /** Reads a response. */
  public static Response read(PromptFormat format, String json) {
    JsonNode response = Json.MAPPER.readTree(json);
    return switch (format) {
      case PROMPT_FORMAT_OPENAI_CHAT -> chat(response);
      case PROMPT_FORMAT_OPENAI_RESPONSES -> responses(response);
      case PROMPT_FORMAT_ANTHROPIC -> anthropic(response);
      case PROMPT_FORMAT_GEMINI -> gemini(response);
      case PROMPT_FORMAT_UNSPECIFIED,
          PROMPT_FORMAT_NEUTRAL,
          PROMPT_FORMAT_AI_SDK,
          PROMPT_FORMAT_AI_SDK_7,
          PROMPT_FORMAT_NATIVE,
          UNRECOGNIZED ->
          throw new IllegalArgumentException(
              "no responses of "
                  + format
                  + " are known: append messages and record usage by themselves");
    };
  }

  private static Response chat(JsonNode response) {
    ObjectNode message = object(required(response, "choices").path(0).path("message")).deepCopy();
    message.properties().removeIf(each -> each.getValue().isNull());
    JsonNode found = response.path("usage");
    Usage.Builder usage =
        Usage.newBuilder()
            .setInputTokens(found.path("prompt_tokens").asInt(0))
            .setOutputTokens(found.path("completion_tokens").asInt(0))
            .setReasoningTokens(
                found.path("completion_tokens_details").path("reasoning_tokens").asInt(0))
            .setCacheReadTokens(found.path("prompt_tokens_details").path("cached_tokens").asInt(0))
            .setCacheWriteTokens(
                found.path("prompt_tokens_details").path("cache_write_tokens").asInt(0));
    return new Response(list(message), usage(found, usage));
  }

  private static Response responses(JsonNode response) {
    JsonNode found = response.path("usage");
    Usage.Builder usage =
        Usage.newBuilder()
            .setInputTokens(found.path("input_tokens").asInt(0))
            .setOutputTokens(found.path("output_tokens").asInt(0))
            .setReasoningTokens(
                found.path("output_tokens_details").path("reasoning_tokens").asInt(0))
            .setCacheReadTokens(found.path("input_tokens_details").path("cached_tokens").asInt(0))
            .setCacheWriteTokens(
                found.path("input_tokens_details").path("cache_write_tokens").asInt(0));
    return new Response(required(response, "output").toString(), usage(found, usage));
  }

  private static Response anthropic(JsonNode response) {
    ObjectNode message = Json.MAPPER.createObjectNode().put("role", "assistant");
    message.set("content", required(response, "content"));
    JsonNode found = response.path("usage");
    int read = found.path("cache_read_input_tokens").asInt(0);
    int written = found.path("cache_creation_input_tokens").asInt(0);
    Usage.Builder usage =
        Usage.newBuilder()
            .setInputTokens(found.path("input_tokens").asInt(0) + read + written)
            .setOutputTokens(found.path("output_tokens").asInt(0))
            .setCacheReadTokens(read)
            .setCacheWriteTokens(written);
    return new Response(list(message), usage(found, usage));
  }

  private static Response gemini(JsonNode response) {
    ObjectNode content = object(required(response, "candidates").path(0).path("content"));
    JsonNode found = response.path("usageMetadata");
    int thoughts = found.path("thoughtsTokenCount").asInt(0);
    Usage.Builder usage =
        Usage.newBuilder()
            .setInputTokens(found.path("promptTokenCount").asInt(0))
            .setOutputTokens(found.path("candidatesTokenCount").asInt(0) + thoughts)
            .setReasoningTokens(thoughts)
            .setCacheReadTokens(found.path("cachedContentTokenCount").asInt(0));
    return new Response(list(content), usage(found, usage));
  }

  private static Optional<Usage> usage(JsonNode found, Usage.Builder read) {
    return found.isObject()
        ? Optional.of(read.setProviderUsageJson(found.toString()).build())
        : Optional.empty();
  }

  private static JsonNode required(JsonNode response, String name) {
    if (!response.path(name).isArray()) {
      throw new IllegalArgumentException("this is no response of that vendor: it has no " + name);
    }
    return response.path(name);
  }

  private static ObjectNode object(JsonNode node) {
    if (node instanceof ObjectNode found) {
      return found;
    }
    throw new IllegalArgumentException("this is no response of that vendor: it has no message");
  }

  private static String list(ObjectNode message) {
    ArrayNode list = Json.MAPPER.createArrayNode();
    list.add(message);
    return list.toString();
  }
}
