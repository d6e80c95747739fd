package dev.contextd.mcp;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** An MCP server for tests, written without the SDK: over stdio, or over HTTP. */
final class McpTestServer {
  private static final JsonMapper JSON = JsonMapper.shared();

  private McpTestServer() {}

  /** Speaks over stdio. */
  public static void main(String[] arguments) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    PrintStream out = new PrintStream(System.out, true, UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String answer = answer(line);
      if (!answer.isEmpty()) {
        out.println(answer);
      }
    }
  }

  /** Speaks over HTTP, to those who send the header. */
  static HttpServer http() throws IOException {
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/mcp", McpTestServer::handle);
    server.start();
    return server;
  }

  private static void handle(HttpExchange exchange) throws IOException {
    try (exchange) {
      if (!"1".equals(exchange.getRequestHeaders().getFirst("X-Test"))) {
        exchange.sendResponseHeaders(403, -1);
      } else if (!exchange.getRequestMethod().equals("POST")) {
        exchange.sendResponseHeaders(405, -1);
      } else {
        String answer = answer(new String(exchange.getRequestBody().readAllBytes(), UTF_8));
        if (answer.isEmpty()) {
          exchange.sendResponseHeaders(202, -1);
        } else {
          exchange.getResponseHeaders().set("Content-Type", "application/json");
          exchange.sendResponseHeaders(200, answer.getBytes(UTF_8).length);
          exchange.getResponseBody().write(answer.getBytes(UTF_8));
        }
      }
    }
  }

  /** The answer to a message; empty where none is due. */
  private static String answer(String line) {
    JsonNode message = JSON.readTree(line);
    if (!message.has("id")) {
      return "";
    }
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("jsonrpc", "2.0");
    answer.put("id", message.get("id"));
    switch (message.path("method").asString()) {
      case "initialize" ->
          answer.put("result", initialized(message.at("/params/protocolVersion").asString()));
      case "tools/list" -> answer.put("result", page(message.at("/params/cursor").asString("")));
      case "tools/call" -> call(message.path("params"), answer);
      default -> answer.put("error", Map.of("code", -32601, "message", "no such method"));
    }
    return JSON.writeValueAsString(answer);
  }

  private static Map<String, Object> initialized(String version) {
    return Map.of(
        "protocolVersion", version,
        "capabilities", Map.of("tools", Map.of()),
        "serverInfo", Map.of("name", "tests", "version", "1"));
  }

  private static Map<String, Object> page(String cursor) {
    Map<String, Object> numbers =
        Map.of("a", Map.of("type", "integer"), "b", Map.of("type", "integer"));
    Map<String, Object> schema =
        Map.of("type", "object", "properties", numbers, "required", List.of("a", "b"));
    Map<String, Object> nothing = Map.of("type", "object");
    if (cursor.isEmpty()) {
      return Map.of(
          "tools",
          List.of(Map.of("name", "add", "description", "Adds two numbers.", "inputSchema", schema)),
          "nextCursor",
          "2");
    }
    return Map.of(
        "tools",
        List.of(
            Map.of("name", "fail", "description", "Fails.", "inputSchema", nothing),
            Map.of("name", "die", "description", "Ends the server.", "inputSchema", nothing),
            Map.of("name", "picture", "description", "Draws.", "inputSchema", nothing)));
  }

  private static void call(JsonNode params, Map<String, Object> answer) {
    switch (params.path("name").asString()) {
      case "add" -> {
        JsonNode given = params.path("arguments");
        answer.put(
            "result",
            text(String.valueOf(given.path("a").asInt() + given.path("b").asInt()), false));
      }
      case "fail" -> answer.put("result", text("on purpose", true));
      case "die" -> System.exit(1);
      default ->
          answer.put(
              "result",
              Map.of(
                  "content",
                  List.of(Map.of("type", "image", "data", "iVBORw0K", "mimeType", "image/png"))));
    }
  }

  private static Map<String, Object> text(String text, boolean isError) {
    return Map.of("content", List.of(Map.of("type", "text", "text", text)), "isError", isError);
  }
}
