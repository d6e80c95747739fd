package dev.contextd.internal;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * Text that is yielded once, however often the stream repeats it: the open message as the caller
 * has it, and as the server has it.
 *
 * <p>Pieces say which part of which message they belong to, and at which byte. So what was seen
 * before is left out. When an answer becomes void and is written again (its replica died, the
 * model's service failed), the second one is held back for as long as it says what the first one
 * said; if it says something else, the caller is told to begin anew.
 */
public final class Answer {
  /**
   * Text to append.
   *
   * @param messageId the message
   * @param text the text
   * @param reset what was yielded for this message before is void
   */
  public record Piece(String messageId, String text, boolean reset) {}

  private String messageId = "";
  private final SortedMap<Integer, byte[]> parts = new TreeMap<>();
  private byte[] shown = new byte[0];

  /** A piece came. */
  public List<Piece> delta(String messageId, int index, int offset, String text) {
    open(messageId);
    put(index, offset, text);
    return showMore();
  }

  /** All text so far came, as in {@code sync}. */
  public List<Piece> whole(String messageId, Map<Integer, String> texts) {
    open(messageId);
    texts.forEach((index, text) -> put(index, 0, text));
    return showMore();
  }

  /** The message is final. What is left of it is yielded, and the next message begins. */
  public List<Piece> commit(String messageId, Map<Integer, String> texts) {
    this.messageId = messageId;
    parts.clear();
    texts.forEach((index, text) -> parts.put(index, text.getBytes(UTF_8)));
    List<Piece> pieces = show(said());
    this.messageId = "";
    parts.clear();
    shown = new byte[0];
    return pieces;
  }

  private void open(String messageId) {
    if (!messageId.equals(this.messageId)) { // the next message, or the next attempt at this one
      this.messageId = messageId;
      parts.clear();
    }
  }

  private void put(int index, int offset, String text) {
    byte[] held = parts.getOrDefault(index, new byte[0]);
    byte[] data = text.getBytes(UTF_8);
    if (offset > held.length || offset + data.length <= held.length) {
      return; // bytes are missing, which the committed message brings; or there is nothing new
    }
    byte[] more = Arrays.copyOf(held, offset + data.length);
    System.arraycopy(data, 0, more, offset, data.length);
    parts.put(index, more);
  }

  private byte[] said() {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    parts.values().forEach(all::writeBytes);
    return all.toByteArray();
  }

  private List<Piece> showMore() {
    byte[] said = said();
    return startsWith(shown, said) ? List.of() : show(said);
  }

  private List<Piece> show(byte[] said) {
    boolean reset = !startsWith(said, shown);
    String more =
        reset
            ? new String(said, UTF_8)
            : new String(said, shown.length, said.length - shown.length, UTF_8);
    shown = said;
    return more.isEmpty() && !reset ? List.of() : List.of(new Piece(messageId, more, reset));
  }

  private static boolean startsWith(byte[] data, byte[] beginning) {
    return data.length >= beginning.length
        && Arrays.equals(data, 0, beginning.length, beginning, 0, beginning.length);
  }
}
