//! Strategies for the round-trip tests: they generate exactly the model values that request validation accepts.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use proptest::{collection, option, prelude::*};

use crate::model::{
    BlobId, CallId, Citation, Compaction, CompactionId, CompactionState, Content, Failure, FailurePhase, FailureReason,
    FinishReason, Generation, Keep, LimitsOverride, Media, MessageId, ModelResponse, OutputLimits, OutputPart, Part,
    PinnedBlock, PinnedKind, ProviderItem, ProviderTool, Seq, SessionConfig, TakeMode, TokenBasis, TokenCount, Tool,
    ToolCall, ToolCategory, ToolExecution, ToolOutcome, ToolResult, ToolSet, Truncation, TurnResult, Usage,
    UsageTotals,
    command::TurnRequest,
    compaction::{self, CompactionOverrides, Guard, InstructionsMode, Summary, Trigger},
    config::{ContextOverrides, PolicyOverrides, PruneMode, PruneOverrides, UnknownWindow},
    generation::{ReasoningEffort, ResponseFormat, ToolChoice, UpTo},
    ledger::{CategoryTokens, ContextCategory},
    media::{BlobRef, Pixels, Source},
};

mod payloads;

pub(super) use payloads::payloads;

/// Any text that PostgreSQL can store.
fn text() -> impl Strategy<Value = String> {
    collection::vec(any::<char>().prop_filter("NUL cannot be stored", |char| *char != '\0'), 0..12)
        .prop_map(|chars| chars.into_iter().collect())
}

/// A non-empty text, for fields in which an empty text means absent.
fn non_empty_text() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("w{text}"))
}

/// Up to half of the range of the proto's numbers, so that the sum of two does not overflow.
fn tokens() -> impl Strategy<Value = u32> {
    0..(1_u32 << 30)
}

/// A positive number, for fields in which 0 means absent.
fn bound() -> impl Strategy<Value = u32> {
    1..=i32::MAX.unsigned_abs()
}

fn duration() -> impl Strategy<Value = Duration> {
    (1..=u32::MAX, any::<u16>()).prop_map(|(seconds, nanos)| Duration::new(seconds.into(), nanos.into()))
}

pub(super) fn metadata() -> impl Strategy<Value = BTreeMap<String, String>> {
    collection::btree_map(text(), text(), 0..3)
}

fn citation() -> impl Strategy<Value = Citation> {
    let texts = (text(), text(), text(), option::of(non_empty_text()));
    (texts, tokens(), tokens()).prop_map(|((url, title, cited_text, provider_metadata), start_byte, end_byte)| {
        Citation { url, title, cited_text, start_byte, end_byte, provider_metadata }
    })
}

fn item() -> impl Strategy<Value = ProviderItem> {
    (text(), text(), text(), text()).prop_map(|(provider, kind, json, title)| ProviderItem {
        provider,
        kind,
        json,
        title,
    })
}

pub(super) fn part() -> impl Strategy<Value = Part> {
    let sources = collection::vec(citation(), 0..3);
    (content(), sources, option::of(non_empty_text()), any::<bool>()).prop_map(
        |(content, citations, provider_metadata, sanitized)| Part { content, citations, provider_metadata, sanitized },
    )
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        text().prop_map(Content::Text),
        (text(), any::<bool>()).prop_map(|(text, redacted)| Content::Reasoning { text, redacted }),
        (text(), text(), text())
            .prop_map(|(id, name, arguments)| { Content::ToolCall(ToolCall { id: CallId::new(id), name, arguments }) }),
        result().prop_map(Content::ToolResult),
        text().prop_map(Content::Refusal),
        media().prop_map(Content::Media),
        item().prop_map(Content::ProviderItem),
    ]
}

/// A part of a user message.
pub(super) fn user_part() -> impl Strategy<Value = Part> {
    prop_oneof![text().prop_map(Part::text), media().prop_map(|media| Part::new(Content::Media(media)))]
}

pub(super) fn media() -> impl Strategy<Value = Media> {
    let pixels =
        option::of((bound(), bound()).prop_map(|(width, height)| Pixels::new(width, height))).prop_map(Option::flatten);
    let kept = (text(), any::<u32>(), pixels);
    let source = prop_oneof![
        kept.prop_map(|(id, bytes, pixels)| Source::Blob(BlobRef { id: BlobId::new(id), bytes: bytes.into(), pixels })),
        text().prop_map(Source::Url),
    ];
    (text(), source, text()).prop_map(|(media_type, source, filename)| Media { media_type, source, filename })
}

fn result_part() -> impl Strategy<Value = OutputPart> {
    prop_oneof![text().prop_map(OutputPart::Text), media().prop_map(OutputPart::Media)]
}

fn result() -> impl Strategy<Value = ToolResult> {
    let outcome = prop_oneof![
        Just(ToolOutcome::Success),
        Just(ToolOutcome::Error),
        Just(ToolOutcome::Denied),
        Just(ToolOutcome::TimedOut),
        Just(ToolOutcome::Cancelled),
    ];
    (
        text(),
        text(),
        collection::vec(result_part(), 0..4),
        outcome,
        option::of(truncation()),
        prop_oneof![Just(String::new()), text()],
    )
        .prop_map(|(call, name, parts, outcome, truncation, display_text)| ToolResult {
            call: CallId::new(call),
            name,
            parts,
            outcome,
            truncation,
            display_text,
        })
}

fn truncation() -> impl Strategy<Value = Truncation> {
    (tokens(), tokens(), text(), any::<(u32, bool)>()).prop_map(
        |(original_chars, kept_chars, blob, (bytes, for_room))| Truncation {
            original_chars,
            kept_chars,
            full_output: BlobId::new(blob),
            full_bytes: bytes.into(),
            for_room,
        },
    )
}

pub(super) fn usage() -> impl Strategy<Value = Usage> {
    let counts = [(); 6].map(|()| tokens());
    (counts, text()).prop_map(|(counts, provider_json)| {
        let [input, output, reasoning, cache_read, cache_write, calls] = counts;
        Usage { input, output, reasoning, cache_read, cache_write, provider_tool_calls: calls, provider_json }
    })
}

pub(super) fn failure() -> impl Strategy<Value = Failure> {
    let reason = prop_oneof![
        Just(FailureReason::ProviderAuth),
        Just(FailureReason::ProviderRateLimited),
        Just(FailureReason::ProviderTimeout),
        Just(FailureReason::ProviderOverloaded),
        Just(FailureReason::ProviderBadRequest),
        Just(FailureReason::ProviderBroken),
        Just(FailureReason::ContextOverflow),
        Just(FailureReason::Poisoned),
        Just(FailureReason::Internal),
        Just(FailureReason::ModelNotFound),
        Just(FailureReason::PolicyNotFound),
    ];
    let phase = option::of(prop_oneof![Just(FailurePhase::Generate), Just(FailurePhase::Stream)]);
    let provider = (text(), any::<u16>(), text(), text());
    (reason, text(), any::<bool>(), phase, provider, option::of(duration())).prop_map(
        |(reason, message, recoverable, phase, (provider, status, code, request), retry_after)| Failure {
            reason,
            message,
            recoverable,
            phase,
            provider,
            provider_status: status,
            provider_code: code,
            provider_request_id: request,
            retry_after,
            categories: vec![CategoryTokens { occupant: ContextCategory::Skills, tokens: 7, count: 1 }],
        },
    )
}

fn finish() -> impl Strategy<Value = FinishReason> {
    prop_oneof![
        Just(FinishReason::Stop),
        Just(FinishReason::ToolCalls),
        Just(FinishReason::Length),
        Just(FinishReason::ContentFilter),
        Just(FinishReason::Refusal),
        Just(FinishReason::Error),
        Just(FinishReason::Cancelled),
        Just(FinishReason::Paused),
    ]
}

pub(super) fn response() -> impl Strategy<Value = ModelResponse> {
    let names = (text(), text(), text(), text(), text());
    let times = (option::of(duration()), duration());
    (
        names,
        finish(),
        option::of(usage()),
        option::of(failure()),
        times,
        (option::of(non_empty_text()), option::of(non_empty_text())),
    )
        .prop_map(
            |(
                (provider, model, answered, id, word),
                finish,
                usage,
                failure,
                (first, elapsed),
                (provider_metadata, prompt_fingerprint),
            )| {
                ModelResponse {
                    provider,
                    model,
                    provider_model: answered,
                    provider_response_id: id,
                    finish,
                    provider_finish: word,
                    usage,
                    failure,
                    time_to_first_token: first,
                    elapsed,
                    provider_metadata,
                    prompt_fingerprint,
                }
            },
        )
}

pub(super) fn output_limits() -> impl Strategy<Value = OutputLimits> {
    let keep = option::of(prop_oneof![Just(Keep::Head), Just(Keep::HeadAndTail)]);
    (option::of(bound()), option::of(bound()), option::of(bound()), option::of(bound()), keep).prop_map(
        |(max_chars, max_lines, max_line_length, max_matches, keep)| OutputLimits {
            max_chars,
            max_lines,
            max_line_length,
            max_matches,
            keep,
        },
    )
}

pub(super) fn tools() -> impl Strategy<Value = ToolSet> {
    let hosted = (text(), text()).prop_map(|(provider, definition)| ProviderTool { provider, definition });
    (collection::vec(tool(), 0..3), collection::vec(hosted, 0..3)).prop_map(|(tools, provider_tools)| ToolSet {
        tools,
        provider_tools,
        mcp_servers: Vec::new(),
    })
}

fn tool() -> impl Strategy<Value = Tool> {
    let category = prop_oneof![
        Just(ToolCategory::Tools),
        Just(ToolCategory::McpTools),
        Just(ToolCategory::Skills),
        Just(ToolCategory::Agents),
    ];
    let texts = (text(), text(), option::of(text()));
    let flags = (any::<bool>(), any::<bool>(), any::<Option<bool>>());
    (texts, option::of(duration()), option::of(output_limits()), category, flags).prop_map(
        |(
            (name, description, input_schema),
            timeout,
            output_limits,
            category,
            (requires_approval, deferred, strict),
        )| Tool {
            name,
            description,
            input_schema,
            requires_approval,
            timeout,
            output_limits,
            category,
            deferred,
            strict,
            mcp: None,
        },
    )
}

pub(super) fn limits() -> impl Strategy<Value = LimitsOverride> {
    let counts = (option::of(bound()), option::of(bound()), option::of(1..=i64::MAX));
    (counts, option::of(duration()), option::of(duration()), option::of(duration())).prop_map(
        |((max_steps, max_output_tokens, max_total_tokens), turn_timeout, tool_timeout, grace)| LimitsOverride {
            max_steps,
            max_output_tokens,
            max_total_tokens,
            turn_timeout,
            tool_timeout,
            grace,
        },
    )
}

pub(super) fn generation() -> impl Strategy<Value = Generation> {
    let sampling = (option::of(up_to()), option::of(up_to()), option::of(count()), option::of(any::<i32>()));
    let reasoning = (option::of(effort()), option::of(count()));
    let tools = (option::of(choice()), any::<Option<bool>>());
    let answer = (collection::vec(non_empty_text(), 0..3), option::of(response_format()), option::of(non_empty_text()));
    (sampling, reasoning, tools, answer).prop_map(
        |(
            (temperature, top_p, top_k, seed),
            (reasoning_effort, reasoning_budget_tokens),
            (tool_choice, parallel_tool_calls),
            (stop_sequences, response_format, provider_options),
        )| Generation {
            temperature,
            top_p,
            top_k,
            stop_sequences,
            seed,
            reasoning_effort,
            reasoning_budget_tokens,
            tool_choice,
            parallel_tool_calls,
            response_format,
            provider_options,
        },
    )
}

/// A number that may be 0.
fn count() -> impl Strategy<Value = u32> {
    0..=i32::MAX.unsigned_abs()
}

fn up_to<const MOST: u8>() -> impl Strategy<Value = UpTo<MOST>> {
    (0.0..=f64::from(MOST)).prop_map(|number| UpTo::new(number).expect("within the range"))
}

fn effort() -> impl Strategy<Value = ReasoningEffort> {
    prop_oneof![
        Just(ReasoningEffort::None),
        Just(ReasoningEffort::Minimal),
        Just(ReasoningEffort::Low),
        Just(ReasoningEffort::Medium),
        Just(ReasoningEffort::High),
        Just(ReasoningEffort::Xhigh),
        Just(ReasoningEffort::Max),
    ]
}

fn choice() -> impl Strategy<Value = ToolChoice> {
    prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        text().prop_map(ToolChoice::Tool),
    ]
}

fn response_format() -> impl Strategy<Value = ResponseFormat> {
    (option::of(text()), text(), any::<Option<bool>>()).prop_map(|(schema, name, strict)| ResponseFormat {
        schema,
        name,
        strict,
    })
}

pub(super) fn config() -> impl Strategy<Value = SessionConfig> {
    let texts = (text(), text(), text());
    let ttl = option::of((60..=315_360_000_u64).prop_map(Duration::from_secs));
    // Boxed: all parts together do not fit on the stack of a test.
    let tools = tools().boxed();
    let generation = generation().boxed();
    let overrides = overrides().boxed();
    (texts, collection::vec(block(), 0..3), tools, limits(), generation, overrides, metadata(), ttl).prop_map(
        |((model, system_prompt, policy), pinned_blocks, tools, limits, generation, overrides, metadata, ttl)| {
            SessionConfig {
                model,
                system_prompt,
                pinned_blocks,
                tools,
                limits,
                generation,
                policy,
                overrides,
                metadata,
                ttl,
            }
        },
    )
}

fn block() -> impl Strategy<Value = PinnedBlock> {
    let kind = prop_oneof![
        Just(PinnedKind::Pinned),
        Just(PinnedKind::Memory),
        Just(PinnedKind::Skills),
        Just(PinnedKind::Agents),
    ];
    (text(), text(), kind).prop_map(|(name, text, kind)| PinnedBlock { name, text, kind })
}

fn overrides() -> impl Strategy<Value = PolicyOverrides> {
    let execution = prop_oneof![Just(ToolExecution::Parallel), Just(ToolExecution::Sequential)];
    let by_name = collection::btree_map(text(), output_limits(), 0..3);
    let take = prop_oneof![Just(TakeMode::All), Just(TakeMode::OneAtATime), Just(TakeMode::Latest)];
    let queue = (option::of(count()), option::of(take));
    (option::of(execution), option::of(output_limits()), by_name, queue, collection::vec(text(), 0..3), context())
        .prop_map(|(execution, default_output_limits, output_limits, (max_pending, take), fallback_models, context)| {
            PolicyOverrides {
                execution,
                default_output_limits,
                output_limits,
                max_pending,
                take,
                fallback_models,
                context,
            }
        })
}

pub(super) fn compaction() -> impl Strategy<Value = Compaction> {
    let state = prop_oneof![
        Just(CompactionState::Planned),
        Just(CompactionState::Running),
        Just(CompactionState::Applied),
        Just(CompactionState::Failed),
        Just(CompactionState::Reverted),
    ];
    let trigger = prop_oneof![
        Just(Trigger::Overflow),
        Just(Trigger::Threshold),
        Just(Trigger::Manual),
        Just(Trigger::ProviderOverflow),
    ];
    let id = || option::of(non_empty_text().prop_map(CompactionId::new));
    let time = || option::of((0_i64..4_000_000_000).prop_map(|second| Timestamp::from_second(second).unwrap()));
    let summary = (non_empty_text(), text(), text()).prop_map(|(text, message, model)| Summary {
        text,
        message: MessageId::new(message),
        model,
    });
    let range = (1_i64..1_000, 0_i64..1_000).prop_map(|(from, more)| (Seq(from), Seq(from + more)));
    let tools = || collection::vec(text(), 0..3);
    let size = (token_count(), option::of(token_count()), tokens(), tokens(), tokens(), tokens()).boxed();
    let made =
        (state, trigger, way(), option::of(range), any::<bool>(), option::of(summary), option::of(failure())).boxed();
    let further = ((id(), id()), (tools(), tools()), (time(), time(), time()), any::<i64>()).boxed();
    (made, size, further).prop_map(|(made, size, further)| {
        let ((id, predecessor), (referenced_tools, unreferenced_tools), times, calls) = further;
        let (state, trigger, strategy, range, was_pruned, summary, failure) = made;
        let (tokens_before, tokens_after, messages_compacted, messages_before, messages_after, limit) = size;
        let (created_at, ended_at, reverted_at) = times;
        Compaction {
            id,
            state,
            trigger,
            strategy,
            range,
            messages_compacted,
            messages_before,
            messages_after,
            tokens_before,
            tokens_after,
            limit,
            was_pruned,
            summary,
            usage: UsageTotals { calls, input: calls / 2, ..UsageTotals::default() },
            predecessor,
            referenced_tools,
            unreferenced_tools,
            failure,
            created_at,
            ended_at,
            reverted_at,
        }
    })
}

pub(super) fn token_count() -> impl Strategy<Value = TokenCount> {
    let basis = prop_oneof![
        Just(TokenBasis::Actual),
        Just(TokenBasis::Calibrated),
        Just(TokenBasis::Tokenizer),
        Just(TokenBasis::Heuristic)
    ];
    (tokens(), basis, tokens(), text()).prop_map(|(tokens, basis, margin, estimator)| TokenCount {
        tokens,
        basis,
        margin,
        estimator,
    })
}

fn way() -> impl Strategy<Value = compaction::Strategy> {
    use compaction::Strategy as Way;
    prop_oneof![
        Just(Way::ReactiveOverflow),
        Just(Way::ProactiveThreshold),
        Just(Way::MiddleRemoval),
        Just(Way::Truncation)
    ]
}

fn compaction_overrides() -> impl Strategy<Value = CompactionOverrides> {
    let mode = prop_oneof![Just(InstructionsMode::Append), Just(InstructionsMode::Replace)];
    let guard = prop_oneof![Just(Guard::None), Just(Guard::TwoLevel)];
    let number = || option::of(tokens());
    let ratio = || option::of(up_to());
    let flag = || option::of(any::<bool>());
    let what = (flag(), flag(), option::of(way()), number(), number(), number());
    let words = (option::of(non_empty_text()), option::of(non_empty_text()), option::of(mode), option::of(guard));
    let all = (what, (ratio(), ratio(), ratio(), ratio()), words).prop_map(|(what, ratios, words)| {
        let (enabled, background, strategy, keep_turns, summary_max_tokens, guard_max_restarts) = what;
        let (threshold, keep_ratio, guard_request_ratio, guard_stream_ratio) = ratios;
        let (summary_model, instructions, instructions_mode, guard) = words;
        CompactionOverrides {
            enabled,
            strategy,
            threshold,
            keep_turns,
            keep_ratio,
            summary_model,
            summary_max_tokens,
            instructions,
            instructions_mode,
            background,
            guard,
            guard_request_ratio,
            guard_stream_ratio,
            guard_max_restarts,
        }
    });
    // Boxed: this is nested deep in strategies made of many others.
    all.boxed()
}

fn context() -> impl Strategy<Value = ContextOverrides> {
    let unknown = prop_oneof![Just(UnknownWindow::Assume), Just(UnknownWindow::Refuse)];
    let number = || option::of(tokens());
    (compaction_overrides(), prune(), number(), number(), option::of(unknown)).prop_map(
        |(compaction, prune, output_reserve, context_window, unknown_window)| ContextOverrides {
            compaction,
            prune,
            output_reserve,
            context_window,
            unknown_window,
        },
    )
}

fn prune() -> impl Strategy<Value = PruneOverrides> {
    let mode = prop_oneof![Just(PruneMode::Always), Just(PruneMode::WhenItPays), Just(PruneMode::OnOverflow)];
    let number = || option::of(tokens());
    (option::of(mode), number(), number(), number(), collection::vec(text(), 0..3)).prop_map(
        |(mode, minimum_tokens, protect_tokens, protect_turns, protected_tools)| PruneOverrides {
            mode,
            minimum_tokens,
            protect_tokens,
            protect_turns,
            protected_tools,
        },
    )
}

pub(super) fn turn_request() -> impl Strategy<Value = TurnRequest> {
    (option::of(tools()), limits(), option::of(non_empty_text()), generation(), option::of(duration())).prop_map(
        |(tools, limits, model, generation, cancel_after)| TurnRequest {
            tools,
            limits,
            model,
            generation,
            cancel_after,
        },
    )
}

pub(super) fn turn_result() -> impl Strategy<Value = TurnResult> {
    (tokens(), option::of(non_empty_text()), option::of(finish()), option::of(usage()), duration()).prop_map(
        |(step_count, message, finish, last_step_usage, elapsed)| TurnResult {
            step_count,
            final_message: message.map(MessageId::new),
            finish,
            total_usage: crate::model::UsageTotals::default().plus(last_step_usage.as_ref()),
            last_step_usage,
            elapsed,
        },
    )
}
