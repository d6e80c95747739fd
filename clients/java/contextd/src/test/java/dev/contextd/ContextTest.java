package dev.contextd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.contextd.internal.Json;
import dev.contextd.v1.Compaction;
import dev.contextd.v1.CompactionState;
import dev.contextd.v1.CompactionStrategy;
import dev.contextd.v1.ContextStats;
import dev.contextd.v1.ErrorReason;
import dev.contextd.v1.MessageView;
import dev.contextd.v1.Part;
import dev.contextd.v1.PromptFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tools.jackson.databind.JsonNode;

/** The context, the transcript, and programs with a loop of their own. */
class ContextTest {
  private static Server server;
  private static Contextd client;

  @BeforeAll
  static void start() {
    server = Server.shared();
    client = Contextd.connect(server.url());
  }

  @AfterAll
  static void stop() {
    client.close();
  }

  record Town(String town) {}

  private static final Tool WEATHER =
      Tool.of(
          "get_weather",
          "Weather of a town.",
          Town.class,
          given -> "Sunny in " + given.town() + ".");

  private static Session session(String model) {
    return client.session(options -> options.model("scripted/" + model));
  }

  private static List<String> users(Session session) {
    return session
        .messages()
        .filter(message -> message.role().equals("USER"))
        .map(Message::text)
        .toList();
  }

  @Test
  void aSessionThatIsFullIsCompactedByItself() {
    Session session = session("small");
    long compactions = 0;
    for (int number = 0; number < 25; number++) {
      Run run = session.run("Question " + number + ": " + "please remember this ".repeat(15));
      compactions += run.events().filter(Event.CompactionCompleted.class::isInstance).count();
    }
    assertTrue(compactions > 0);
    assertTrue(session.stats().getUsed().getTokens() < 3000);
    long seen = session.messages(options -> options.setView(MessageView.MESSAGE_VIEW_LIVE)).count();
    assertTrue(session.messages().count() > seen);
    assertEquals(
        CompactionState.COMPACTION_STATE_APPLIED,
        session.compactions().findFirst().orElseThrow().getState());
  }

  @Test
  void compactMakesTheContextSmallerNow() {
    Session session = session("small");
    IntStream.range(0, 4).forEach(number -> session.run("Question " + number).result());
    int before = session.stats().getUsed().getTokens();
    Compaction compaction =
        session.compact(
            options ->
                options
                    .setStrategy(CompactionStrategy.COMPACTION_STRATEGY_TRUNCATION)
                    .setTargetTokens(before - 50));
    assertEquals(CompactionState.COMPACTION_STATE_APPLIED, compaction.getState());
    assertTrue(session.stats().getUsed().getTokens() < before);
    session.revertCompaction(compaction.getCompactionId());
    assertEquals(before, session.stats().getUsed().getTokens(), 10);
    assertTrue(session.statsText().contains("Context of scripted/small"));
  }

  @Test
  void aForkGoesItsOwnWay() {
    Session session = session("echo");
    session.run("one").result();
    Session fork = session.fork();
    fork.run("two").result();
    assertEquals(List.of("one", "two"), users(fork));
    assertEquals(List.of("one"), users(session));
  }

  @Test
  void listsAreReadPageByPage() {
    Session session = session("echo");
    String[] texts =
        IntStream.range(0, 250).mapToObj(number -> "message " + number).toArray(String[]::new);
    session.append(texts);
    assertEquals(List.of(texts), session.messages().map(Message::text).toList());
    assertEquals(
        List.of("message 249", "message 248"),
        session
            .messages(options -> options.setNewestFirst(true))
            .limit(2)
            .map(Message::text)
            .toList());
  }

  @Test
  void theQueueCanBeReadAndCleared() {
    Session session = session("echo");
    String first = session.send("one").getQueuedMessage().getQueuedMessageId();
    session.send("two");
    List<String> waiting =
        session.queued().map(each -> each.getMessage().getParts(0).getText()).toList();
    assertEquals(List.of("one", "two"), waiting);
    assertEquals(first, session.withdraw(first).getQueuedMessageId());
    assertEquals(1, session.clearQueue().size());
    assertEquals(0, session.queued().count());
  }

  @Test
  void whatWaitsInTheQueueIsInputEnough() {
    Session session = session("echo");
    session.send("from the queue");
    assertEquals("You said: from the queue", session.run(options -> {}).result().text());
  }

  @Test
  void aSessionCanBeDeleted() {
    Session session = client.session("to-delete");
    assertTrue(client.sessions().anyMatch(each -> each.getSessionId().equals("to-delete")));
    session.delete();
    ApiException error = assertThrows(ApiException.NotFound.class, session::refresh);
    assertTrue(error.is(ErrorReason.ERROR_REASON_SESSION_NOT_FOUND));
  }

  @Test
  void updateChangesWhatIsGiven() {
    Session session =
        client.session(options -> options.instructions("One.").metadata("owner", "me"));
    session.update(options -> options.instructions("Two.").tools(WEATHER));
    assertEquals("Two.", session.refresh().getSystemPrompt());
    assertEquals(Map.of("owner", "me"), session.raw().getMetadataMap());
    assertEquals("get_weather", session.raw().getTools().getHostTools(0).getName());
  }

  @Test
  void tokensAreCounted() {
    assertTrue(client.countTokens("scripted/echo", "hello") > 0);
    Session session = session("echo");
    assertTrue(session.countTokens("hello ".repeat(100)) > session.countTokens());
    assertTrue(client.models().anyMatch(model -> model.getModel().equals("scripted/echo")));
  }

  @Test
  void largeContentGoesThroughABlob() {
    byte[] content = new byte[2_000_000];
    for (int place = 0; place < content.length; place++) {
      content[place] = (byte) place;
    }
    Part part = client.putBlob("application/octet-stream", content);
    assertArrayEquals(content, client.getBlob(part.getMedia().getBlobId()).toByteArray());
  }

  @Test
  void aProgramWithItsOwnLoopOnChatCompletions() {
    Session session =
        client.session(
            options -> options.model("scripted/echo").instructions("Be brief.").tools(WEATHER));
    session.append("What is the weather in Jena?");
    Prompt prompt = session.prepare(PromptFormat.PROMPT_FORMAT_OPENAI_CHAT);
    JsonNode request = Json.MAPPER.readTree(prompt.requestJson());
    assertEquals("system", request.at("/messages/0/role").asString());
    assertEquals("get_weather", request.at("/tools/0/function/name").asString());
    assertFalse(prompt.request().containsKey("stream"));
    session.record(
        """
        {"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
          "type": "function", "function": {"name": "get_weather", "arguments": "{\\"town\\":\\"Jena\\"}"}}]}}],
         "usage": {"prompt_tokens": 58, "completion_tokens": 15, "total_tokens": 73}}
        """,
        prompt);
    session.append(
        PromptFormat.PROMPT_FORMAT_OPENAI_CHAT,
        "{\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"content\": \"Sunny in Jena.\"}");
    Prompt next = session.prepare(PromptFormat.PROMPT_FORMAT_OPENAI_CHAT);
    assertEquals(
        "tool", Json.MAPPER.readTree(next.requestJson()).at("/messages/3/role").asString());
    session.record(
        """
        {"choices": [{"message": {"role": "assistant", "content": "It is sunny in Jena."}}],
         "usage": {"prompt_tokens": 94, "completion_tokens": 13, "total_tokens": 107}}
        """,
        next);
    ContextStats stats = session.stats();
    assertEquals(107, stats.getUsed().getTokens());
    assertEquals(94, stats.getSizeBasis().getLastInputTokens());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "PROMPT_FORMAT_OPENAI_RESPONSES|{\"output\": [{\"type\": \"message\", \"role\": \"assistant\","
            + " \"content\": [{\"type\": \"output_text\", \"text\": \"Sunny.\"}]}],"
            + " \"usage\": {\"input_tokens\": 12, \"output_tokens\": 3}}",
        "PROMPT_FORMAT_GEMINI|{\"candidates\": [{\"content\": {\"role\": \"model\", \"parts\":"
            + " [{\"text\": \"Sunny.\"}]}}],"
            + " \"usageMetadata\": {\"promptTokenCount\": 12, \"candidatesTokenCount\": 3}}",
        "PROMPT_FORMAT_ANTHROPIC|{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\":"
            + " \"Sunny.\"}], \"usage\": {\"input_tokens\": 4, \"cache_read_input_tokens\": 8,"
            + " \"output_tokens\": 3}}",
      })
  void responsesOfOtherVendorsAreRecorded(PromptFormat format, String response) {
    Session session = session("echo");
    session.append("Weather?");
    session.record(response, session.prepare(format));
    List<String> texts = session.messages().map(Message::text).toList();
    assertEquals("Sunny.", texts.get(texts.size() - 1));
    assertEquals(12, session.stats().getSizeBasis().getLastInputTokens());
  }

  @Test
  void aResponseToAnOldPromptIsRefused() {
    Session session = session("echo");
    session.append("One?");
    Prompt prompt = session.prepare(PromptFormat.PROMPT_FORMAT_OPENAI_CHAT);
    session.append("Another one?");
    String response =
        "{\"choices\": [{\"message\": {\"role\": \"assistant\", \"content\": \"Late.\"}}]}";
    ApiException error =
        assertThrows(ApiException.Aborted.class, () -> session.record(response, prompt));
    assertTrue(error.is(ErrorReason.ERROR_REASON_CONTEXT_CHANGED));
  }
}
