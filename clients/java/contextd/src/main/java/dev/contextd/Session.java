package dev.contextd;

import dev.contextd.internal.EventStream;
import dev.contextd.internal.Host;
import dev.contextd.internal.Json;
import dev.contextd.internal.StreamRequest;
import dev.contextd.internal.StreamShell;
import dev.contextd.internal.ToolResults;
import dev.contextd.internal.ToolSets;
import dev.contextd.internal.Transport;
import dev.contextd.internal.TurnShell;
import dev.contextd.internal.TurnStream;
import dev.contextd.internal.Vendors;
import dev.contextd.v1.AppendMessagesRequest;
import dev.contextd.v1.AppendMessagesResponse;
import dev.contextd.v1.CancelQueuedMessageRequest;
import dev.contextd.v1.CancelTurnRequest;
import dev.contextd.v1.CancelTurnResponse;
import dev.contextd.v1.ClearQueueRequest;
import dev.contextd.v1.CompactRequest;
import dev.contextd.v1.Compaction;
import dev.contextd.v1.ContextStats;
import dev.contextd.v1.CountTokensRequest;
import dev.contextd.v1.DeleteSessionRequest;
import dev.contextd.v1.Delivery;
import dev.contextd.v1.EnqueueMessageRequest;
import dev.contextd.v1.EnqueueMessageResponse;
import dev.contextd.v1.ForkSessionRequest;
import dev.contextd.v1.GetContextStatsRequest;
import dev.contextd.v1.GetSessionRequest;
import dev.contextd.v1.GetTurnRequest;
import dev.contextd.v1.IdleAction;
import dev.contextd.v1.InputMessage;
import dev.contextd.v1.ListCompactionsRequest;
import dev.contextd.v1.ListMessagesRequest;
import dev.contextd.v1.ListQueuedMessagesRequest;
import dev.contextd.v1.ListTurnsRequest;
import dev.contextd.v1.PrepareContextRequest;
import dev.contextd.v1.PrepareContextResponse;
import dev.contextd.v1.PromptFormat;
import dev.contextd.v1.QueuedMessage;
import dev.contextd.v1.RecordUsageRequest;
import dev.contextd.v1.RecordUsageResponse;
import dev.contextd.v1.RevertCompactionRequest;
import dev.contextd.v1.StatsFormat;
import dev.contextd.v1.SubmitToolResultsRequest;
import dev.contextd.v1.ToolResult;
import dev.contextd.v1.Turn;
import dev.contextd.v1.UpdateSessionRequest;
import dev.contextd.v1.WatchEventsRequest;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.stream.Stream;
import tools.jackson.databind.node.ObjectNode;

/** A conversation: its transcript, its queue and its turns. Made by {@link Contextd#session}. */
public final class Session {
  /** A compaction may take as long as a model that writes a summary. */
  private static final Duration COMPACT_TIME = Duration.ofMinutes(15);

  private final Host host;
  private final Transport transport;
  private final String id;
  private volatile dev.contextd.v1.Session raw;
  private volatile Optional<Map<String, Tool>> tools;

  Session(Host host, dev.contextd.v1.Session raw, Optional<Map<String, Tool>> tools) {
    this.host = host;
    this.transport = host.transport();
    this.id = raw.getSessionId();
    this.raw = raw;
    this.tools = tools;
  }

  /** Its id. */
  public String id() {
    return id;
  }

  /** All of it, as it was read last. */
  public dev.contextd.v1.Session raw() {
    return raw;
  }

  // --- Turns -------------------------------------------------------------------------------------

  /**
   * A turn with this input and the session's tools, or with these in their place. It starts when it
   * is read.
   */
  public Run run(String input, Tool... tools) {
    return run(Content.input(input), options -> addTools(options, tools));
  }

  /** A turn with this input. It starts when it is read. */
  public Run run(String input, Consumer<RunOptions> options) {
    return run(Content.input(input), options);
  }

  /** A turn with this input. It starts when it is read. */
  public Run run(InputMessage input, Consumer<RunOptions> options) {
    return run(Optional.of(input), options);
  }

  /**
   * A turn without input of its own: with what waits in the queue, or with {@link
   * RunOptions#continueTranscript}.
   */
  public Run run(Consumer<RunOptions> options) {
    return run(Optional.empty(), options);
  }

  private Run run(Optional<InputMessage> input, Consumer<RunOptions> options) {
    RunOptions given = new RunOptions();
    options.accept(given);
    var request = given.request().setSessionId(id);
    input.ifPresent(request::setInput);
    Optional<Map<String, Tool>> offered = given.tools().or(() -> tools);
    offered.ifPresent(all -> request.setTools(ToolSets.of(all)));
    return run(new StreamRequest.Execute(request.build()), offered, given.onApproval());
  }

  /** Runs a turn and gives the words of its answer. */
  public String runText(String input, Tool... tools) {
    try (Run run = run(input, tools)) {
      return run.result().text();
    }
  }

  /**
   * Comes back to the turn that runs, as after a crash of this process; empty when none does. The
   * whole turn is told again. Calls that wait for a result are run, also those that a host began
   * that is gone now.
   */
  public Optional<Run> resume(Tool... tools) {
    return resume(options -> addTools(options, tools), Optional.empty());
  }

  /**
   * As {@link #resume(Tool...)}; tools and {@code onApproval} count, and events after {@code
   * afterSeq} are told.
   */
  public Optional<Run> resume(Consumer<RunOptions> options, Optional<Long> afterSeq) {
    RunOptions given = new RunOptions();
    options.accept(given);
    String turnId = refresh().getCurrentTurnId();
    if (turnId.isEmpty()) {
      return Optional.empty();
    }
    long after = afterSeq.orElseGet(() -> turn(turnId).getFirstSeq() - 1);
    StreamRequest request = watchRequest(turnId, after, true);
    return Optional.of(run(request, given.tools().or(() -> tools), given.onApproval()));
  }

  private static void addTools(RunOptions options, Tool... tools) {
    if (tools.length > 0) {
      options.tools(tools);
    }
  }

  private Run run(
      StreamRequest request,
      Optional<Map<String, Tool>> offered,
      Optional<Approval.Handler> onApproval) {
    TurnStream turn =
        new TurnStream(
            request,
            offered.orElse(Map.of()),
            host.reconnectFor(),
            onApproval.isPresent(),
            ThreadLocalRandom.current().nextDouble());
    return new Run(this, new TurnShell(host, turn, onApproval));
  }

  /** What comes from now on in the session, whoever runs its turns. */
  public Watch watch() {
    return watch(refresh().getLastSeq(), true);
  }

  /** What happened after a seq, 0 for everything; with {@code follow} also what comes. */
  public Watch watch(long afterSeq, boolean follow) {
    StreamRequest request = watchRequest("", afterSeq, follow);
    double jitter = ThreadLocalRandom.current().nextDouble();
    return new Watch(new StreamShell(host, new EventStream(request, host.reconnectFor(), jitter)));
  }

  private StreamRequest watchRequest(String turnId, long afterSeq, boolean follow) {
    return new StreamRequest.Watch(
        WatchEventsRequest.newBuilder()
            .setSessionId(id)
            .setTurnId(turnId)
            .setAfterSeq(afterSeq)
            .setFollow(follow)
            .build());
  }

  /** Cancels the turn that runs. One that has not been admitted yet is not affected. */
  public CancelTurnResponse cancel() {
    return cancel(options -> {});
  }

  /**
   * Cancels a turn. Without {@code mode} ROLLBACK its messages are kept, the partial answer
   * included.
   */
  public CancelTurnResponse cancel(Consumer<CancelTurnRequest.Builder> options) {
    CancelTurnRequest.Builder request =
        CancelTurnRequest.newBuilder().setRequestId(Contextd.newId());
    options.accept(request);
    return transport.call(stubs -> stubs.turns().cancelTurn(request.setSessionId(id).build()));
  }

  /** Reads a turn. */
  public Turn turn(String turnId) {
    GetTurnRequest request = GetTurnRequest.newBuilder().setSessionId(id).setTurnId(turnId).build();
    return transport.call(stubs -> stubs.turns().getTurn(request).getTurn());
  }

  /** The turns, newest first; read page by page. */
  public Stream<Turn> turns() {
    return transport.items(
        token -> {
          var request =
              ListTurnsRequest.newBuilder()
                  .setSessionId(id)
                  .setPageSize(Contextd.PAGE)
                  .setPageToken(token)
                  .build();
          return stubs -> {
            var answer = stubs.turns().listTurns(request);
            return new Transport.Page<>(answer.getTurnsList(), answer.getNextPageToken());
          };
        });
  }

  /** Lets a call run that waits for a person. */
  public void approve(String callId) {
    decide(callId, Approval.approve());
  }

  /** Refuses a call that waits for a person. The model gets the reason. */
  public void deny(String callId, String reason) {
    decide(callId, Approval.deny(reason));
  }

  /** Decides about a call that waits for a person. */
  public void decide(String callId, Approval decision) {
    submit(
        SubmitToolResultsRequest.newBuilder()
            .addApprovals(TurnStream.approvalOf(callId, decision)));
  }

  /** Answers a call that no run handles with a tool's output, as {@link Tool} says. */
  public void submit(String callId, Object output) {
    ToolResult result =
        output instanceof Throwable error
            ? ToolResults.failure(callId, error)
            : ToolResults.success(callId, output);
    submit(SubmitToolResultsRequest.newBuilder().addResults(result));
  }

  private void submit(SubmitToolResultsRequest.Builder answers) {
    SubmitToolResultsRequest request = answers.setSessionId(id).build();
    transport.call(stubs -> stubs.turns().submitToolResults(request));
  }

  // --- The queue ---------------------------------------------------------------------------------

  /**
   * Sends a message while the agent works; taken at the next step. It is stored when this returns,
   * and taken once.
   */
  public EnqueueMessageResponse send(String text) {
    return send(Content.input(text), options -> {});
  }

  /** Sends a message with another delivery. */
  public EnqueueMessageResponse send(String text, Delivery delivery) {
    return send(Content.input(text), options -> options.setDelivery(delivery));
  }

  /** Sends a message. */
  public EnqueueMessageResponse send(
      InputMessage message, Consumer<EnqueueMessageRequest.Builder> options) {
    EnqueueMessageRequest.Builder request =
        EnqueueMessageRequest.newBuilder()
            .setRequestId(Contextd.newId())
            .setDelivery(Delivery.DELIVERY_ASAP)
            .setOnIdle(IdleAction.IDLE_ACTION_HOLD);
    options.accept(request);
    request.setSessionId(id).setMessage(message);
    return transport.call(stubs -> stubs.queue().enqueueMessage(request.build()));
  }

  /** The messages that wait, the next one first. */
  public Stream<QueuedMessage> queued() {
    return transport.items(
        token -> {
          var request =
              ListQueuedMessagesRequest.newBuilder()
                  .setSessionId(id)
                  .setPageSize(Contextd.PAGE)
                  .setPageToken(token)
                  .build();
          return stubs -> {
            var answer = stubs.queue().listQueuedMessages(request);
            return new Transport.Page<>(answer.getQueuedMessagesList(), answer.getNextPageToken());
          };
        });
  }

  /** Withdraws a message that waits; the answer says whether it still did. */
  public QueuedMessage withdraw(String queuedMessageId) {
    CancelQueuedMessageRequest request =
        CancelQueuedMessageRequest.newBuilder()
            .setSessionId(id)
            .setQueuedMessageId(queuedMessageId)
            .setRequestId(Contextd.newId())
            .build();
    return transport.call(stubs -> stubs.queue().cancelQueuedMessage(request).getQueuedMessage());
  }

  /** Withdraws all messages that wait; gives their ids. */
  public List<String> clearQueue() {
    ClearQueueRequest request =
        ClearQueueRequest.newBuilder().setSessionId(id).setRequestId(Contextd.newId()).build();
    return transport.call(
        stubs -> List.copyOf(stubs.queue().clearQueue(request).getCancelledMessageIdsList()));
  }

  // --- The transcript ----------------------------------------------------------------------------

  /** The messages; read page by page. */
  public Stream<Message> messages() {
    return messages(options -> {});
  }

  /** The messages, such as those that the model sees ({@code setView}), or the newest first. */
  public Stream<Message> messages(Consumer<ListMessagesRequest.Builder> options) {
    ListMessagesRequest.Builder common =
        ListMessagesRequest.newBuilder().setPageSize(Contextd.PAGE);
    options.accept(common);
    common.setSessionId(id);
    return transport.items(
        token -> {
          ListMessagesRequest request = common.clone().setPageToken(token).build();
          return stubs -> {
            var answer = stubs.sessions().listMessages(request);
            List<Message> found = answer.getMessagesList().stream().map(Message::new).toList();
            return new Transport.Page<>(found, answer.getNextPageToken());
          };
        });
  }

  /** Appends what users say, without running a turn. */
  public AppendMessagesResponse append(String... texts) {
    List<InputMessage> messages = Stream.of(texts).map(Content::input).toList();
    return append(options -> options.addAllMessages(messages));
  }

  /** Appends messages of an API as JSON: one, or a list. */
  public AppendMessagesResponse append(PromptFormat format, String messagesJson) {
    String list =
        messagesJson.stripLeading().startsWith("[") ? messagesJson : "[" + messagesJson + "]";
    return append(options -> options.setMessagesFormat(format).setMessagesJson(list));
  }

  /** Appends messages without running a turn. */
  public AppendMessagesResponse append(Consumer<AppendMessagesRequest.Builder> options) {
    AppendMessagesRequest.Builder request =
        AppendMessagesRequest.newBuilder().setRequestId(Contextd.newId());
    options.accept(request);
    return transport.call(
        stubs -> stubs.sessions().appendMessages(request.setSessionId(id).build()));
  }

  /** A new session with the transcript of this one and an id of the server's. */
  public Session fork() {
    return fork(options -> {});
  }

  /** A new session with the transcript of this one, as it was at a seq or as it is. */
  public Session fork(Consumer<ForkSessionRequest.Builder> options) {
    ForkSessionRequest.Builder request =
        ForkSessionRequest.newBuilder().setRequestId(Contextd.newId());
    options.accept(request);
    var forked =
        transport.call(
            stubs -> stubs.sessions().forkSession(request.setSessionId(id).build()).getSession());
    return new Session(host, forked, tools);
  }

  // --- The context -------------------------------------------------------------------------------

  /** What fills the context window, and how long it will last. */
  public ContextStats stats() {
    GetContextStatsRequest request = GetContextStatsRequest.newBuilder().setSessionId(id).build();
    return transport.call(stubs -> stubs.context().getContextStats(request).getStats());
  }

  /** The same as a text of some 25 lines. */
  public String statsText() {
    GetContextStatsRequest request =
        GetContextStatsRequest.newBuilder()
            .setSessionId(id)
            .setFormat(StatsFormat.STATS_FORMAT_TEXT)
            .build();
    return transport.call(stubs -> stubs.context().getContextStats(request).getText());
  }

  /** Makes the context smaller now, as the policy says. */
  public Compaction compact() {
    return compact(options -> {});
  }

  /** Makes the context smaller now; returns when it is done, unless {@code setWait(false)}. */
  public Compaction compact(Consumer<CompactRequest.Builder> options) {
    CompactRequest.Builder request =
        CompactRequest.newBuilder().setRequestId(Contextd.newId()).setWait(true);
    options.accept(request);
    return transport.call(
        stubs -> stubs.context().compact(request.setSessionId(id).build()).getCompaction(),
        COMPACT_TIME);
  }

  /** The compactions, newest first. */
  public Stream<Compaction> compactions() {
    return transport.items(
        token -> {
          var request =
              ListCompactionsRequest.newBuilder()
                  .setSessionId(id)
                  .setPageSize(Contextd.PAGE)
                  .setPageToken(token)
                  .build();
          return stubs -> {
            var answer = stubs.context().listCompactions(request);
            return new Transport.Page<>(answer.getCompactionsList(), answer.getNextPageToken());
          };
        });
  }

  /** Takes the newest compaction back. */
  public Compaction revertCompaction(String compactionId) {
    RevertCompactionRequest request =
        RevertCompactionRequest.newBuilder()
            .setSessionId(id)
            .setCompactionId(compactionId)
            .setRequestId(Contextd.newId())
            .build();
    return transport.call(stubs -> stubs.context().revertCompaction(request).getCompaction());
  }

  /** Tokens of the next prompt, with what is given added to it. */
  public int countTokens(String... texts) {
    CountTokensRequest request =
        CountTokensRequest.newBuilder()
            .setSessionId(id)
            .addAllMessages(Stream.of(texts).map(Content::input).toList())
            .build();
    return transport.call(stubs -> stubs.context().countTokens(request).getTotal().getTokens());
  }

  // --- Bring your own loop -----------------------------------------------------------------------

  /** The next prompt for a program that calls the model by itself, in the shape of an API. */
  public Prompt prepare(PromptFormat format) {
    return prepare(format, options -> {});
  }

  /**
   * The next prompt; messages that wait are taken into the transcript unless {@code
   * setApplyQueuedMessages(false)}.
   */
  public Prompt prepare(PromptFormat format, Consumer<PrepareContextRequest.Builder> options) {
    PrepareContextRequest.Builder request =
        PrepareContextRequest.newBuilder()
            .setRequestId(Contextd.newId())
            .setApplyQueuedMessages(true);
    options.accept(request);
    request.setSessionId(id).setFormat(format);
    PrepareContextResponse answer =
        transport.call(stubs -> stubs.context().prepareContext(request.build()));
    var prompt = answer.getPrompt();
    return new Prompt(
        format,
        prompt.getModel(),
        withoutStream(body(prompt)),
        prompt.getContextVersion(),
        prompt.getTokens().getTokens(),
        answer.getReport(),
        prompt);
  }

  private String body(dev.contextd.v1.Prompt prompt) {
    String blob = prompt.getRequestBlob().getBlobId();
    return blob.isEmpty()
        ? prompt.getRequestJson()
        : transport.call(stubs -> dev.contextd.internal.Blobs.get(stubs, blob)).toStringUtf8();
  }

  private static String withoutStream(String json) {
    if (json.isEmpty()) {
      return json;
    }
    ObjectNode body = (ObjectNode) Json.MAPPER.readTree(json);
    body.remove(List.of("stream", "stream_options"));
    return body.toString();
  }

  /**
   * Appends what the model said, and records what it used; gives the ids of the messages.
   *
   * @param responseJson the body of the response
   * @param prompt what it answers
   */
  public List<String> record(String responseJson, Prompt prompt) {
    Vendors.Response response = Vendors.read(prompt.format(), responseJson);
    AppendMessagesResponse appended =
        append(
            options ->
                options
                    .setMessagesFormat(prompt.format())
                    .setMessagesJson(response.messagesJson())
                    .setContextVersion(prompt.version())
                    .setMessagesModel(prompt.model()));
    response
        .usage()
        .ifPresent(
            usage ->
                recordUsage(
                    options ->
                        options
                            .setUsage(usage)
                            .setModel(prompt.model())
                            .setMessageId(appended.getMessageIds(0))
                            .setContextVersion(prompt.version())));
    return List.copyOf(appended.getMessageIdsList());
  }

  /** Records what a call of the model used. */
  public RecordUsageResponse recordUsage(Consumer<RecordUsageRequest.Builder> options) {
    RecordUsageRequest.Builder request =
        RecordUsageRequest.newBuilder().setRequestId(Contextd.newId());
    options.accept(request);
    return transport.call(stubs -> stubs.context().recordUsage(request.setSessionId(id).build()));
  }

  // --- The session itself ------------------------------------------------------------------------

  /** Reads the session anew; {@link #raw} has it too. */
  public dev.contextd.v1.Session refresh() {
    GetSessionRequest request = GetSessionRequest.newBuilder().setSessionId(id).build();
    raw = transport.call(stubs -> stubs.sessions().getSession(request).getSession());
    return raw;
  }

  /** Changes what is given; in force from the next step. */
  public dev.contextd.v1.Session update(Consumer<SessionOptions> options) {
    SessionOptions given = SessionOptions.of(options);
    UpdateSessionRequest request =
        UpdateSessionRequest.newBuilder()
            .setSession(given.config().toBuilder().setSessionId(id))
            .setRequestId(Contextd.newId())
            .build();
    raw = transport.call(stubs -> stubs.sessions().updateSession(request).getSession());
    if (given.tools().isPresent()) {
      tools = given.tools();
    }
    return raw;
  }

  /** Deletes the session with all it holds. */
  public void delete() {
    DeleteSessionRequest request =
        DeleteSessionRequest.newBuilder().setSessionId(id).setRequestId(Contextd.newId()).build();
    transport.call(stubs -> stubs.sessions().deleteSession(request));
  }

  @Override
  public String toString() {
    return "Session(" + id + ")";
  }
}
