//! Runs docs/bring-your-own-loop.md and docs/import.md as written: each call in order, with the documented response.

use std::{collections::BTreeMap, fs, path::Path};

use contextd::pb::DESCRIPTOR_SET;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;

use crate::{
    harness::{Host, Options, raw, upstream::Upstream},
    protocols::speaks::Protocol,
};

/// A call of the page: the RPC, the request, and the documented part of the response.
struct Step {
    rpc: String,
    request: String,
    answer: String,
}

/// The steps of a page: `grpcurl -d '...' ADDRESS RPC`, followed by a block of JSON.
fn steps(page: &str) -> Vec<Step> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let page = fs::read_to_string(page).unwrap();
    let mut blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut steps = Vec::new();
    while let Some((language, command)) = blocks.next() {
        if language != "sh" || !command.contains("grpcurl") || command.contains("-d @") {
            continue;
        }
        let (before, rest) = command.split_once("-d '").unwrap();
        assert!(before.trim() == "grpcurl -plaintext", "{before}");
        let (request, rest) = rest.split_once("' ").unwrap();
        let rpc = rest.split_whitespace().last().unwrap().to_owned();
        let (language, answer) = blocks.next().unwrap();
        assert_eq!(language, "json", "{rpc} has no answer");
        steps.push(Step { rpc, request: request.to_owned(), answer: answer.to_owned() });
    }
    steps
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTOR_SET).unwrap()
}

/// Makes a call like grpcurl.
async fn call(host: &Host, rpc: &str, request: &str) -> Value {
    let (service, method) = rpc.split_once('/').unwrap();
    let pool = pool();
    let service = pool.get_service_by_name(service).unwrap();
    let method = service.methods().find(|it| it.name() == method).unwrap();
    let mut json = serde_json::Deserializer::from_str(request);
    let request =
        DynamicMessage::deserialize(method.input(), &mut json).unwrap_or_else(|error| panic!("{rpc}: {error}"));
    let answer = raw::call(host.replica.channel().await, rpc, request.encode_to_vec()).await;
    let answer = DynamicMessage::decode(method.output(), &*answer.unwrap_or_else(|status| panic!("{rpc}: {status:?}")));
    serde_json::to_value(answer.unwrap()).unwrap()
}

/// Fails unless the response contains everything in the documented part. `"$NAME"` is a placeholder for a value that
/// differs between runs and is stored under that name.
fn check(shown: &Value, came: &Value, kept: &mut BTreeMap<String, String>, at: &str) {
    match (shown, came) {
        (Value::Object(shown), Value::Object(came)) => {
            for (key, shown) in shown {
                let came = came.get(key).unwrap_or_else(|| panic!("{at}.{key} did not come: {came:?}"));
                check(shown, came, kept, &format!("{at}.{key}"));
            }
        }
        (Value::Array(shown), Value::Array(came)) => {
            assert_eq!(shown.len(), came.len(), "{at}");
            for (n, (shown, came)) in shown.iter().zip(came).enumerate() {
                check(shown, came, kept, &format!("{at}[{n}]"));
            }
        }
        (Value::String(name), came) if name.starts_with('$') => {
            let came = came.as_str().map_or_else(|| came.to_string(), str::to_owned);
            let known = kept.entry(name.clone()).or_insert_with(|| came.clone());
            assert_eq!(*known, came, "{at}");
        }
        (shown, came) => assert_eq!(shown, came, "{at}"),
    }
}

/// Makes the calls of a page and returns their RPCs.
async fn follow(host: &Host, page: &str) -> Vec<String> {
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    let mut made = Vec::new();
    for Step { rpc, mut request, answer } in steps(page) {
        for (name, value) in &kept {
            request = request.replace(name.as_str(), value);
        }
        let came = call(host, &rpc, &request).await;
        check(&serde_json::from_str(&answer).unwrap(), &came, &mut kept, &rpc);
        made.push(rpc.rsplit('/').next().unwrap().to_owned());
    }
    made
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn the_import_and_export_calls_in_the_docs_work() {
    let upstream = Upstream::start().await;
    let provider = Protocol::Anthropic.provider(&upstream);
    let host = Host::with(Options::default().provider("anthropic", provider)).await;
    let made = follow(&host, "docs/import.md").await;
    assert_eq!(made.len(), 8, "{made:?}");
}

/// Row S12
#[tokio::test(flavor = "multi_thread")]
async fn bring_your_own_loop_example_in_the_docs_works() {
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai")).await;
    let made = follow(&host, "docs/bring-your-own-loop.md").await;
    let round = ["PrepareContext", "AppendMessages", "RecordUsage"];
    let expected =
        [&["CreateSession", "AppendMessages"][..], &round, &["AppendMessages"], &round, &["GetContextStats"]];
    assert_eq!(made, expected.concat());
    assert!(upstream.requests().is_empty(), "contextd calls no model here");
    let host_tools = host.session("chat").await.tools.unwrap().host_tools;
    assert_eq!(host_tools.len(), 1);
}
