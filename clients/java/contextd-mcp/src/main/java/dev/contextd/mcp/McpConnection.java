package dev.contextd.mcp;

import dev.contextd.ContextdException;
import dev.contextd.ToolException;
import dev.contextd.ToolOutput;
import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;
import java.util.function.Function;

/** A connection to an MCP server, made anew with the next call when it was lost. */
final class McpConnection implements AutoCloseable {
  static final Duration CONNECT_TIME = Duration.ofMinutes(1);

  /** Beyond what contextd waits for a call by default. */
  private static final Duration CALL_TIME = Duration.ofMinutes(15);

  private final Function<Consumer<Throwable>, McpClientTransport> transport;
  private final Duration callTime;
  private McpSyncClient client;

  /**
   * A connection over what {@code transport} makes, which reports a transport that cannot be
   * opened.
   */
  McpConnection(
      Function<Consumer<Throwable>, McpClientTransport> transport, Optional<Duration> callTime) {
    this.transport = transport;
    this.callTime = callTime.orElse(CALL_TIME);
  }

  /** The server's own definitions of its tools. */
  List<McpSchema.Tool> definitions() {
    McpSyncClient connected = connected();
    List<McpSchema.Tool> found = new ArrayList<>();
    String cursor = null;
    do {
      McpSchema.ListToolsResult page = connected.listTools(cursor);
      found.addAll(page.tools());
      cursor = page.nextCursor();
    } while (cursor != null && !cursor.isEmpty());
    return found;
  }

  /** Calls a tool. */
  ToolOutput call(String name, Map<String, Object> arguments) {
    McpSyncClient connected = connected();
    try {
      return McpContent.outputOf(
          connected.callTool(McpSchema.CallToolRequest.builder(name).arguments(arguments).build()));
    } catch (McpError error) {
      throw new ToolException(String.valueOf(error.getMessage()));
    } catch (RuntimeException error) {
      // Whether the tool ran is not known, so the call is not made again; the model decides.
      drop(connected);
      throw error;
    }
  }

  private synchronized McpSyncClient connected() {
    if (client == null) {
      CompletableFuture<Object> ready = new CompletableFuture<>();
      McpSyncClient made =
          McpClient.sync(transport.apply(ready::completeExceptionally))
              .requestTimeout(callTime)
              .initializationTimeout(CONNECT_TIME)
              .build();
      try {
        // The SDK would wait for the answer of a server that was never started.
        ready.completeAsync(made::initialize).join();
      } catch (CompletionException error) {
        made.close();
        throw new ContextdException(
            "the MCP server does not answer: " + error.getCause().getMessage(), error.getCause());
      }
      client = made;
    }
    return client;
  }

  private synchronized void drop(McpSyncClient broken) {
    if (client == broken) {
      client = null;
    }
    broken.close();
  }

  @Override
  public synchronized void close() {
    if (client != null) {
      client.closeGracefully();
      client = null;
    }
  }
}
