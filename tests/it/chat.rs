//! `contextd chat`, the built program, with a server in a separate process: in scripts, in a terminal, and across a
//! restart.

use contextd::pb;
use serde_json::{Value, json};

use crate::harness::{
    TestDatabase,
    events::message_text,
    process::{Place, Served},
    requests::turn,
    terminal::{Terminal, chat_output},
};

/// A short lease, so that a lost process is detected soon.
const SHORT_LEASE: &str = "[turn]\nlease_ttl = '2s'\npoll_interval = '50ms'\n";

const WORDS: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen \
                     eighteen nineteen twenty";

/// A response of twenty words that takes more than half a second.
fn slow() -> Value {
    json!({ "steps": [{ "say": [{ "reasoning": "Let me count." }, { "text": WORDS, "delay_ms": 30 }] }] })
}

/// The words of the response on a screen, without status lines.
fn words_of(screen: &str) -> Vec<&str> {
    screen.lines().filter(|line| !is_aside(line)).flat_map(str::split_whitespace).collect()
}

fn is_aside(line: &str) -> bool {
    ["(", "-> ", "<- ", "context: ", "to continue: ", "Let me count."].iter().any(|start| line.starts_with(start))
}

async fn messages(served: &Served, session: &str) -> Vec<pb::Message> {
    let request = pb::ListMessagesRequest { session_id: session.to_owned(), ..pb::ListMessagesRequest::default() };
    served.sessions().await.list_messages(request).await.unwrap().into_inner().messages
}

async fn newest_turn(served: &Served, session: &str) -> pb::Turn {
    let request = pb::ListTurnsRequest { session_id: session.to_owned(), ..pb::ListTurnsRequest::default() };
    served.turns().await.list_turns(request).await.unwrap().into_inner().turns.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_turn_with_two_tools_runs_non_interactively() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let question = "What is the weather and time in Paris?";
    let output = chat_output(served.address, &["--session", "trip", "--once", question]).await;
    let aside = String::from_utf8(output.stderr).unwrap();
    let answer = "\
Let me look.
Here is what I found for Paris.

Weather: 18 °C and sunny in Paris (made-up demo data)
Local time: 14:05 in Paris (made-up demo data)

Have a good trip!
";
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stdout).unwrap().as_str()),
        (Some(0), answer),
        "{aside}"
    );
    let lines: Vec<&str> = aside.lines().collect();
    assert_eq!(lines[0], "The user asks about Paris. Weather and time can be looked up at once.");
    assert_eq!(lines[1..3], ["-> get_weather {\"city\":\"Paris\"}", "-> get_time {\"city\":\"Paris\"}"]);
    let mut results = lines[3..5].to_vec();
    results.sort_unstable();
    let made_up = [
        "<- get_time: 14:05 in Paris (made-up demo data)",
        "<- get_weather: 18 °C and sunny in Paris (made-up demo data)",
    ];
    assert_eq!(results, made_up);
    let used = newest_turn(&served, "trip").await.result.unwrap().last_step_usage.unwrap();
    let total = used.total_tokens;
    let input = used.input_tokens;
    let output = used.output_tokens;
    let holds = format!("context: {total} of 16,000 tokens (1%); last call {input} in, {output} out; 4 messages");
    assert_eq!(lines[5..], [holds.as_str(), "to continue: contextd chat --session trip"]);

    let again = chat_output(served.address, &["--session", "trip", "--once", "Hello"]).await;
    assert!(String::from_utf8(again.stdout).unwrap().starts_with("Hello! I am the demo of contextd"));
    assert!(String::from_utf8(again.stderr).unwrap().contains("; 6 messages\n"));
    assert_eq!(messages(&served, "trip").await.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_continues_an_answer_after_its_server_was_killed_and_restarted() {
    let place = Place::new(SHORT_LEASE).script("slow", &slow());
    let served = place.serve().await;
    let address = served.address;
    let mut terminal = Terminal::chat(address, &["--session", "count", "--model", "scripted/slow", "--once", "Count"]);
    terminal.shows("three").await;
    served.kill_9().await;
    terminal.shows("(connection lost; reconnecting ...)").await;
    let served = place.serve_at(address).await;
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(words_of(&screen).join(" "), WORDS, "{screen}");
    assert_eq!(screen.matches("Let me count.").count(), 1, "{screen}");
    assert_eq!(screen.matches("reconnecting").count(), 1, "{screen}");
    let messages = messages(&served, "count").await;
    assert_eq!(messages.len(), 2, "one turn, asked for once");
    assert_eq!(message_text(&messages[1]), WORDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_the_turn_and_keeps_its_text() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("slow", &slow());
    let served = place.serve_over(&database).await;
    let mut terminal =
        Terminal::chat(served.address, &["--session", "count", "--model", "scripted/slow", "--once", "Count"]);
    terminal.shows("three").await;
    terminal.interrupt();
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(1), "{screen}");
    assert!(
        screen.contains("(cancelling; press Ctrl-C again to exit)\n") && screen.contains("(cancelled)\n"),
        "{screen}"
    );
    let turn = newest_turn(&served, "count").await;
    assert_eq!((turn.state(), turn.cancel_cause()), (pb::TurnState::Cancelled, pb::CancelCause::Requested));
    let kept = message_text(&messages(&served, "count").await[1]);
    assert_eq!(words_of(&screen).join(" "), kept.trim_end(), "{screen}");
    assert!(WORDS.starts_with(&kept) && kept.len() < WORDS.len(), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_pressed_twice_exits_even_if_the_server_is_down() {
    let stall = json!({ "steps": [{ "say": [{ "text": "Hm." }, { "stall": true }] }] });
    let place = Place::new(SHORT_LEASE).script("stall", &stall);
    let served = place.serve().await;
    let mut terminal = Terminal::chat(served.address, &["--model", "scripted/stall", "--once", "Count"]);
    terminal.shows("Hm.").await;
    served.kill_9().await;
    terminal.shows("reconnecting").await;
    terminal.interrupt();
    terminal.shows("(cancelling").await;
    terminal.interrupt();
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(130), "{screen}");
    assert!(
        screen.contains("(the turn continues in the background)\nto continue: contextd chat --session "),
        "{screen}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_runs_turns_shows_history_and_exits() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let mut terminal = Terminal::chat(served.address, &["--session", "talk", "--system", "Be brief."]);
    let dialogue: [(&str, &[&str]); 9] = [
        ("What is the time in Rome?", &["Have a good trip!\n", "; 4 messages\n"]),
        ("/history", &["you: What is the time in Rome?\n", "\ntools: <- get_"]),
        ("/model scripted/nobody", &["(using scripted/nobody from the next message on)\n"]),
        ("Are you there?", &["(MODEL_NOT_FOUND)\n"]),
        ("/nonsense", &["unknown command: /nonsense"]),
        ("/model scripted/demo", &["(using scripted/demo from the next message on)\n"]),
        ("Hello", &["; 6 messages\n"]),
        ("/stats", &["Context of scripted/demo\n", "Computed from "]),
        ("/new", &["(a new conversation)\n"]),
    ];
    for (number, (typed, shown)) in (1..).zip(dialogue) {
        terminal.asks(number).await;
        terminal.types(typed);
        for text in shown {
            terminal.shows(text).await;
        }
    }
    terminal.asks(10).await;
    terminal.types("Hello");
    terminal.shows("; 2 messages\n").await;
    terminal.asks(11).await;
    terminal.presses("\x04");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    let last = screen.lines().last().unwrap();
    assert!(last.starts_with("to continue: contextd chat --session ") && !last.ends_with("talk"), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_first_follows_a_turn_that_already_runs() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("slow", &slow());
    let served = place.serve_over(&database).await;
    let mut turns = served.turns().await;
    let request = pb::ExecuteTurnRequest { model: "scripted/slow".to_owned(), ..turn("busy", "", "Count") };
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    stream.message().await.unwrap();
    let output = chat_output(served.address, &["--session", "busy", "--once", "Hello"]).await;
    let answer = String::from_utf8(output.stdout).unwrap();
    let aside = String::from_utf8(output.stderr).unwrap();
    assert!(aside.starts_with("(a turn is running in this session)\n"), "{aside}");
    assert!(answer.starts_with(&format!("{WORDS}\nHello! I am the demo")), "{answer} {aside}");
    assert_eq!(messages(&served, "busy").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_errors_in_a_script_exit_with_code_1() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let address = served.address;
    let told = async |args: &[&str]| {
        let output = chat_output(address, args).await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(&["--once", "Hello", "--model", "nobody/knows"]).await.contains("(MODEL_NOT_FOUND)"));
    assert!(told(&["--once", "Hello", "--session", "not an id"]).await.contains("session_id: "));
    assert!(told(&["--once", " "]).await.contains("the message is empty"));
    assert!(told(&[]).await.contains("the message is empty"), "stdin is empty");
    served.stop().await;
    assert!(told(&["--once", "Hello"]).await.contains(&format!("cannot reach {address}")));
}

// --- Typing while the agent works
// ------------------------------------------------------------------------------------

/// Writes a response slowly, unless the prompt mentions tests.
fn slow_unless_asked() -> Value {
    json!({ "steps": [
        { "when": { "user_contains": "tests" }, "say": [{ "text": "And the tests are fine." }] },
        { "say": [{ "text": WORDS, "delay_ms": 60 }] }
    ] })
}

/// Whether a screen contains these texts in this order.
fn in_order(screen: &str, texts: &[&str]) -> bool {
    texts.is_sorted_by_key(|text| screen.find(text).unwrap_or_else(|| panic!("{text} is not on {screen}")))
}

/// Row D10: input typed while the agent works is applied to the same turn.
#[tokio::test(flavor = "multi_thread")]
async fn input_typed_during_a_turn_is_queued_and_applied() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("slow", &slow_unless_asked());
    let served = place.serve_over(&database).await;
    let mut terminal = Terminal::chat(served.address, &["--session", "type", "--model", "scripted/slow"]);
    terminal.asks(1).await;
    terminal.types("Count");
    terminal.shows("three").await;
    terminal.types("Look at the tests too");
    terminal.shows("(queued at position 1)\n").await;
    terminal.types("/stats");
    terminal.shows("(while a turn is running, only messages and /quit are accepted)\n").await;
    terminal.shows("; 4 messages\n").await;
    terminal.asks(4).await;
    terminal.presses("\x04");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    let order = [
        "three",
        "(queued at position 1)\n",
        "twenty",
        "(sent to the model: Look at the tests too)\n",
        "And the tests are fine.\n",
    ];
    assert!(in_order(&screen, &order), "{screen}");
    assert_eq!(screen.matches("(queued").count(), 1, "{screen}");
    let messages = messages(&served, "type").await;
    assert_eq!(messages.iter().map(message_text).collect::<Vec<_>>()[1..3], [WORDS, "Look at the tests too"]);
    assert_eq!(messages[0].turn_id, messages[3].turn_id, "one turn");
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn input_typed_before_a_cancel_goes_into_the_next_turn() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("slow", &slow_unless_asked());
    let served = place.serve_over(&database).await;
    let mut terminal = Terminal::chat(served.address, &["--session", "stop", "--model", "scripted/slow"]);
    terminal.asks(1).await;
    terminal.types("Count");
    terminal.shows("two").await;
    terminal.types("Look at the tests too");
    terminal.shows("(queued at position 1)\n").await;
    terminal.interrupt();
    terminal.shows("(1 message is queued; it is sent with your next one)\n").await;
    terminal.asks(3).await;
    terminal.types("Go on");
    terminal.shows("(sent to the model: Look at the tests too)\n").await;
    terminal.shows("And the tests are fine.\n").await;
    terminal.asks(4).await;
    terminal.types("/quit");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn unsent_input_is_listed_on_exit() {
    let place = Place::new(SHORT_LEASE).script("slow", &slow_unless_asked());
    for (begun, expected) in
        [(false, "\nnot sent: Look at the tests too\n"), (true, "\nmay not have been sent: Look at the tests too\n")]
    {
        let served = place.serve().await;
        let mut terminal = Terminal::chat(served.address, &["--session", "leave", "--model", "scripted/slow"]);
        terminal.asks(1).await;
        if begun {
            terminal.types("Count");
            terminal.shows("two").await;
            served.kill_9().await;
        } else {
            served.kill_9().await;
            terminal.types("Count");
        }
        terminal.shows("(connection lost; reconnecting ...)\n").await;
        terminal.types("Look at the tests too");
        terminal.shows("(kept until the server is available again)\n").await;
        terminal.interrupt();
        terminal.shows("(cancelling; press Ctrl-C again to exit)\n").await;
        terminal.interrupt();
        let (_, screen) = terminal.ended().await;
        assert!(screen.contains(expected), "{screen}");
    }
}

/// The steps that the demo's manual suggests.
#[tokio::test(flavor = "multi_thread")]
async fn demo_applies_a_message_sent_while_it_answers() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let mut terminal = Terminal::chat(served.address, &["--session", "hint"]);
    terminal.asks(1).await;
    terminal.types("Tell me slowly about Rome.");
    terminal.shows("Rome is worth").await;
    terminal.types("Keep it short, please.");
    terminal.shows("(sent to the model: Keep it short, please.)\n").await;
    terminal.shows("In short: ").await;
    terminal.asks(3).await;
    terminal.types("/quit");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
}

// --- Approvals
// -----------------------------------------------------------------------------------------------------

const BOTH: &str = "What is the weather and time in Paris?";

#[tokio::test(flavor = "multi_thread")]
async fn chat_user_approves_one_call_and_denies_another() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let mut terminal = Terminal::chat(served.address, &["--session", "ask", "--approve-tools", "--once", BOTH]);
    terminal.asks(1).await;
    terminal.types("perhaps");
    terminal.asks(2).await;
    terminal.types("y");
    terminal.asks(3).await;
    terminal.types("n");
    terminal.asks(4).await;
    terminal.types("It is late.");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    let order = [
        "?  get_weather {\"city\":\"Paris\"} needs approval\n",
        "?  get_time {\"city\":\"Paris\"} needs approval\n",
        "<- get_time denied: ",
    ];
    assert!(order.is_sorted_by_key(|text| screen.find(text).expect(text)), "{screen}");
    assert!(screen.contains("-> get_weather ") && !screen.contains("-> get_time "), "{screen}");
    assert!(screen.contains("\nWeather: 18 °C and sunny in Paris (made-up demo data)\n"), "{screen}");
    assert!(screen.contains("It is late.\n\nHave a good trip!\n"), "the model is told why: {screen}");
    assert_eq!(messages(&served, "ask").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_user_edits_the_arguments_of_a_call() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let question = "What is the weather in Paris?";
    let mut terminal = Terminal::chat(served.address, &["--approve-tools", "--once", question]);
    terminal.asks(1).await;
    terminal.types("e");
    terminal.asks(2).await;
    terminal.shows("arguments: {\"city\":\"Paris\"}").await;
    terminal.types("\x15not an object");
    terminal.asks(3).await;
    terminal.types("\x15{\"city\":\"Rome\"}");
    terminal.asks(4).await;
    terminal.types("no");
    terminal.asks(5).await;
    terminal.types("");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("-> get_weather {\"city\":\"Rome\"} (arguments edited)\n"), "{screen}");
    assert!(screen.contains("18 °C and sunny in Rome (made-up demo data)\n"), "{screen}");
    assert!(screen.contains("The user does not want this call to run."), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_a_call_is_denied_and_the_turn_goes_on() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    let output = chat_output(served.address, &["--approve-tools", "--once", BOTH]).await;
    let answer = String::from_utf8(output.stdout).unwrap();
    let aside = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{aside}");
    assert!(!aside.contains("-> "), "a tool ran: {aside}");
    assert_eq!(answer.matches("There is no terminal at which this call could be approved.").count(), 2, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_survives_a_killed_server_while_waiting_for_input() {
    let place = Place::new(SHORT_LEASE);
    let served = place.serve().await;
    let address = served.address;
    let mut terminal = Terminal::chat(address, &["--session", "think", "--approve-tools", "--once", BOTH]);
    terminal.asks(1).await;
    served.kill_9().await;
    let served = place.serve_at(address).await;
    terminal.types("yes");
    terminal.asks(2).await;
    terminal.types("yes");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    for once in ["?  get_weather", "?  get_time", "-> get_weather", "-> get_time", "Let me look.", "Have a good trip!"]
    {
        assert_eq!(screen.matches(once).count(), 1, "{once}: {screen}");
    }
    assert_eq!(messages(&served, "think").await.len(), 4);
}
