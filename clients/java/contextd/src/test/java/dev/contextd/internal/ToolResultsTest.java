package dev.contextd.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.contextd.Tool;
import dev.contextd.ToolException;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What tools return and throw, and how long they are waited for. */
class ToolResultsTest {
  record Found(String city, int degrees) {}

  @Test
  void whatAToolReturnsIsTextOrJson() {
    assertEquals(0, ToolResults.success("c", null).getPartsCount());
    assertEquals("done", ToolResults.success("c", "done").getParts(0).getText());
    assertEquals(
        "{\"city\":\"Oslo\",\"degrees\":18}",
        ToolResults.success("c", new Found("Oslo", 18)).getParts(0).getText());
    assertEquals("[1,2]", ToolResults.success("c", new int[] {1, 2}).getParts(0).getText());
  }

  @Test
  void whatAToolThrowsIsTold() {
    assertEquals("no", ToolResults.failure("c", new ToolException("no")).getParts(0).getText());
    assertEquals(
        "IllegalStateException: no",
        ToolResults.failure("c", new IllegalStateException("no")).getParts(0).getText());
  }

  @Test
  void aResultThatIsTooLargeIsCutBetweenCharacters() {
    String cut = ToolResults.success("c", "ü".repeat(2_000_001)).getParts(0).getText();
    assertTrue(cut.endsWith("ü\n[cut here: 4000002 bytes in all]"));
    assertEquals(1024 * 1024, cut.chars().filter(each -> each == 'ü').count());
  }

  @Test
  void theServerWaitsLongerThanTheTool() {
    Tool tool = Tool.of("work", "Works.", () -> "done");
    assertFalse(tool.definition().hasTimeout());
    assertEquals(
        65, tool.withTimeout(Duration.ofSeconds(5)).definition().getTimeout().getSeconds());
    // The timeout of the definition also bounds the time that a person has.
    assertFalse(tool.withTimeout(Duration.ofSeconds(5)).withApproval().definition().hasTimeout());
    assertEquals(
        1260,
        tool.withApproval()
            .withTimeout(Duration.ofMinutes(20))
            .definition()
            .getTimeout()
            .getSeconds());
  }

  @Test
  void aToolWithASchemaGetsItsArgumentsAsTheyAre() throws Exception {
    Tool tool =
        Tool.ofSchema(
            "work", "Works.", Map.of("type", "object"), (arguments, context) -> arguments.get("a"));
    var pending = dev.contextd.v1.PendingCall.getDefaultInstance();
    assertEquals(2, tool.bind("{\"a\": 2}", ToolResults.contextOf("s", "t", pending)).call());
  }
}
