package dev.contextd.internal;

import dev.contextd.v1.Part;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** Reads the parts of messages. */
public final class Parts {
  private Parts() {}

  /** The words for people: text and refusals. */
  public static String words(List<Part> parts) {
    return parts.stream().map(Parts::word).collect(Collectors.joining());
  }

  /** The text of a tool's result, a line for each part. */
  public static String joined(List<Part> parts) {
    return parts.stream()
        .map(Part::getText)
        .filter(text -> !text.isEmpty())
        .collect(Collectors.joining("\n"));
  }

  /** The words by the index of their part. */
  static Map<Integer, String> texts(List<Part> parts) {
    Map<Integer, String> found = new TreeMap<>();
    for (int index = 0; index < parts.size(); index++) {
      String text = word(parts.get(index));
      if (!text.isEmpty()) {
        found.put(index, text);
      }
    }
    return found;
  }

  /** The reasoning by the index of its part. */
  static Map<Integer, String> reasonings(List<Part> parts) {
    Map<Integer, String> found = new TreeMap<>();
    for (int index = 0; index < parts.size(); index++) {
      if (parts.get(index).hasReasoning()) {
        found.put(index, parts.get(index).getReasoning().getText());
      }
    }
    return found;
  }

  private static String word(Part part) {
    return part.hasRefusal() ? part.getRefusal() : part.getText();
  }
}
