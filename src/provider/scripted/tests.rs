//! Tests of loading and playing scripts.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use proptest::prelude::*;

use super::{
    play::{PlaybackEvent, Player},
    *,
};
use crate::{
    context::testing::{assistant, calls, prompt, results, tool, user},
    model::{
        FinishReason, Generation, Message, Usage,
        generation::{ReasoningEffort, Temperature, ToolChoice},
    },
    provider::{Chunk, Finish},
};

/// A provider with the script `test`.
fn scripted(json: &str) -> Scripted {
    Scripted::new("scripted", None).unwrap().with_script("test", json).unwrap()
}

/// A script with one step.
fn saying(actions: &str) -> Scripted {
    scripted(&format!(r#"{{"steps":[{{"say":{actions}}}]}}"#))
}

/// A prompt for this script.
fn asked(model: &str, messages: Vec<Message>, tools: &[&str]) -> Arc<Prompt> {
    let tools = tools.iter().map(|name| tool(name)).collect();
    Arc::new(Prompt { model: model.to_owned(), tools, ..prompt(messages) })
}

/// A prompt with the user message "Hello".
fn hello() -> Arc<Prompt> {
    asked("test", vec![user("Hello")], &[])
}

/// All beats of the response.
fn beats(provider: &Scripted, prompt: Arc<Prompt>) -> Vec<PlaybackEvent> {
    provider.begin(prompt).map(Player::collect).unwrap()
}

/// A compact form of the beats: chunks joined by `|`, calls as `name(arguments)`, the end as its
/// finish reason.
fn shown(beats: &[PlaybackEvent]) -> String {
    let mut shown = String::new();
    for beat in beats {
        shown += &match beat {
            PlaybackEvent::Chunk(Chunk::Text(text)) => format!("{text}|"),
            PlaybackEvent::Chunk(Chunk::Reasoning(text)) => format!("({text})|"),
            PlaybackEvent::Chunk(Chunk::Refusal(text)) => format!("no:{text}|"),
            PlaybackEvent::Chunk(Chunk::ToolCall { index, id, name }) => {
                format!("call{index}:{id}:{name} ")
            }
            PlaybackEvent::Chunk(Chunk::ToolInput { index: _, json }) => format!("{json}|"),
            PlaybackEvent::Chunk(
                Chunk::PartEnded
                | Chunk::PartMetadata(_)
                | Chunk::CallMetadata { .. }
                | Chunk::Citation(_)
                | Chunk::Item(_)
                | Chunk::Image(_)
                | Chunk::Sanitized,
            ) => "never".to_owned(),
            PlaybackEvent::Chunk(Chunk::Finished(finish)) => {
                format!("<{}>", finish.provider_reason)
            }
            PlaybackEvent::Delay(delay) => format!("+{}|", delay.as_millis()),
            PlaybackEvent::WaitFor(name) => format!("wait:{name}|"),
            PlaybackEvent::Fail(error) => format!("!{:?}", error.kind),
            PlaybackEvent::Stall => "<stall>".to_owned(),
        };
    }
    shown
}

/// The text of a response, without calls.
fn text_of(beats: &[PlaybackEvent]) -> String {
    let text = |beat: &PlaybackEvent| match beat {
        PlaybackEvent::Chunk(Chunk::Text(text)) => text.clone(),
        PlaybackEvent::Chunk(_)
        | PlaybackEvent::Delay(_)
        | PlaybackEvent::WaitFor(_)
        | PlaybackEvent::Fail(_)
        | PlaybackEvent::Stall => String::new(),
    };
    beats.iter().map(text).collect()
}

/// The end of a finished response.
fn finish_of(beats: &[PlaybackEvent]) -> Finish {
    match beats.last() {
        Some(PlaybackEvent::Chunk(Chunk::Finished(finish))) => finish.clone(),
        other => panic!("not finished: {other:?}"),
    }
}

/// The error message for an invalid script.
fn problem(json: &str) -> String {
    Scripted::new("scripted", None).unwrap().with_script("bad", json).unwrap_err().to_string()
}

#[test]
fn a_bad_script_is_refused_with_its_field() {
    let step = |say: &str| format!(r#"{{"steps":[{{"say":[{{"text":"a"}}]}},{{"say":[{{"text":"a"}},{say}]}}]}}"#);
    let table = [
        ("{", "bad: line 1 column 1: EOF while parsing an object"),
        (r#"{"steps":[],"tool":1}"#, "bad: line 1 column 18: unknown field `tool`"),
        (r#"{"steps":[]}"#, "bad: steps: must not be empty"),
        (r#"{"steps":[{"say":[]}],"max_output":16001}"#, "bad: max_output: must be above 0"),
        (r#"{"steps":[{"say":[]}],"chunk_chars":0}"#, "bad: chunk_chars: must be above 0"),
        (
            r#"{"steps":[{"say":[]}],"picks":{"user":{"from":[],"default":""}}}"#,
            "bad: picks.user: must not be empty, user or call",
        ),
        (r#"{"steps":[{"when":{"call":-1},"say":[]}]}"#, "bad: line 1 column 28: invalid value: integer `-1`"),
        (
            r#"{"steps":[{"when":{"offers":1},"say":[]}]}"#,
            "bad: line 1 column 30: expected a string or a list of strings",
        ),
        (
            r#"{"steps":[{"when":{"call":1,"otherwise":true},"say":[]}]}"#,
            "bad: steps[0].when: otherwise must be the only condition",
        ),
        (&step(r#"{}"#), "bad: steps[1].say[1]: an action must have one verb, such as text"),
        (&step(r#"{"chunk_chars":1}"#), "bad: steps[1].say[1]: an action must have one verb"),
        (&step(r#"{"text":"a","stall":true}"#), "bad: steps[1].say[1]: an action must have one verb"),
        (&step(r#"{"text":"a","refusal":"b"}"#), "bad: steps[1].say[1]: an action must have one verb"),
        (&step(r#"{"txt":"a"}"#), "bad: steps[1].say[1]: unknown variant `txt`, expected one of `text`, `reasoning`"),
        (&step(r#"{"text":"a","delay_ms":"1s"}"#), "bad: steps[1].say[1]: delay_ms: invalid type"),
        (&step(r#"{"stall":false}"#), "bad: steps[1].say[1]: can only be true"),
        (
            &step(r#"{"stall":true,"delay_ms":1}"#),
            "bad: steps[1].say[1]: delay_ms and chunk_chars are allowed only for",
        ),
        (&step(r#"{"delay_ms":3600001}"#), "bad: steps[1].say[1]: delay_ms must be at most 3,600,000"),
        (&step(r#"{"text":"{{who}}"}"#), "bad: steps[1].say[1]: {{who}} is unknown"),
        (&step(r#"{"text":"{{user"}"#), "bad: steps[1].say[1]: {{ without }}"),
        (&step(r#"{"tool_call":{"name":""}}"#), "bad: steps[1].say[1]: tool_call.name must not be empty"),
        (
            &step(r#"{"tool_call":{"name":"a","arguments":{},"raw_arguments":""}}"#),
            "bad: steps[1].say[1]: tool_call must not have both",
        ),
        (&step(r#"{"repeat":{"text":"word ","times":10000000}}"#), "bad: steps[1].say[1]: repeat is larger than"),
        (&step(r#"{"error":{"kind":"odd"}}"#), "bad: steps[1].say[1]: unknown variant `odd`"),
        (&step(r#"{"stall":true},{"text":"a"}"#), "bad: steps[1].say[2]: is never reached"),
        (&step(r#"{"error":{"kind":"auth"}},{"text":"a"}"#), "bad: steps[1].say[2]: is never reached"),
    ];
    for (json, expected) in table {
        let problem = problem(json);
        assert!(problem.starts_with(expected), "{json}\n  gives {problem}\n  not   {expected}");
    }
    let name = Scripted::new("scripted", None).unwrap().with_script("a/b", "{}").unwrap_err();
    assert_eq!(name.to_string(), "a/b: a script name may contain only letters, digits and . _ -");
}

#[test]
fn a_directory_is_read_whole_and_every_bad_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("good.json", r#"{"steps":[{"say":[]}],"display_name":"Good","tools":false}"#);
    write("demo.json", r#"{"steps":[{"say":[{"text":"mine"}]}]}"#);
    write("notes.txt", "not a script");
    let provider = Scripted::new("scripted", Some(dir.path())).unwrap();
    let names: Vec<_> = provider.models().into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["demo", "good"]);
    let good = provider.model("good").unwrap();
    assert_eq!((good.display_name.as_str(), good.supports_tools), ("Good", false));
    let tokens = [good.context_window, good.max_output].map(|limit| limit.unwrap().tokens);
    assert_eq!(tokens, [16_000, 4_096]);
    assert_eq!(provider.model("other"), None);
    assert_eq!(text_of(&beats(&provider, asked("demo", vec![user("Hello")], &[]))), "mine");

    write("b.json", "[]");
    write("a.json", r#"{"steps":[{"say":[{}]}]}"#);
    let error = Scripted::new("scripted", Some(dir.path())).unwrap_err();
    let files: Vec<_> = error.problems.iter().map(|problem| Path::new(&problem.file).file_name().unwrap()).collect();
    assert_eq!(files, ["a.json", "b.json"]);
    assert_eq!(error.problems[0].field, "steps[0].say[0]");
    assert_eq!(error.to_string().lines().count(), 2);

    let missing = Scripted::new("scripted", Some(&dir.path().join("none"))).unwrap_err();
    assert!(missing.to_string().contains("cannot be read"), "{missing}");
}

#[test]
fn example_scripts_are_valid() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scripts");
    let provider = Scripted::new("scripted", Some(&dir)).unwrap();
    let flaky = asked("flaky", vec![user("Hello")], &[]);
    assert_eq!(shown(&beats(&provider, Arc::clone(&flaky))), "!RateLimited");
    assert_eq!(shown(&beats(&provider, Arc::clone(&flaky))), "I |was |about |to |say|!Overloaded");
    assert_eq!(text_of(&beats(&provider, flaky)), "I was about to say: third time lucky.");
    let call = asked("endings", vec![user("A broken call")], &[]);
    assert_eq!(shown(&beats(&provider, call)), r#"call0::read {"path": |"/tm|<length>"#);
}

#[test]
fn script_in_the_manual_is_valid() {
    let manual = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scripted.md")).unwrap();
    let (_, script) = manual.split_once("```json\n").unwrap();
    let provider = scripted(script.split_once("```").unwrap().0);
    let prompt = asked("test", vec![user("Please find Ulysses")], &["find_book"]);
    let expected = r#"One |+20|moment.|call0::find_book {"title":"Ulysses"}|<tool_calls>"#;
    assert_eq!(shown(&beats(&provider, prompt)), expected);
}

#[test]
fn demo_script_calls_tools_and_then_answers() {
    let demo = Scripted::new("scripted", None).unwrap();
    let both = ["get_weather", "get_time"];
    let weather = ("get_weather", "18 °C and sunny");
    let time = ("get_time", "14:05");
    let question = "What is the weather and time in tokyo, or Paris?";
    let lookup = |names: &[&str]| vec![user(question), calls(names)];
    let with = |mut messages: Vec<Message>, result: Message| {
        messages.push(result);
        messages
    };
    let table = [
        (vec![user(question)], &both[..], "Let me look."),
        (vec![user("The weather?")], &both[..1], "Let me look."),
        (vec![user("The time?")], &both[1..], "Let me look."),
        (
            with(lookup(&both), results(&[weather, time])),
            &both[..],
            "Here is what I found for Tokyo.\n\nWeather: 18 °C and sunny\nLocal time: 14:05\n\nHave a good trip!",
        ),
        (
            with(lookup(&both), results(&[time, weather])),
            &both[..],
            "Here is what I found for Tokyo.\n\nWeather: 18 °C and sunny\nLocal time: 14:05\n\nHave a good trip!",
        ),
        (with(lookup(&both[..1]), results(&[weather])), &both[..], "The weather in Tokyo: 18 °C and sunny"),
        (with(lookup(&both[1..]), results(&[time])), &both[..], "The local time in Tokyo: 14:05"),
        (vec![user(question)], &[], "I would look that up for Tokyo"),
        (vec![user("Tell me slowly about Oslo.")], &both[..], "Oslo is worth a slow answer"),
        (vec![user("Hi"), assistant("done"), user("Keep it short, please.")], &both[..], "In short: "),
        (vec![user("Hello")], &both[..], "Hello! I am the demo of contextd"),
        (vec![], &[], "Hello! I am the demo of contextd"),
        (vec![user(question), assistant("done"), user("Thanks")], &both[..], "Hello! I am"),
    ];
    for (messages, tools, expected) in table {
        let prompt = asked("demo", messages, tools);
        let text = text_of(&beats(&demo, Arc::clone(&prompt)));
        assert!(text.starts_with(expected), "{:?}\n  gives {text}", prompt.transcript);
    }
}

#[test]
fn demo_script_calls_both_tools_in_parallel() {
    let demo = Scripted::new("scripted", None).unwrap();
    let prompt = asked("demo", vec![user("Weather and time in New York?")], &["get_weather", "get_time"]);
    let beats = beats(&demo, prompt);
    let shown = shown(&beats);
    assert!(shown.starts_with("(The )|+20|(user )|+20|"), "{shown}");
    let calls = r#"call0::get_weather {"city":"New |+20|York"}|call1::get_time {"city":"New |+20|York"}|<tool_calls>"#;
    assert!(shown.ends_with(&format!("Let |+20|me |+20|look.|{calls}")), "{shown}");
    let finish = finish_of(&beats);
    assert_eq!((finish.reason, finish.provider_model.as_str()), (FinishReason::ToolCalls, "demo"));
    let usage = finish.usage.unwrap();
    assert!(usage.reasoning > 0 && usage.output > usage.reasoning && usage.input > 0, "{usage:?}");
}

#[test]
fn the_first_step_whose_conditions_hold_answers() {
    let provider = scripted(
        r#"{"picks": {"colour": {"from": ["red", "blue"], "default": "grey"}}, "steps": [
            {"when": {"has_result_of": ["a", "b"]}, "say": [{"text": "both {{result:a}} {{result:b}}"}]},
            {"when": {"has_result_of": "a"}, "say": [{"text": "one {{result:a}}"}]},
            {"when": {"call": 1}, "say": [{"text": "again {{call}}"}]},
            {"when": {"system_contains": "PIRATE"}, "say": [{"text": "Arr"}]},
            {"when": {"user_contains": ["colour", "color"], "offers": "paint"}, "say": [{"text": "{{ colour }}"}]},
            {"when": {"user_contains": "say"}, "say": [{"text": "{{user}}"}]}
        ]}"#,
    );
    let table = [
        (vec![user("x"), calls(&["a", "b"]), results(&[("a", "1"), ("b", "2")])], vec![], "both 1 2"),
        (vec![user("x"), calls(&["a"]), results(&[("a", "1")])], vec![], "one 1"),
        (vec![user("x"), calls(&["c"]), results(&[("c", "1")])], vec![], "again 1"),
        (vec![user("x"), assistant("y")], vec![], "again 1"),
        (vec![user("Which COLOR? Not infrared, blue or red")], vec!["paint"], "blue"),
        (vec![user("Which colour?")], vec!["paint"], "grey"),
        (vec![user("Say {{call}}")], vec![], "Say {{call}}"),
        (vec![user("Say this"), assistant("this"), user("Say that")], vec![], "Say that"),
    ];
    for (messages, tools, expected) in table {
        let prompt = asked("test", messages, &tools);
        assert_eq!(text_of(&beats(&provider, Arc::clone(&prompt))), expected, "{:?}", prompt.transcript);
    }
    let pirate = Prompt { system: vec!["You are a pirate.".to_owned()], ..Prompt::clone(&hello()) };
    assert_eq!(text_of(&beats(&provider, Arc::new(pirate))), "Arr");

    let error = provider.begin(hello()).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (Kind::BadRequest, "the script test has no step for this prompt"));
    let error = provider.begin(asked("none", vec![], &[])).unwrap_err();
    assert_eq!(error.message, "the script none does not exist");
}

#[test]
fn actions_are_played_in_order() {
    let table = [
        (r#"[]"#, "<stop>"),
        (r#"[{"text":""}]"#, "<stop>"),
        (r#"[{"text":"one two  three\n\nfour "}]"#, "one |two  |three\n\n|four |<stop>"),
        (r#"[{"text":"日本語です","chunk_chars":2}]"#, "日本|語で|す|<stop>"),
        (r#"[{"text":"a b c","delay_ms":5},{"text":"d e"}]"#, "a |+5|b |+5|c|d |e|<stop>"),
        (r#"[{"reasoning":"hm"},{"delay_ms":7},{"refusal":"never"}]"#, "(hm)|+7|no:never|<stop>"),
        (r#"[{"repeat":{"text":"ab ","times":3}}]"#, "ab |ab |ab |<stop>"),
        (
            r#"[{"tool_call":{"name":"f","arguments":{"a":"{{user}}","n":[1]}}}]"#,
            r#"call0::f {"a":"Hello","n":[1]}|<tool_calls>"#,
        ),
        (
            r#"[{"tool_call":{"name":"f","id":"x"}},{"tool_call":{"name":"g","raw_arguments":"{{"}}]"#,
            "call0:x:f call1::g {{|<tool_calls>",
        ),
        (r#"[{"text":"a"},{"error":{"kind":"broken"}}]"#, "a|!Broken"),
        (r#"[{"text":"a"},{"end_without_finish":true}]"#, "a|"),
        (r#"[{"text":"a"},{"stall":true}]"#, "a|<stall>"),
        (r#"[{"wait_for":"go-{{call}}"},{"text":"a"}]"#, "wait:go-0|a|<stop>"),
        (r#"[{"text":"a"},{"finish":{"reason":"content_filter"}}]"#, "a|<content_filter>"),
        (r#"[{"tool_call":{"name":"f"}},{"finish":{"reason":"length"}}]"#, "call0::f <length>"),
    ];
    for (actions, expected) in table {
        assert_eq!(shown(&beats(&saying(actions), hello())), expected, "{actions}");
    }
}

#[test]
fn values_are_escaped_in_arguments() {
    let provider = saying(r#"[{"tool_call":{"name":"f","arguments":{"say":"<{{user}}>"}},"chunk_chars":1000}]"#);
    let beats = beats(&provider, asked("test", vec![user("\"a\\\n\u{1}")], &[]));
    assert_eq!(shown(&beats), "call0::f {\"say\":\"<\\\"a\\\\\\n\\u0001>\"}|<tool_calls>");
}

#[test]
fn usage_is_estimated_given_or_not_reported() {
    let usage = |actions| finish_of(&beats(&saying(actions), hello())).usage;
    let estimated = |output, reasoning| Some(Usage { input: 4 + 2 + 3, output, reasoning, ..Usage::default() });
    let table = [
        (r#"[{"text":"12345678"}]"#, estimated(2, 0)),
        (r#"[{"reasoning":"12345678"},{"text":"1234"}]"#, estimated(3, 2)),
        (r#"[{"tool_call":{"name":"read"}},{"finish":{}}]"#, estimated(1, 0)),
        (r#"[{"finish":{"usage":null}}]"#, None),
        (
            r#"[{"finish":{"usage":{"input":10,"output":5,"reasoning":2,"cache_read":4,"cache_write":1}}}]"#,
            Some(Usage {
                input: 10,
                output: 5,
                reasoning: 2,
                cache_read: 4,
                cache_write: 1,
                provider_tool_calls: 0,
                provider_json: String::new(),
            }),
        ),
    ];
    for (actions, expected) in table {
        assert_eq!(usage(actions), expected, "{actions}");
    }
}

#[test]
fn an_error_carries_what_the_script_says() {
    let provider = saying(
        r#"[{"error":{"kind":"rate_limited","message":"slow down","status":429,"code":"rpm","retry_after_ms":1500,"times":1}}]"#,
    );
    let expected = Error {
        kind: Kind::RateLimited,
        provider: "scripted".to_owned(),
        message: "slow down".to_owned(),
        status: 429,
        code: "rpm".to_owned(),
        request_id: String::new(),
        retry_after: Some(Duration::from_millis(1500)),
        should_retry: None,
    };
    assert_eq!(beats(&provider, hello()), [PlaybackEvent::Fail(expected)]);
    assert_eq!(shown(&beats(&provider, hello())), "<stop>");
}

#[test]
fn echo_action_answers_with_the_prompt_as_json() {
    let provider = saying(r#"[{"echo_prompt":true}]"#);
    let messages = vec![user("Hi there"), calls(&["read"]), results(&[("read", "ok")])];
    let settings = Generation {
        temperature: Temperature::new(0.5),
        stop_sequences: vec!["END".to_owned()],
        reasoning_effort: Some(ReasoningEffort::Low),
        tool_choice: Some(ToolChoice::Tool("read".to_owned())),
        ..Generation::default()
    };
    let prompt = Prompt { generation: settings, ..Prompt::clone(&asked("test", messages, &["read"])) };
    let echo: serde_json::Value = serde_json::from_str(&text_of(&beats(&provider, Arc::new(prompt)))).unwrap();
    let expected = serde_json::json!({
        "model": "test",
        "system": "",
        "messages": [
            {"role": "user", "parts": [{"text": "Hi there"}]},
            {"role": "assistant", "parts": [{"tool_call": {"call_id": "read", "tool_name": "read", "arguments_json": "{}"}}]},
            {"role": "tool", "parts": [{"tool_result": {"call_id": "read", "tool_name": "read", "outcome": "success", "texts": ["ok"]}}]},
        ],
        "tools": ["read"],
        "max_output_tokens": null,
        "generation": {
            "temperature": 0.5,
            "stop_sequences": ["END"],
            "reasoning_effort": "low",
            "tool_choice": {"tool_name": "read"},
        },
    });
    assert_eq!(echo, expected);
}

#[test]
fn only_the_newest_prompts_are_kept_and_only_when_asked_for() {
    let quiet = saying("[]");
    beats(&quiet, hello());
    assert!(quiet.prompts().is_empty());

    let provider = saying("[]").with_log();
    let handle = provider.clone();
    for number in 0..70 {
        beats(&provider, asked("test", vec![user(&number.to_string())], &[]));
    }
    let prompts = handle.prompts();
    assert_eq!(prompts.len(), 64);
    assert_eq!(prompts[0].transcript.messages()[0], user("6"));
}

#[tokio::test]
async fn a_stream_ends_after_its_finish_or_its_error() {
    let provider = saying(r#"[{"text":"a"},{"error":{"kind":"timeout","times":1}},{"text":"b"}]"#);
    let first: Vec<_> = provider.call(hello()).collect().await;
    assert_eq!(first[0], Ok(Chunk::Text("a".to_owned())));
    assert_eq!(first[1].as_ref().unwrap_err().kind, Kind::Timeout);
    assert_eq!(first.len(), 2);

    let second: Vec<_> = provider.call(hello()).collect().await;
    assert_eq!(second[1], Ok(Chunk::Text("b".to_owned())));
    assert!(matches!(second[2], Ok(Chunk::Finished(_))));
    assert_eq!(second.len(), 3);

    let unknown: Vec<_> = provider.call(asked("none", vec![], &[])).collect().await;
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].is_err());
}

#[tokio::test]
async fn nothing_happens_before_the_stream_is_polled() {
    let provider = saying(r#"[{"error":{"kind":"overloaded","times":1}}]"#).with_log();
    drop(provider.call(hello()));
    assert!(provider.prompts().is_empty());
    assert!(provider.call(hello()).next().await.unwrap().is_err());
    assert_eq!(provider.prompts().len(), 1);
}

#[tokio::test]
async fn a_stalled_answer_can_be_dropped() {
    let provider = saying(r#"[{"text":"a"},{"stall":true}]"#);
    let mut answer = provider.call(hello());
    assert!(answer.next().await.unwrap().is_ok());
    assert_eq!(answer.next().now_or_never(), None);
    drop(answer);
    assert_eq!(Arc::strong_count(&provider.scripts), 1, "the dropped stream let go of everything");
}

#[tokio::test]
async fn a_signal_lets_waiting_and_later_answers_go_on() {
    let provider = saying(r#"[{"wait_for":"go"},{"text":"a"}]"#);
    let mut waiting = provider.call(hello());
    assert_eq!(waiting.next().now_or_never(), None);
    provider.release("other");
    assert_eq!(waiting.next().now_or_never(), None);
    provider.release("go");
    assert_eq!(waiting.next().await, Some(Ok(Chunk::Text("a".to_owned()))));
    let mut later = provider.clone().call(hello());
    assert_eq!(later.next().await, Some(Ok(Chunk::Text("a".to_owned()))));
}

#[tokio::test]
async fn chunks_keep_their_interval() {
    let provider = saying(r#"[{"text":"a b c","delay_ms":15}]"#);
    let mut answer = provider.call(hello());
    let begin = Instant::now();
    assert!(answer.next().now_or_never().is_some(), "the first piece comes at once");
    assert_eq!(answer.next().now_or_never(), None, "the second does not");
    assert_eq!(answer.count().await, 3);
    assert!(begin.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn a_long_answer_lets_other_tasks_run() {
    let provider = saying(r#"[{"repeat":{"text":"word ","times":10000}}]"#);
    let mut answer = provider.call(hello());
    let mut polls = 0;
    let whole = std::future::poll_fn(|context| {
        polls += 1;
        while let std::task::Poll::Ready(item) = answer.as_mut().poll_next(context) {
            if item.is_none() {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    });
    whole.await;
    assert!(polls > 10, "{polls}");
}

proptest! {
    #[test]
    fn chunks_add_up_to_the_text(text in "[a é\\n日]{0,40}", chars in 1u32..6, words in any::<bool>()) {
        let chunk = if words { String::new() } else { format!(r#","chunk_chars":{chars}"#) };
        let text_json = serde_json::Value::String(text.clone());
        let beats = beats(&saying(&format!(r#"[{{"text":{text_json}{chunk}}}]"#)), hello());
        prop_assert_eq!(text_of(&beats), text);
    }
}
