package dev.contextd;

import dev.contextd.internal.Json;
import dev.contextd.v1.PrepareReport;
import dev.contextd.v1.PromptFormat;
import java.util.Map;

/**
 * The next prompt for a program that calls the model by itself, made to fit.
 *
 * @param format the shape of the request
 * @param model the model that it is made for
 * @param requestJson the body of the request, without {@code stream}; empty for the neutral format
 * @param version what {@link Session#record} holds the transcript to
 * @param tokens its size
 * @param report what was done to make it fit
 * @param raw all of it
 */
public record Prompt(
    PromptFormat format,
    String model,
    String requestJson,
    long version,
    int tokens,
    PrepareReport report,
    dev.contextd.v1.Prompt raw) {
  /** The body of the request as an object. */
  public Map<String, Object> request() {
    return Json.object(requestJson);
  }
}
