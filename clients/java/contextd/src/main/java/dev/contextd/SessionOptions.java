package dev.contextd;

import dev.contextd.internal.Times;
import dev.contextd.internal.ToolSets;
import dev.contextd.v1.Generation;
import dev.contextd.v1.PinnedBlock;
import dev.contextd.v1.Policy;
import dev.contextd.v1.TurnLimits;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/** What a session is configured with. */
public final class SessionOptions {
  private final dev.contextd.v1.Session.Builder config = dev.contextd.v1.Session.newBuilder();
  private Optional<Map<String, Tool>> tools = Optional.empty();

  private SessionOptions() {}

  static SessionOptions of(Consumer<SessionOptions> options) {
    SessionOptions made = new SessionOptions();
    options.accept(made);
    return made;
  }

  /** The model, {@code PROVIDER/MODEL}. Default: the server's. */
  public SessionOptions model(String model) {
    config.setModel(model);
    return this;
  }

  /** What precedes every prompt. */
  public SessionOptions instructions(String instructions) {
    config.setSystemPrompt(instructions);
    return this;
  }

  /** The tools of its turns. */
  public SessionOptions tools(Tool... tools) {
    return tools(List.of(tools));
  }

  /** The tools of its turns. */
  public SessionOptions tools(Iterable<Tool> tools) {
    Map<String, Tool> byName = ToolSets.byName(tools);
    this.tools = Optional.of(byName);
    config.setTools(ToolSets.of(byName));
    return this;
  }

  /** A text that follows the instructions and that no compaction touches. */
  public SessionOptions pinned(String name, String text) {
    config.addPinnedBlocks(PinnedBlock.newBuilder().setName(name).setText(text));
    return this;
  }

  /** Bounds of its turns. */
  public SessionOptions limits(TurnLimits limits) {
    config.setLimits(limits);
    return this;
  }

  /** How the model is to answer. */
  public SessionOptions generation(Generation generation) {
    config.setGeneration(generation);
    return this;
  }

  /** Name of the policy of the context. */
  public SessionOptions policy(String policy) {
    config.setPolicy(policy);
    return this;
  }

  /** Changes to that policy. */
  public SessionOptions policyOverrides(Policy overrides) {
    config.setPolicyOverrides(overrides);
    return this;
  }

  /** A label of yours. */
  public SessionOptions metadata(String name, String value) {
    config.putMetadata(name, value);
    return this;
  }

  /** The time without use after which the session is deleted. */
  public SessionOptions ttl(Duration ttl) {
    config.setTtl(Times.duration(ttl));
    return this;
  }

  dev.contextd.v1.Session config() {
    return config.build();
  }

  Optional<Map<String, Tool>> tools() {
    return tools;
  }
}
