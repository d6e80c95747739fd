package dev.contextd;

import dev.contextd.internal.Json;
import dev.contextd.internal.Schemas;
import dev.contextd.internal.Times;
import dev.contextd.v1.ContextCategory;
import dev.contextd.v1.JsonSchema;
import dev.contextd.v1.ToolOutputLimits;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;

/**
 * A function of this process with what the model and contextd have to know of it.
 *
 * <p>What it returns is text, anything that JSON can hold, a {@code Part}, a {@link ToolOutput}, or
 * a {@link java.util.concurrent.CompletionStage} of one of these. What it throws, the model is
 * told; {@link ToolException} says it in your words.
 */
public final class Tool {
  /**
   * What contextd waits for beyond a tool's own time: a lost connection, a restart, the way there
   * and back.
   */
  private static final Duration MARGIN = Duration.ofMinutes(1);

  /** What contextd waits without being told ({@code TurnLimits.tool_timeout}). */
  private static final Duration USUAL = Duration.ofMinutes(10);

  private static final Duration LONGEST = Duration.ofDays(1);
  private static final Map<String, Object> NO_ARGUMENTS =
      Map.of("type", "object", "properties", Map.of(), "additionalProperties", false);

  /** A tool that knows its call. */
  @FunctionalInterface
  public interface ContextHandler<A> {
    /** Runs. */
    Object call(A arguments, ToolContext context) throws Exception;
  }

  /** A tool that needs its arguments alone. */
  @FunctionalInterface
  public interface Handler<A> {
    /** Runs. */
    Object call(A arguments) throws Exception;
  }

  private interface Binding {
    Callable<Object> bind(String argumentsJson, ToolContext context);
  }

  private final dev.contextd.v1.Tool definition;
  private final Binding binding;
  private final Optional<Duration> timeout;

  private Tool(dev.contextd.v1.Tool definition, Binding binding, Optional<Duration> timeout) {
    this.definition = definition;
    this.binding = binding;
    this.timeout = timeout;
  }

  /**
   * A tool whose arguments are a record: its components become the schema. All are required but
   * {@code Optional} ones and those with an annotation {@code Nullable}; Jackson's
   * {@code @JsonPropertyDescription} describes them to the model.
   */
  public static <A extends Record> Tool of(
      String name, String description, Class<A> arguments, Handler<A> handler) {
    return of(name, description, arguments, (given, context) -> handler.call(given));
  }

  /** As {@link #of(String, String, Class, Handler)}, for a tool that knows its call. */
  public static <A extends Record> Tool of(
      String name, String description, Class<A> arguments, ContextHandler<A> handler) {
    Schemas.Arguments<A> schema = Schemas.of(arguments);
    return new Tool(
        definition(name, description, schema.json()),
        (json, context) -> {
          A given = schema.read(json);
          return () -> handler.call(given, context);
        },
        Optional.empty());
  }

  /** A tool without arguments. */
  public static Tool of(String name, String description, Callable<?> handler) {
    return ofSchema(name, description, NO_ARGUMENTS, (given, context) -> handler.call());
  }

  /** A tool with a JSON schema; its arguments come as they are. */
  public static Tool ofSchema(
      String name,
      String description,
      Map<String, ?> schema,
      ContextHandler<Map<String, Object>> handler) {
    return new Tool(
        definition(name, description, Json.write(schema)),
        (json, context) -> {
          Map<String, Object> given = Json.object(json);
          return () -> handler.call(given, context);
        },
        Optional.empty());
  }

  private static dev.contextd.v1.Tool definition(String name, String description, String schema) {
    return dev.contextd.v1.Tool.newBuilder()
        .setName(name)
        .setDescription(description)
        .setInputSchema(JsonSchema.newBuilder().setJson(schema))
        .setCategory(ContextCategory.CONTEXT_CATEGORY_TOOLS)
        .build();
  }

  /** The same, given up after this time; the model is told so. */
  public Tool withTimeout(Duration timeout) {
    if (timeout.isNegative() || timeout.isZero() || timeout.compareTo(LONGEST) > 0) {
      throw new IllegalArgumentException(
          "the timeout of a tool is more than 0 and at most a day, not " + timeout);
    }
    return new Tool(definition, binding, Optional.of(timeout));
  }

  /** The same, with a person asked first. */
  public Tool withApproval() {
    return with(definition.toBuilder().setRequiresApproval(true));
  }

  /** The same, with the provider asked to hold the arguments to the schema, or not. */
  public Tool withStrict(boolean strict) {
    return with(definition.toBuilder().setStrict(strict));
  }

  /** The same, counted elsewhere in the statistics of the context. */
  public Tool withCategory(ContextCategory category) {
    return with(definition.toBuilder().setCategory(category));
  }

  /** The same, with less of its output shown to the model. */
  public Tool withMaxOutputChars(int chars) {
    return with(
        definition.toBuilder()
            .setOutputLimits(ToolOutputLimits.newBuilder().setMaxOutputChars(chars)));
  }

  /** The same, known to this process but not sent to the model. */
  public Tool withDeferred() {
    return with(definition.toBuilder().setDeferred(true));
  }

  private Tool with(dev.contextd.v1.Tool.Builder changed) {
    return new Tool(changed.build(), binding, timeout);
  }

  /** What the model calls it. */
  public String name() {
    return definition.getName();
  }

  /** After which it is given up. */
  public Optional<Duration> timeout() {
    return timeout;
  }

  /** The definition as contextd takes it. */
  public dev.contextd.v1.Tool definition() {
    return patience()
        .map(longest -> definition.toBuilder().setTimeout(Times.duration(longest)).build())
        .orElse(definition);
  }

  /**
   * How long contextd waits. This process ends the call sooner; a person is given the usual time.
   */
  private Optional<Duration> patience() {
    return timeout
        .map(own -> own.plus(MARGIN).compareTo(LONGEST) > 0 ? LONGEST : own.plus(MARGIN))
        .filter(longest -> !definition.getRequiresApproval() || longest.compareTo(USUAL) >= 0);
  }

  /** The call, ready to be made. Throws what is wrong with the arguments. */
  public Callable<Object> bind(String argumentsJson, ToolContext context) {
    return binding.bind(argumentsJson, context);
  }

  @Override
  public String toString() {
    return "Tool(" + name() + ")";
  }
}
