package dev.contextd.mcp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import dev.contextd.Contextd;
import dev.contextd.ContextdException;
import dev.contextd.Event;
import dev.contextd.Run;
import dev.contextd.Scripts;
import dev.contextd.Server;
import dev.contextd.Session;
import dev.contextd.Tool;
import dev.contextd.ToolContext;
import dev.contextd.ToolOutput;
import dev.contextd.v1.ContextCategory;
import dev.contextd.v1.ToolOutcome;
import java.net.URI;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tools of MCP servers in turns of a real server. */
class McpToolsTest {
  private static final Map<String, String> SCRIPTS =
      Map.of(
          "add", Scripts.oneTool("add", Map.of("a", 2, "b", 3)),
          "prefixed", Scripts.oneTool("it_add", Map.of("a", 2, "b", 3)),
          "fail", Scripts.oneTool("fail", Map.of()));

  private static Server server;
  private static Contextd client;
  private static McpTools stdio;

  @BeforeAll
  static void start() {
    server = new Server(SCRIPTS, Map.of()).start();
    client = Contextd.connect(server.url());
    stdio = command().connect();
  }

  @AfterAll
  static void stop() {
    stdio.close();
    client.close();
    server.close();
  }

  private static McpTools.Builder command() {
    return McpTools.builder(
        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
        "-Xmx64m",
        "-cp",
        System.getProperty("java.class.path"),
        McpTestServer.class.getName());
  }

  private static Tool named(McpTools tools, String name) {
    return tools.tools().stream()
        .filter(tool -> tool.name().equals(name))
        .findFirst()
        .orElseThrow();
  }

  private static Object call(Tool tool, String arguments) throws Exception {
    return tool.bind(
            arguments, new ToolContext("s", "t", "c", tool.name(), Optional.empty(), false))
        .call();
  }

  private static Run run(String model, McpTools tools) {
    Session session = client.session(options -> options.model("scripted/" + model).tools(tools));
    return session.run("go");
  }

  @Test
  void toolsHaveTheDefinitionsOfAllPagesOfTheServer() {
    List<String> names = stdio.tools().stream().map(Tool::name).toList();
    assertEquals(List.of("add", "fail", "die", "picture"), names);
    var add = named(stdio, "add").definition();
    assertEquals("Adds two numbers.", add.getDescription());
    assertEquals(ContextCategory.CONTEXT_CATEGORY_MCP_TOOLS, add.getCategory());
    assertTrue(add.getInputSchema().getJson().contains("\"a\""));
  }

  @Test
  void aTurnCallsAServerOverStdio() {
    assertEquals("Result: 5", run("add", stdio).result().text());
  }

  @Test
  void aTurnCallsAServerOverHttp() throws Exception {
    HttpServer http = McpTestServer.http();
    URI url = URI.create("http://127.0.0.1:" + http.getAddress().getPort() + "/mcp");
    try (McpTools tools =
        McpTools.builder(url).header("X-Test", "1").prefix("it_").only("add").connect()) {
      assertEquals(List.of("it_add"), tools.tools().stream().map(Tool::name).toList());
      assertEquals("Result: 5", run("prefixed", tools).result().text());
    } finally {
      http.stop(0);
    }
  }

  @Test
  void anErrorOfTheServerReachesTheModel() {
    List<ToolOutcome> outcomes =
        run("fail", stdio)
            .events()
            .filter(Event.ToolCallCompleted.class::isInstance)
            .map(event -> ((Event.ToolCallCompleted) event).outcome())
            .toList();
    assertEquals(List.of(ToolOutcome.TOOL_OUTCOME_ERROR), outcomes);
  }

  @Test
  void picturesBecomeMedia() throws Exception {
    ToolOutput output = (ToolOutput) call(named(stdio, "picture"), "{}");
    assertEquals("image/png", output.parts().get(0).getMedia().getMediaType());
    assertEquals(6, output.parts().get(0).getMedia().getData().size());
  }

  @Test
  void toolsMayNeedApproval() {
    try (McpTools tools = command().needsApproval(name -> name.equals("add")).connect()) {
      assertTrue(named(tools, "add").definition().getRequiresApproval());
      assertEquals(false, named(tools, "fail").definition().getRequiresApproval());
    }
  }

  @Test
  void aServerThatDiedIsStartedAgainWithTheNextCall() throws Exception {
    try (McpTools tools = command().timeout(java.time.Duration.ofSeconds(10)).connect()) {
      assertThrows(RuntimeException.class, () -> call(named(tools, "die"), "{}"));
      assertEquals(
          "5",
          ((ToolOutput) call(named(tools, "add"), "{\"a\": 2, \"b\": 3}"))
              .parts()
              .get(0)
              .getText());
    }
  }

  @Test
  @Timeout(10)
  void aServerThatDoesNotStartIsAnErrorAtOnce() {
    assertThrows(ContextdException.class, () -> McpTools.command("no-such-program-at-all"));
  }
}
