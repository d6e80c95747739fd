package dev.contextd.mcp;

import dev.contextd.Tool;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpSchema;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import reactor.core.publisher.Mono;

/**
 * The tools of an MCP server, for {@code options.tools(...)}.
 *
 * <pre>{@code
 * try (McpTools files = McpTools.command("npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv")) {
 *   client.session(options -> options.tools(files));
 * }
 * }</pre>
 *
 * <p>contextd treats their results like those of other tools: they are cut to the tool's limits and
 * pruned when they are old. The connection is made anew with the next call when it was lost.
 */
public final class McpTools implements Iterable<Tool>, AutoCloseable {
  private final McpConnection connection;
  private final List<Tool> tools;

  @FunctionalInterface
  private interface Transport {
    McpClientTransport open(Builder builder, Consumer<Throwable> broken);
  }

  /** The SDK's transport, which otherwise keeps it to itself when the command cannot be started. */
  private static final class Command extends StdioClientTransport {
    private final Consumer<Throwable> broken;

    Command(ServerParameters command, Consumer<Throwable> broken) {
      super(command, McpJsonDefaults.getMapper());
      this.broken = broken;
    }

    @Override
    public Mono<Void> connect(
        Function<Mono<McpSchema.JSONRPCMessage>, Mono<McpSchema.JSONRPCMessage>> handler) {
      return super.connect(handler).doOnError(broken);
    }
  }

  private McpTools(McpConnection connection, List<Tool> tools) {
    this.connection = connection;
    this.tools = tools;
  }

  /** The tools of a server that this command starts and that speaks over stdio. */
  public static McpTools command(String command, String... arguments) {
    return builder(command, arguments).connect();
  }

  /** The tools of a server at this address that speaks streamable HTTP. */
  public static McpTools http(String url) {
    return builder(URI.create(url)).connect();
  }

  /** Settings, for a server that this command starts. */
  public static Builder builder(String command, String... arguments) {
    return new Builder(
        (builder, broken) ->
            new Command(
                ServerParameters.builder(command).args(arguments).env(builder.env).build(),
                broken));
  }

  /** Settings, for a server at this address, such as {@code https://example.com/mcp}. */
  public static Builder builder(URI url) {
    String path = url.getRawPath().isEmpty() ? "/mcp" : url.getRawPath();
    String endpoint = url.getRawQuery() == null ? path : path + "?" + url.getRawQuery();
    String base = url.getScheme() + "://" + url.getRawAuthority();
    return new Builder(
        (builder, broken) ->
            HttpClientStreamableHttpTransport.builder(base)
                .endpoint(endpoint)
                .connectTimeout(McpConnection.CONNECT_TIME)
                .addHttpRequestCustomizer(
                    (request, method, uri, body, context) ->
                        builder.headers.forEach(request::header))
                .build());
  }

  /** Settings of a connection and of what is offered of it. */
  public static final class Builder {
    private final Transport transport;
    private final Map<String, String> headers = new LinkedHashMap<>();
    private final Map<String, String> env = new LinkedHashMap<>();
    private String prefix = "";
    private Predicate<String> only = name -> true;
    private Predicate<String> approval = name -> false;
    private Optional<Duration> timeout = Optional.empty();

    private Builder(Transport transport) {
      this.transport = transport;
    }

    /** A header of requests over HTTP, such as {@code Authorization}. */
    public Builder header(String name, String value) {
      headers.put(name, value);
      return this;
    }

    /** A variable of the command, beside the few that MCP's SDK passes on. */
    public Builder env(String name, String value) {
      env.put(name, value);
      return this;
    }

    /** Put before the tools' names, where two servers use the same. */
    public Builder prefix(String prefix) {
      this.prefix = prefix;
      return this;
    }

    /** Only tools of these names. */
    public Builder only(String... names) {
      only = List.of(names)::contains;
      return this;
    }

    /** Tools that a person is asked about first, by their name at the server. */
    public Builder needsApproval(Predicate<String> names) {
      approval = names;
      return this;
    }

    /** After which a call is given up. Default: contextd's, ten minutes. */
    public Builder timeout(Duration timeout) {
      this.timeout = Optional.of(timeout);
      return this;
    }

    /** Connects, and reads what the server has. */
    public McpTools connect() {
      McpConnection connection = new McpConnection(broken -> transport.open(this, broken), timeout);
      try {
        List<Tool> tools = new ArrayList<>();
        for (McpSchema.Tool each : connection.definitions()) {
          if (only.test(each.name())) {
            tools.add(tool(connection, each));
          }
        }
        return new McpTools(connection, List.copyOf(tools));
      } catch (RuntimeException error) {
        connection.close();
        throw error;
      }
    }

    private Tool tool(McpConnection connection, McpSchema.Tool definition) {
      String name = (prefix + definition.name()).replaceAll("[^A-Za-z0-9_-]", "_");
      String description = Optional.ofNullable(definition.description()).orElse("");
      Tool tool =
          Tool.ofSchema(
                  name.substring(0, Math.min(name.length(), 64)),
                  description,
                  definition.inputSchema(),
                  (arguments, context) -> connection.call(definition.name(), arguments))
              .withCategory(dev.contextd.v1.ContextCategory.CONTEXT_CATEGORY_MCP_TOOLS);
      if (approval.test(definition.name())) {
        tool = tool.withApproval();
      }
      return timeout.isPresent() ? tool.withTimeout(timeout.get()) : tool;
    }
  }

  /** The tools. */
  public List<Tool> tools() {
    return tools;
  }

  @Override
  public Iterator<Tool> iterator() {
    return tools.iterator();
  }

  /** Ends the connection, and the process of a server over stdio. */
  @Override
  public void close() {
    connection.close();
  }
}
