package dev.contextd.internal;

import java.util.LinkedHashMap;
import java.util.Map;
import tools.jackson.core.JacksonException;
import tools.jackson.core.type.TypeReference;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.json.JsonMapper;

/** JSON as this package reads and writes it. */
public final class Json {
  /** Arguments that the model invents are refused, so that it is told. */
  public static final JsonMapper MAPPER =
      JsonMapper.builder().enable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES).build();

  private static final TypeReference<LinkedHashMap<String, Object>> OBJECT =
      new TypeReference<>() {};

  private Json() {}

  /** An object; throws what is wrong with the text. */
  public static Map<String, Object> object(String text) {
    return text.isBlank() ? new LinkedHashMap<>() : MAPPER.readValue(text, OBJECT);
  }

  /** An object; empty when the text is none. */
  public static Map<String, Object> lenientObject(String text) {
    try {
      return object(text);
    } catch (JacksonException broken) {
      return Map.of();
    }
  }

  /** The text of a value. */
  public static String write(Object value) {
    return MAPPER.writeValueAsString(value);
  }
}
