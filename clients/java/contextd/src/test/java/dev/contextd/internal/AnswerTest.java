package dev.contextd.internal;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import dev.contextd.internal.Answer.Piece;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Text is yielded once, in pure form. */
class AnswerTest {
  /** What a caller has on its screen. */
  private static String shown(List<Piece> pieces) {
    StringBuilder text = new StringBuilder();
    for (Piece piece : pieces) {
      if (piece.reset()) {
        text.setLength(0);
      }
      text.append(piece.text());
    }
    return text.toString();
  }

  @Test
  void aPieceThatWasSeenIsLeftOut() {
    Answer answer = new Answer();
    assertEquals(List.of(new Piece("m", "one ", false)), answer.delta("m", 0, 0, "one "));
    assertEquals(List.of(), answer.delta("m", 0, 0, "one "));
    assertEquals(List.of(new Piece("m", "two", false)), answer.delta("m", 0, 2, "e two"));
  }

  @Test
  void theCommittedMessageBringsWhatIsMissing() {
    Answer answer = new Answer();
    answer.delta("m", 0, 0, "one ");
    assertEquals(List.of(), answer.delta("m", 0, 9, "lost its place"));
    assertEquals(List.of(new Piece("m", "two", false)), answer.commit("m", Map.of(0, "one two")));
  }

  @Test
  void aSecondAttemptThatSaysTheSameIsHeldBack() {
    Answer answer = new Answer();
    answer.delta("m1", 0, 0, "one two ");
    assertEquals(List.of(), answer.delta("m2", 0, 0, "one "));
    assertEquals(List.of(new Piece("m2", "three", false)), answer.delta("m2", 0, 4, "two three"));
  }

  @Test
  void aSecondAttemptThatSaysSomethingElseBeginsAnew() {
    Answer answer = new Answer();
    answer.delta("m1", 0, 0, "one two ");
    assertEquals(List.of(new Piece("m2", "uno ", true)), answer.delta("m2", 0, 0, "uno "));
  }

  @Test
  void aSecondAttemptThatSaysNothingVoidsTheFirst() {
    Answer answer = new Answer();
    answer.delta("m1", 0, 0, "one two ");
    assertEquals(List.of(new Piece("m2", "", true)), answer.commit("m2", Map.of()));
    assertEquals(List.of(new Piece("m3", "next", false)), answer.commit("m3", Map.of(0, "next")));
  }

  @Test
  void offsetsAreBytes() {
    Answer answer = new Answer();
    answer.delta("m", 0, 0, "18 °C ");
    int offset = "18 °C ".getBytes(UTF_8).length;
    assertEquals(
        List.of(new Piece("m", "ist schön", false)), answer.delta("m", 0, offset, "ist schön"));
  }

  @Test
  void whateverRepeatsAndAttemptsComeTheScreenEndsWithTheCommittedText() {
    Random chance = new Random(18);
    for (int round = 0; round < 2000; round++) {
      StringBuilder written = new StringBuilder();
      for (int place = 0; place < 12; place++) {
        written.append("abü ".charAt(chance.nextInt(4)));
      }
      String last = written.toString();
      Answer answer = new Answer();
      List<Piece> pieces = new ArrayList<>();
      boolean same = true;
      int attempts = chance.nextInt(1, 4);
      for (int attempt = 0; attempt < attempts; attempt++) {
        String said = chance.nextDouble() < 0.7 ? last : "x" + written.reverse();
        same = same && said.equals(last);
        int at = 0;
        while (at < said.length() && chance.nextDouble() < 0.85) {
          int start = chance.nextInt(at + 1);
          int end = chance.nextInt(at, said.length() + 1);
          int offset = said.substring(0, start).getBytes(UTF_8).length;
          pieces.addAll(answer.delta("m" + attempt, 0, offset, said.substring(start, end)));
          at = Math.max(at, end);
        }
      }
      pieces.addAll(answer.commit("last", Map.of(0, last)));
      assertEquals(last, shown(pieces));
      if (same) {
        assertFalse(pieces.stream().anyMatch(Piece::reset));
      }
    }
  }
}
