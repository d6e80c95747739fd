//! `[providers.NAME]`: the configuration of a model service, the values that are refused, and that a key is never
//! written anywhere.

use std::{fs, path::PathBuf};

use contextd::{
    config::{self, Dialect, Environment, LoadedConfig, Origin, ProviderConfig, Sources, WELL_KNOWN_SERVICES},
    pb::{self, model_service_client::ModelServiceClient, turn_service_client::TurnServiceClient},
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::harness::{
    TestDatabase,
    events::{all, completed, failed, until_action},
    process::{Place, Served},
    requests::{result, submit, tools, turn},
    upstream::{KEY, Reply, Upstream, event, finished, said},
};

fn load(file: &str) -> Result<LoadedConfig, String> {
    load_with(file, &[])
}

fn load_with(file: &str, variables: &[(&str, &str)]) -> Result<LoadedConfig, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("contextd.toml");
    fs::write(&path, file).unwrap();
    let environment = Environment::new(variables.iter().copied());
    let sources = Sources { file: Some(path), environment, ..Sources::default() };
    config::load(&sources).map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"))
}

fn problems(file: &str) -> Vec<String> {
    let told = load(file).unwrap_err();
    told.lines().skip(1).map(|line| line.trim().to_owned()).collect()
}

const WHOLE: &str = "
    [models]
    default_model = 'main/gpt-4o'
    [providers.main]
    kind = 'openai'
    base_url = 'https://llm.example.org/v1'
    api_key = 's3cret-key'
    dialect = 'openrouter'
    organization = 'org-1'
    project = 'proj-1'
    developer_role = true
    connect_timeout = '3s'
    first_byte_timeout = '10m'
    stall_timeout = '30s'
    max_request_bytes = 4000000
    [providers.main.headers]
    HTTP-Referer = 's3cret-referer'
    [providers.main.models.'gpt-4o']
    context_window = 128000
    max_output = 16384
    [providers.main.models.'plain']
    context_window = 8000
    max_output = 1000
    supports_tools = false
    display_name = 'Plain'";

#[test]
fn a_service_is_configured_by_its_address_its_key_and_its_models() {
    let loaded = load(WHOLE).unwrap();
    let ProviderConfig::OpenAi(main) = &loaded.config.providers["main"] else { panic!("another kind") };
    assert_eq!((main.base_url.as_str(), main.dialect), ("https://llm.example.org/v1", Some(Dialect::OpenRouter)));
    assert_eq!(main.http.key(&Environment::default()).unwrap().unwrap().expose_secret(), "s3cret-key");
    assert_eq!(main.http.headers["HTTP-Referer"].expose_secret(), "s3cret-referer");
    assert_eq!((main.http.connect_timeout.as_secs(), main.http.stall_timeout.as_secs()), (3, 30));
    assert_eq!(main.http.max_request_bytes, Some(4_000_000));
    let tools = &main.models["gpt-4o"];
    let plain = &main.models["plain"];
    assert_eq!((tools.context_window, tools.max_output, tools.tools), (Some(128_000), Some(16_384), None));
    assert_eq!((plain.tools, plain.display_name.as_deref()), (Some(false), Some("Plain")));
    let ProviderConfig::Scripted(_) = &loaded.config.providers["scripted"] else { panic!("the shipped one is gone") };
}

/// Row D20
#[test]
fn fallback_models_of_a_policy_name_configured_providers_once() {
    let with = |models: &str| format!("{WHOLE}\n[policies.default]\nfallback_models = {models}");
    let loaded = load(&with("['main/gpt-5', 'scripted/demo']")).unwrap();
    assert_eq!(loaded.config.policies["default"].fallback_models, ["main/gpt-5", "scripted/demo"]);
    let table = [
        ("['elsewhere/m']", "no provider `elsewhere` is configured"),
        ("['gpt-5']", "must look like PROVIDER/MODEL"),
        ("['main/a', 'main/a']", "`main/a` is listed twice"),
        ("['main/a', 'main/b', 'main/c', 'main/d', 'main/e']", "5 is not between 0 and 4 models"),
    ];
    for (models, expected) in table {
        let told = problems(&with(models)).join("\n");
        assert!(told.contains("policies.default.fallback_models") && told.contains(expected), "{told}");
    }
}

#[test]
fn secrets_of_services_are_hidden_in_print_in_debug_output_and_in_errors() {
    let loaded = load(WHOLE).unwrap();
    let printed = config::print(&loaded);
    assert!(printed.contains("api_key = \"***\" # from"), "{printed}");
    assert!(printed.contains("HTTP-Referer = \"***\" # from"), "{printed}");
    assert!(printed.contains("stall_timeout = \"30s\" # from"), "{printed}");
    let service = "[providers.main]\nkind = 'openai'\n";
    let shown = [
        printed,
        format!("{loaded:?}"),
        load(&format!("{service}api_key = ['s3cret']")).unwrap_err(),
        load(&format!("{service}api_key = \"s3cret\\n\"")).unwrap_err(),
        load(&format!("{service}headers = 's3cret'")).unwrap_err(),
        load(&format!("{service}headers.x = ['s3cret']")).unwrap_err(),
        load(&format!("{service}headers.x = \"s3cret\\n\"")).unwrap_err(),
        load(&format!("{service}base_url = 'https://u:s3cret@host/v1'")).unwrap_err(),
    ];
    for text in shown {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn all_problems_of_a_provider_configuration_are_reported_together() {
    let file = "
        [providers.main]
        kind = 'openai'
        base_url = 'llm.example.org'
        api_key = 'k'
        api_key_env = 'K'
        connect_timeout = '1ms'
        headers.Host = 'other'
        headers.'bad name' = 'x'
        [providers.main.models.big]
        context_window = 10
        max_output = 11
        [providers.main.rules]
        reasoning_field = 'reasoning'
        reasoning_placeholder = true
        max_stop_sequences = 17
        [providers.keyless]
        kind = 'openai'";
    let from = "(from DIR/contextd.toml)";
    assert_eq!(
        problems(file),
        [
            format!("`providers.main.connect_timeout` {from}: 1ms is not between 100ms and 1h"),
            format!("`providers.main.rules.max_stop_sequences` {from}: 17 is not between 0 and 16 sequences"),
            "`providers.keyless.api_key_env`: https://api.openai.com/v1 requires an API key; name the environment variable that holds it, such as \"OPENAI_API_KEY\"".to_owned(),
            format!(
                "`providers.main.base_url` {from}: `llm.example.org` must look like https://host/v1 or http://127.0.0.1:8080/v1"
            ),
            format!("`providers.main.api_key` {from}: set only one of api_key, api_key_env and api_key_file"),
            format!("`providers.main.headers.Host` {from}: is set by contextd and cannot be configured"),
            format!("`providers.main.headers.bad name` {from}: is not a valid header name"),
            format!("`providers.main.rules.reasoning_field` {from}: needs reasoning_back = \"in_loop\" or \"while_calls\" in the same rules"),
            format!("`providers.main.rules.reasoning_placeholder` {from}: needs reasoning_back = \"in_loop\" or \"while_calls\" in the same rules"),
            format!("`providers.main.models.big.max_output` {from}: 11 is not between 1 and 10 tokens"),
        ]
    );
    let table = [
        (
            "kind = 'openai'\nbase_ur = 'x'",
            "unknown key `providers.main.base_ur` (from DIR/contextd.toml); did you mean `providers.main.base_url`?",
        ),
        ("kind = 'openai'\ndialect = 'klingon'", "unknown variant `klingon`"),
        ("kind = 'openai'\nrules.reasoning_back = 'sometimes'", "unknown variant `sometimes`"),
        ("kind = 'openai'\nrules.reasoning_bak = 'never'", "unknown key `providers.main.rules.reasoning_bak`"),
        ("kind = 'anthropic'\nrules.reasoning_back = 'in_loop'", "unknown variant `in_loop`"),
        ("kind = 'openai-responses'\nrules.encrypted_reasoning = 'maybe'", "unknown variant `maybe`"),
        ("kind = 'gemini'\nrules.reasoning_back = 'never'", "unknown key `providers.main.rules.reasoning_back`"),
        ("kind = 'openai'\nscript_dir = 'x'", "unknown key `providers.main.script_dir`"),
        ("kind = 'scripted'\nbase_url = 'x'\napi_key = 'y'", "unknown key `providers.main.base_url`"),
        ("base_url = 'x'", "missing field `kind`"),
    ];
    for (service, told) in table {
        let all = problems(&format!("[providers.main]\n{service}")).join("\n");
        assert!(all.contains(told), "{all}");
    }
}

#[test]
fn a_key_comes_from_a_variable_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let config = |how: &str| {
        let loaded =
            load(&format!("[providers.main]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\n{how}")).unwrap();
        let ProviderConfig::OpenAi(main) = loaded.config.providers["main"].clone() else { panic!("another kind") };
        main
    };
    let environment = Environment::new([("MY_KEY", "from-variable")]);
    let by_variable = config("api_key_env = 'MY_KEY'");
    assert_eq!(by_variable.http.key(&environment).unwrap().unwrap().expose_secret(), "from-variable");
    let error = by_variable.http.key(&Environment::default()).unwrap_err();
    assert_eq!(error.to_string(), "the environment variable MY_KEY is not set");

    let by_file = config(&format!("api_key_file = '{}'", path.display()));
    assert!(by_file.http.key(&environment).unwrap_err().to_string().starts_with("cannot read "));
    fs::write(&path, "from-file\n").unwrap();
    assert_eq!(by_file.http.key(&environment).unwrap().unwrap().expose_secret(), "from-file");
    fs::write(&path, "\n").unwrap();
    assert!(by_file.http.key(&environment).unwrap_err().to_string().ends_with(" is empty"));
    assert!(config("").http.key(&environment).unwrap().is_none(), "a server nearby may want none");
}

/// A place whose provider `main` is the service, with its key in a separate file.
fn place(upstream: &Upstream, dir: &tempfile::TempDir) -> Place {
    let key: PathBuf = dir.path().join("key");
    fs::write(&key, format!("{KEY}\n")).unwrap();
    let settings = json!({
        "telemetry": {"log": "trace", "log_format": "json"},
        "turn": {"retry_base_delay": "0s", "max_call_attempts": 2},
        "providers": {"main": {"kind": "openai", "base_url": upstream.base_url(), "api_key_file": key}},
    });
    Place::new(&toml::to_string(&settings).unwrap())
}

async fn run(served: &Served, request: pb::ExecuteTurnRequest) -> Vec<pb::Event> {
    let mut turns: TurnServiceClient<_> = served.turns().await;
    all(&mut turns.execute_turn(request).await.unwrap().into_inner()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_in_logs_events_or_the_database() {
    let upstream = Upstream::start().await;
    let dir = tempfile::tempdir().unwrap();
    let database = TestDatabase::new().await;
    let echo = format!("It broke. You sent {KEY}.");
    upstream.answer(Reply::error(500, "broken", &echo));
    upstream.answer(Reply::events(said(&["Hello."])));
    upstream.answer(Reply::error(401, "invalid_api_key", &echo));
    let mut served = place(&upstream, &dir).serve_over(&database).await;
    let good = run(&served, turn("s", "main/gpt-4o", "Hello")).await;
    completed(&good);
    let bad = run(&served, turn("s", "main/gpt-4o", "Again")).await;
    assert_eq!(failed(&bad).failure.as_ref().unwrap().message, "It broke. You sent ***.");
    let sent = upstream.requests();
    assert!(
        sent.iter().all(|request| { request.headers.contains(&("authorization".to_owned(), format!("Bearer {KEY}"))) })
    );

    served.terminate();
    served.ended().await;
    let logs = served.log_text();
    assert!(
        logs.contains("hyper_util") && logs.contains("retrying a failed model call"),
        "the log is not what this test is about"
    );
    let client = database.client().await;
    let tables = client.query("select tablename::text from pg_tables where schemaname = 'public'", &[]).await.unwrap();
    let mut stored = String::new();
    for table in tables {
        let table: String = table.get(0);
        for row in client.query(&format!("select t::text from {table} t"), &[]).await.unwrap() {
            stored.push_str(row.get(0));
        }
    }
    // Bytes are shown in hexadecimal.
    let hex: String = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (place, text) in [("logs", &logs), ("events", &format!("{good:?}{bad:?}")), ("database", &stored)] {
        assert!(!text.is_empty() && !text.contains(KEY) && !text.contains(&hex), "the key is in the {place}");
    }
}

const GATEWAY: &str = "
    [providers.main]
    kind = 'openai'
    base_url = 'BASE_URL'
    dialect = 'compatible'
    [providers.main.rules]
    reasoning_back = 'in_loop'
    reasoning_field = 'reasoning'
    own_call_ids = true
    max_stop_sequences = 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_sent_what_its_configured_rules_say() {
    let id = "functions.look:0";
    let thought = "I need the tool.";
    let calls = json!({"tool_calls": [
        {"index": 0, "id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]});
    let upstream = Upstream::start().await;
    let first = [event(&json!({"reasoning": thought})), event(&calls), finished("tool_calls")];
    upstream.answer(Reply::events(first.concat()));
    upstream.answer(Reply::events(said(&["Done."])));
    let database = TestDatabase::new().await;
    let place = Place::new(&GATEWAY.replace("BASE_URL", &upstream.base_url()));
    let mut served = place.serve_over(&database).await;

    let mut models = ModelServiceClient::new(served.channel().await);
    let request = pb::GetModelRequest { model: "main/m".to_owned() };
    let model = models.get_model(request).await.unwrap().into_inner().model;
    let rules = model.unwrap().rules.unwrap();
    assert_eq!(
        (rules.reasoning_kept(), rules.reasoning_field.as_str(), rules.keeps_own_call_ids, rules.max_stop_sequences),
        (pb::ReasoningKept::ToolLoop, "reasoning", true, Some(1))
    );

    let asks = pb::ExecuteTurnRequest {
        tools: tools(&["look"]),
        generation: Some(pb::Generation {
            stop_sequences: vec!["a".to_owned(), "b".to_owned()],
            ..pb::Generation::default()
        }),
        ..turn("s", "main/m", "Look.")
    };
    let mut turns = served.turns().await;
    let mut stream = turns.execute_turn(asks).await.unwrap().into_inner();
    let (_, [calls, _]) = until_action(&mut stream).await;
    assert_eq!(calls.len(), 1);
    let results = submit("s", vec![result(&calls[0], "seen")]);
    turns.submit_tool_results(results).await.unwrap();
    completed(&all(&mut stream).await);

    let sent = upstream.requests().pop().unwrap().json;
    let answer = &sent["messages"][1];
    assert_eq!(answer["reasoning"], thought, "{sent}");
    assert_eq!(answer["tool_calls"][0]["id"], id, "{sent}");
    assert_eq!(sent["messages"][2]["tool_call_id"], id, "{sent}");
    assert_eq!(sent["stop"], serde_json::Value::Null, "{sent}");
    served.terminate();
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_api_key_of_the_default_model_stops_the_server_and_names_its_setting() {
    let database = TestDatabase::new().await;
    let place = Place::new(
        "[models]\ndefault_model = 'main/gpt-4o'\n\
         [providers.main]\nkind = 'openai'\napi_key_env = 'NO_SUCH_KEY'\n",
    );
    let output = place.run_over(&database, "serve").await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(output.status.code(), Some(0));
    assert!(told.contains("providers.main cannot be used"), "{told}");
    assert!(told.contains("the environment variable NO_SUCH_KEY is not set"), "{told}");
}

#[test]
fn a_well_known_variable_configures_its_provider_and_the_default_model() {
    for service in WELL_KNOWN_SERVICES {
        let loaded = load_with("", &[(service.variable, "s3cret")]).unwrap();
        let (kind, base_url, http) = match &loaded.config.providers[service.provider] {
            ProviderConfig::OpenAi(provider) => ("openai", &provider.base_url, &provider.http),
            ProviderConfig::Anthropic(provider) => ("anthropic", &provider.base_url, &provider.http),
            ProviderConfig::Responses(provider) => ("openai-responses", &provider.base_url, &provider.http),
            ProviderConfig::Gemini(provider) => ("gemini", &provider.base_url, &provider.http),
            ProviderConfig::Scripted(_) => panic!("another kind"),
        };
        assert_eq!((kind, base_url.as_str()), (service.kind, service.base_url));
        let key = http.key(&Environment::new([(service.variable, "s3cret")])).unwrap().unwrap();
        assert_eq!(key.expose_secret(), "s3cret");
        assert_eq!(loaded.config.models.default_model, format!("{}/{}", service.provider, service.default_model));
        assert!(loaded.config.providers.contains_key("scripted"), "the demo is gone");
        assert_eq!(loaded.services, [service]);
        assert_eq!(loaded.origins["models.default_model"], Origin::Variable(service.variable.to_owned()));
        assert!(!format!("{loaded:?}{}", config::print(&loaded)).contains("s3cret"));
    }
    let none = load_with("", &[("OPENAI_API_KEY", ""), ("UNRELATED_API_KEY", "k")]).unwrap();
    assert_eq!((none.services.len(), none.config.providers.len()), (0, 1));
    assert_eq!(none.config.models.default_model, "scripted/demo");
}

#[test]
fn the_manual_lists_every_well_known_variable() {
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/providers.md")).unwrap();
    for service in WELL_KNOWN_SERVICES {
        let start = format!("| `{}` | `{}` | `{}`", service.variable, service.provider, service.base_url);
        let row = manual.lines().find(|line| line.starts_with(&start));
        assert!(row.is_some_and(|row| row.ends_with(&format!("| `{}` |", service.default_model))), "{start}");
    }
}

#[test]
fn configured_providers_override_well_known_variables() {
    const KEYS: &[(&str, &str)] = &[("OPENAI_API_KEY", "k"), ("GROQ_API_KEY", "g")];
    let openai = "[providers.openai]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\n";
    let gateway =
        "[providers.main]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\napi_key_env = 'OPENAI_API_KEY'\n";
    let table: &[(&str, &[&str], &str)] = &[
        ("", &["openai", "groq"], "openai/gpt-5-mini"),
        ("[models]\ndefault_model = 'scripted/demo'", &["openai", "groq"], "scripted/demo"),
        ("[models]\ndetect_providers = false", &[], "scripted/demo"),
        // A provider with that configured name, and a provider whose key is in the variable: it may belong to a
        // gateway.
        (openai, &["groq"], "scripted/demo"),
        (gateway, &["groq"], "scripted/demo"),
        ("[providers.scripted]\nkind = 'scripted'", &["openai", "groq"], "openai/gpt-5-mini"),
    ];
    for (file, services, default_model) in table {
        let loaded = load_with(file, KEYS).unwrap();
        let found: Vec<&str> = loaded.services.iter().map(|service| service.provider).collect();
        assert_eq!(
            (found.as_slice(), loaded.config.models.default_model.as_str()),
            (*services, *default_model),
            "{file}"
        );
    }
    let ProviderConfig::OpenAi(own) = load_with(openai, KEYS).unwrap().config.providers["openai"].clone() else {
        panic!("another kind")
    };
    assert_eq!((own.base_url.as_str(), own.http.api_key_env), ("http://127.0.0.1:1/v1", None));
    let by_variable = load_with("", &[("OPENAI_API_KEY", "k"), ("CONTEXTD_DEFAULT_MODEL", "scripted/demo")]).unwrap();
    assert_eq!(by_variable.config.models.default_model, "scripted/demo");
}

#[test]
fn openai_api_key_is_sent_to_openai_base_url() {
    let at = |base_url| load_with("", &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", base_url)]);
    let loaded = at("http://127.0.0.1:4000/v1").unwrap();
    let ProviderConfig::OpenAi(openai) = &loaded.config.providers["openai"] else { panic!("another kind") };
    assert_eq!(openai.base_url, "http://127.0.0.1:4000/v1");
    let told = at("127.0.0.1:4000").unwrap_err();
    assert!(told.contains("`providers.openai.base_url` (from OPENAI_BASE_URL)"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_well_known_variable_says_so_and_lists_its_models() {
    let database = TestDatabase::new().await;
    let mut served = Place::new("").variable("OPENAI_API_KEY", KEY).serve_over(&database).await;
    let mut models = ModelServiceClient::new(served.channel().await);
    let request = pb::ListModelsRequest { page_size: 1_000, provider: "openai".to_owned(), ..Default::default() };
    let listed = models.list_models(request).await.unwrap().into_inner().models;
    assert!(listed.iter().any(|model| model.model == "openai/gpt-5-mini" && model.supports_tools), "{listed:?}");
    let session =
        served.sessions().await.create_session(pb::CreateSessionRequest::default()).await.unwrap().into_inner();
    assert_eq!(session.session.unwrap().model, "openai/gpt-5-mini");
    // The demo needs no key and remains available.
    completed(&run(&served, turn("s", "scripted/demo", "Hello")).await);
    served.terminate();
    served.ended().await;
    let told = served.log_text();
    assert!(told.contains("contextd: provider openai is configured by OPENAI_API_KEY\n"), "{told}");
    assert!(told.contains("contextd: the default model is openai/gpt-5-mini\n"), "{told}");
    assert!(!told.contains(KEY), "the key is printed");
}

#[test]
fn a_service_that_speaks_responses_is_configured_by_its_kind() {
    let section = |more: &str| format!("[providers.main]\nkind = 'openai-responses'\n{more}\n");
    let loaded =
        load_with(&section("base_url = 'https://mine.openai.azure.com/openai/v1'\napi_version = 'preview'"), &[])
            .unwrap();
    let ProviderConfig::Responses(main) = &loaded.config.providers["main"] else { panic!("another kind") };
    assert_eq!(main.api_version.as_deref(), Some("preview"));
    for (more, told) in [
        ("", "requires an API key"),
        ("api_key = 'k'\napi_version = 'a b'", "must consist of letters"),
        ("api_key = 'k'\ndialect = 'klingon'", "klingon"),
    ] {
        let error = load_with(&section(more), &[]).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
