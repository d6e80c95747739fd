//! Lists, page by page: every item once, in order, and no page too large for a client.

use contextd::pb::{session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient};
use contextd::{
    model::{Seq, SessionId, SessionKey, TenantId},
    pb::{self, MessageView},
    store::message::{Page, View},
};
use prost::Message as _;
use tonic::transport::Channel;

use crate::harness::{
    Host, Options, Replica, TestDatabase, as_worker,
    events::{all, durable},
    host::MODEL,
    requests::{enqueue, tool, turn},
};

/// Maximum bytes of a page. Clients accept 4 MiB by default.
const LARGEST: usize = 2 * 1024 * 1024;
const TALKS: &str = r#"{"steps": [{"say": [{"text": "Fine."}]}]}"#;

/// A session with one turn per text.
async fn session(words: &[String]) -> (TestDatabase, Replica, Vec<pb::Event>) {
    let (database, replica) = Replica::alone(Options::default().script("talks", TALKS)).await;
    let mut turns = replica.turns().await;
    let mut events = Vec::new();
    for words in words {
        let request = turn("chat", "scripted/talks", words);
        events.extend(all(&mut turns.execute_turn(request).await.unwrap().into_inner()).await);
    }
    (database, replica, events)
}

fn short(turns: usize) -> Vec<String> {
    (0..turns).map(|i| format!("Hello {i}")).collect()
}

/// Texts of which two fit into a page and three do not.
fn long(turns: usize) -> Vec<String> {
    (0..turns).map(|i| format!("{i}{}", "x".repeat(900 * 1024))).collect()
}

fn view(view: MessageView, newest_first: bool) -> pb::ListMessagesRequest {
    pb::ListMessagesRequest { view: view.into(), newest_first, ..Default::default() }
}

/// All pages of messages.
async fn messages(
    sessions: &mut SessionServiceClient<Channel>,
    request: &pb::ListMessagesRequest,
    page_size: i32,
) -> Vec<pb::ListMessagesResponse> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request =
            pb::ListMessagesRequest { session_id: "chat".to_owned(), page_size, page_token, ..request.clone() };
        let page = sessions.list_messages(request).await.unwrap().into_inner();
        page_token = page.next_page_token.clone();
        pages.push(page);
        if page_token.is_empty() {
            return pages;
        }
    }
}

/// All pages of events.
async fn events(turns: &mut TurnServiceClient<Channel>, turn_id: &str, page_size: i32) -> Vec<pb::ListEventsResponse> {
    let mut pages = Vec::<pb::ListEventsResponse>::new();
    let mut after_seq = 0;
    loop {
        let request =
            pb::ListEventsRequest { session_id: "chat".to_owned(), turn_id: turn_id.to_owned(), after_seq, page_size };
        let page = turns.list_events(request).await.unwrap().into_inner();
        after_seq = page.next_after_seq;
        let more = after_seq != page.last_seq;
        pages.push(page);
        if !more {
            return pages;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_listed_once_whatever_the_page() {
    let (_database, replica, events) = session(&short(4)).await;
    let mut sessions = replica.sessions().await;
    let committed: Vec<&pb::Message> = crate::harness::events::messages(&events);
    for (which, newest_first) in
        [(MessageView::All, false), (MessageView::All, true), (MessageView::Live, false), (MessageView::Live, true)]
    {
        let mut expected = committed.clone();
        if newest_first {
            expected.reverse();
        }
        for page_size in [0, 1, 2, 3, 4, 5, 8, 1_000, i32::MAX] {
            let pages = messages(&mut sessions, &view(which, newest_first), page_size).await;
            let full = pages.len() - 1;
            assert!(pages[..full].iter().all(|page| page.messages.len() == page_size as usize), "{page_size}");
            assert!(pages.iter().all(|page| !page.messages.is_empty()), "an empty page of {page_size}");
            let listed: Vec<&pb::Message> = pages.iter().flat_map(|page| &page.messages).collect();
            assert_eq!(listed, expected, "{which:?}, newest first: {newest_first}, in pages of {page_size}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_ends_at_a_page_boundary_has_no_empty_page() {
    let (_database, replica, _) = session(&short(25)).await;
    let mut sessions = replica.sessions().await;
    for page_size in [0, 25, 50] {
        let pages = messages(&mut sessions, &view(MessageView::All, false), page_size).await;
        let sizes: Vec<usize> = pages.iter().map(|page| page.messages.len()).collect();
        let expected = if page_size == 25 { vec![25, 25] } else { vec![50] };
        assert_eq!(sizes, expected, "in pages of {page_size}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_long_messages_stays_small() {
    let words = long(5);
    let (_database, replica, _) = session(&words).await;
    let mut sessions = replica.sessions().await;
    for newest_first in [false, true] {
        let pages = messages(&mut sessions, &view(MessageView::All, newest_first), 1_000).await;
        assert_eq!(pages.len(), 3);
        assert!(pages.iter().all(|page| page.encoded_len() <= LARGEST));
        let mut seqs: Vec<i64> = pages.iter().flat_map(|page| &page.messages).map(|message| message.seq).collect();
        assert_eq!(seqs.len(), 10);
        if newest_first {
            seqs.reverse();
        }
        assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_listed_once_whatever_the_page() {
    let (_database, replica, streamed) = session(&short(3)).await;
    let mut turns = replica.turns().await;
    let streamed: Vec<pb::Event> = durable(&streamed).into_iter().cloned().collect();
    let second = streamed[streamed.len() / 2].turn_id.clone();
    for turn_id in ["", second.as_str()] {
        let expected: Vec<&pb::Event> =
            streamed.iter().filter(|event| turn_id.is_empty() || event.turn_id == turn_id).collect();
        for page_size in [0, 1, 2, 3, 4, 5, 7, 1_000, i32::MAX] {
            let pages = events(&mut turns, turn_id, page_size).await;
            let listed: Vec<pb::Event> = pages
                .iter()
                .flat_map(|page| &page.events)
                .map(|event| pb::Event { replay: false, ..event.clone() })
                .collect();
            assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "of turn {turn_id:?} in pages of {page_size}");
            assert!(pages.iter().all(|page| page_size == 0 || page.events.len() <= page_size as usize));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_long_events_stays_small() {
    let (_database, replica, streamed) = session(&long(5)).await;
    let mut turns = replica.turns().await;
    let pages = events(&mut turns, "", 1_000).await;
    assert!(pages.len() >= 3, "{} pages", pages.len());
    assert!(pages.iter().all(|page| page.encoded_len() <= LARGEST));
    let listed: Vec<i64> = pages.iter().flat_map(|page| &page.events).map(|event| event.seq).collect();
    assert_eq!(listed, durable(&streamed).iter().map(|event| event.seq).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_turn_is_listed_once_newest_first() {
    let (_database, replica, streamed) = session(&short(6)).await;
    let mut turns = replica.turns().await;
    let mut expected: Vec<String> = durable(&streamed).iter().map(|event| event.turn_id.clone()).collect();
    expected.dedup();
    expected.reverse();
    for page_size in [0, 1, 2, 3, 4, 5, 6, 7] {
        let mut listed = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListTurnsRequest { session_id: "chat".to_owned(), page_size, page_token };
            let page = turns.list_turns(request).await.unwrap().into_inner();
            assert!(!page.turns.is_empty(), "an empty page of {page_size}");
            listed.extend(page.turns);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let ids: Vec<&str> = listed.iter().map(|turn| turn.turn_id.as_str()).collect();
        assert_eq!(ids, expected, "in pages of {page_size}");
        for turn in listed {
            let request = pb::GetTurnRequest { session_id: "chat".to_owned(), turn_id: turn.turn_id.clone() };
            assert_eq!(turns.get_turn(request).await.unwrap().into_inner().turn, Some(turn));
        }
    }
}

/// All pages of sessions, by their ids.
async fn sessions(host: &Host) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListSessionsRequest { page_size: 1_000, page_token, filter: None };
        let page = host.sessions().list_sessions(request).await.unwrap().into_inner();
        assert!(page.encoded_len() <= LARGEST + 64 * 1024, "a page of {} bytes", page.encoded_len());
        pages.push(page.sessions.into_iter().map(|session| session.session_id).collect());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return pages;
        }
    }
}

/// Row I11
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_sessions_reads_and_shows_a_bounded_number_of_bytes() {
    let host = Host::with(Options::default().script("it", TALKS)).await;
    let prompt = "x".repeat(1024 * 1024 - 1);
    let large = pb::Tool { description: "x".repeat(60_000), ..tool("look") };
    let tools = pb::ToolSet { host_tools: vec![large], ..pb::ToolSet::default() };
    let mut expected = Vec::new();
    for n in 0..20 {
        let session_id = format!("prompt-{n}");
        host.create(pb::Session {
            session_id: session_id.clone(),
            system_prompt: prompt.clone(),
            ..Default::default()
        })
        .await;
        expected.insert(0, session_id);
    }
    let read: Vec<usize> = sessions(&host).await.iter().map(Vec::len).collect();
    assert_eq!(read, [7, 7, 6], "8 MiB of configurations are read for a page");
    let labels: std::collections::HashMap<_, _> = (0..32).map(|n| (format!("label-{n}"), "x".repeat(1_000))).collect();
    for n in 0..100 {
        let session_id = format!("labels-{n}");
        let metadata = labels.clone().into_iter().collect();
        host.create(pb::Session {
            session_id: session_id.clone(),
            tools: Some(tools.clone()),
            metadata,
            ..Default::default()
        })
        .await;
        expected.insert(0, session_id);
    }
    let pages = sessions(&host).await;
    assert_eq!(pages.concat(), expected, "each once, the last used first");
    assert!(pages[0].len() > 50, "{} sessions: their tools take no room", pages[0].len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_turns_reads_a_bounded_number_of_bytes() {
    let host = Host::with(Options::default().script("it", TALKS)).await;
    let mut expected = Vec::new();
    for n in 0..6 {
        let tools = (0..40).map(|i| pb::Tool { description: "x".repeat(60_000), ..tool(&format!("tool-{n}-{i}")) });
        let tools = Some(pb::ToolSet { host_tools: tools.collect(), ..pb::ToolSet::default() });
        let events = host.run(pb::ExecuteTurnRequest { tools, ..turn("chat", MODEL, "Hello.") }).await;
        expected.insert(0, crate::harness::events::turn_id(&events));
    }
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListTurnsRequest { session_id: "chat".to_owned(), page_size: 1_000, page_token };
        let page = host.turns().list_turns(request).await.unwrap().into_inner();
        pages.push(page.turns.iter().map(|turn| turn.turn_id.clone()).collect::<Vec<_>>());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages.concat(), expected);
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3], "8 MiB of requests are read for a page");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_queued_messages_are_read_up_to_a_number_of_bytes() {
    let host = Host::with(Options::default().script("it", TALKS)).await;
    for words in long(3) {
        host.ask("chat", &words).await;
    }
    let key = SessionKey::new(TenantId::new("default"), SessionId::new("chat"));
    let store = host.replica.engine.store();
    for view in [View::All, View::Live] {
        for page in [Page::After(Seq(0)), Page::Before(Seq(i64::MAX))] {
            let read = async |limit, bytes| {
                let read = as_worker(store.messages_within(&key, view, None, page, (limit, bytes))).await.unwrap();
                (read.items.len(), read.more)
            };
            assert_eq!(read(16, 100 << 20).await, (6, false), "{view:?} {page:?}");
            assert_eq!(read(6, 100 << 20).await, (6, true), "{view:?} {page:?}: there may be more");
            let fits = if page == Page::After(Seq(0)) { 4 } else { 5 }; // the last message is short
            assert_eq!(read(16, 2 << 20).await, (fits, true), "{view:?} {page:?}");
            assert_eq!(read(16, 1).await, (1, true), "{view:?} {page:?}: one in any case");
        }
    }
    for words in long(3) {
        host.enqueue(enqueue("chat", &words)).await;
    }
    for (bytes, expected) in [(100 << 20, (3, false)), (2 << 20, (2, true)), (1, (1, true))] {
        let read = as_worker(store.queued(&key, 0, 16, bytes)).await.unwrap();
        assert_eq!((read.items.len(), read.more), expected, "{bytes} bytes of the queue");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_is_one_empty_page() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut sessions = replica.sessions().await;
    let mut turns = replica.turns().await;
    let none = sessions.list_sessions(pb::ListSessionsRequest::default()).await.unwrap().into_inner();
    assert_eq!(none, pb::ListSessionsResponse::default());
    let session = pb::Session { session_id: "chat".to_owned(), ..pb::Session::default() };
    let request = pb::CreateSessionRequest { session: Some(session), ..Default::default() };
    sessions.create_session(request).await.unwrap();
    let pages = messages(&mut sessions, &view(MessageView::Live, false), 2).await;
    assert_eq!(pages, [pb::ListMessagesResponse::default()]);
    assert_eq!(events(&mut turns, "", 2).await, [pb::ListEventsResponse::default()]);
    let request = pb::ListTurnsRequest { session_id: "chat".to_owned(), ..Default::default() };
    assert_eq!(turns.list_turns(request).await.unwrap().into_inner(), pb::ListTurnsResponse::default());
}
