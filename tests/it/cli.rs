//! The command line and the configuration, tested through the library and the built binary.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use clap::CommandFactory;
use contextd::cli::Cli;
use contextd::config::{
    self, COMMAND_FLAGS, Config, ConfigError, Environment, LoadedConfig, OutputLimitsConfig, SETTINGS, Sources,
    defaults, variable_of,
};
use contextd::model::Keep;
use contextd::settings::{format_duration, parse_duration, redact_url};

/// A configuration file, environment variables and flags.
#[derive(Default)]
struct Given<'a> {
    file: &'a str,
    variables: &'a [(&'a str, &'a str)],
    flags: &'a [(&'a str, &'a str)],
}

impl Given<'_> {
    fn load(&self) -> Result<LoadedConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("contextd.toml");
        std::fs::write(&path, self.file).unwrap();
        let setting = |flag| SETTINGS.iter().find(|setting| setting.flag == flag).unwrap();
        let sources = Sources {
            file: Some(path),
            environment: Environment::new(self.variables.iter().copied()),
            flags: self.flags.iter().map(|(flag, value)| (setting(*flag), (*value).to_owned())).collect(),
        };
        config::load(&sources).map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    fn config(&self) -> Config {
        self.load().unwrap().config
    }

    fn problems(&self) -> Vec<String> {
        let told = self.load().unwrap_err();
        told.lines().skip(1).map(|line| line.trim().to_owned()).collect()
    }
}

fn from_file(file: &str) -> Given<'_> {
    Given { file, ..Given::default() }
}

#[test]
fn settings_precedence_is_flag_variable_file_default() {
    fn check(file: &str, variables: &[(&str, &str)], flags: &[(&str, &str)], expected: &str) {
        let config = Given { file, variables, flags }.config();
        assert_eq!(config.server.listen.to_string(), expected);
    }
    let file = "[server]\nlisten = '127.0.0.1:1'";
    let variable = [("CONTEXTD_LISTEN", "127.0.0.1:2")];
    let flag = [("listen", "127.0.0.1:3")];
    check("", &[], &[], "127.0.0.1:7070");
    check(file, &[], &[], "127.0.0.1:1");
    check(file, &variable, &[], "127.0.0.1:2");
    check(file, &variable, &flag, "127.0.0.1:3");
    check(file, &[], &flag, "127.0.0.1:3");
    check("", &variable, &[], "127.0.0.1:2");
    check(file, &[("CONTEXTD_LISTEN", "")], &[], "127.0.0.1:1");
}

#[test]
fn every_setting_with_a_flag_can_be_given_by_its_flag_and_by_its_variable() {
    let valid = |flag: &str| match flag {
        "listen" | "admin-listen" => "127.0.0.1:1",
        "auth-required" | "insecure-no-auth" | "migrate" | "tls-terminated-elsewhere" => "true",
        "keys-file" | "tls-cert" | "tls-key" | "tls-client-ca" => "/some/file",
        "database-url" => "postgres://host/name",
        "data-dir" | "pg-bin-dir" | "script-dir" => "/some/where",
        "lease-ttl" => "7s",
        "default-model" => "scripted/other",
        "log" => "debug",
        "log-format" => "json",
        "otlp-endpoint" => "http://collector:4318",
        other => panic!("no example for --{other}"),
    };
    // Some settings are only valid in combination with others.
    let beside = |flag: &str| match flag {
        "auth-required" => "[auth]\nkeys_file = 'f'",
        "keys-file" => "[auth]\nrequired = true",
        "tls-cert" => "[tls]\nkey_file = 'f'",
        "tls-key" => "[tls]\ncert_file = 'f'",
        "tls-client-ca" => "[tls]\ncert_file = 'f'\nkey_file = 'f'",
        _ => "",
    };
    for setting in SETTINGS {
        let variable = setting.variable();
        let file = beside(setting.flag);
        let by_flag = Given { file, flags: &[(setting.flag, valid(setting.flag))], ..Given::default() }.load().unwrap();
        let by_variable =
            Given { file, variables: &[(&variable, valid(setting.flag))], ..Given::default() }.load().unwrap();
        assert_eq!(by_flag.origins[setting.key].to_string(), format!("--{}", setting.flag));
        assert_eq!(by_variable.origins[setting.key].to_string(), variable);
        assert_eq!(format!("{:?}", by_flag.config), format!("{:?}", by_variable.config));
        let printed = contextd::config::print(&by_flag);
        let from = format!("# from --{}", setting.flag);
        let takes = |line: &str| line.ends_with(&from) && line.contains(valid(setting.flag));
        assert!(printed.lines().any(takes), "{printed}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_a_suggestion() {
    fn check(file: &str, expected: &str) {
        assert_eq!(from_file(file).problems(), [expected.to_owned()], "{file}");
    }
    check(
        "[server]\nlisen = '127.0.0.1:1'",
        "unknown key `server.lisen` (from DIR/contextd.toml); did you mean `server.listen`?",
    );
    check(
        "[sever]\nlisten = '127.0.0.1:1'",
        "unknown key `sever.listen` (from DIR/contextd.toml); did you mean `server.listen`?",
    );
    check("lease_ttl = '1s'", "unknown key `lease_ttl` (from DIR/contextd.toml); did you mean `turn.lease_ttl`?");
    check(
        "[database]\nurls = 'postgres://h'",
        "unknown key `database.urls` (from DIR/contextd.toml); did you mean `database.url`?",
    );
    check(
        "[providers.mine]\nkind = 'scripted'\nscriptdir = 'x'",
        "unknown key `providers.mine.scriptdir` (from DIR/contextd.toml); did you mean `providers.mine.script_dir`?",
    );
    check(
        "[policies.mine.tools.output_limits.edit]\nmax_lnes = 3",
        "unknown key `policies.mine.tools.output_limits.edit.max_lnes` (from DIR/contextd.toml); did you mean \
         `policies.mine.tools.output_limits.edit.max_lines`?",
    );
    check("[kubernetes]\nreplicas = 3", "unknown key `kubernetes.replicas` (from DIR/contextd.toml)");
    check("[kubernetes]", "unknown key `kubernetes` (from DIR/contextd.toml)");
}

#[test]
fn an_unknown_variable_is_refused_with_a_suggestion() {
    fn check(variable: &str, expected: &[&str]) {
        let given = Given { variables: &[(variable, "x")], ..Given::default() };
        assert_eq!(given.load().err().map(|_| given.problems()).unwrap_or_default(), expected);
    }
    check("CONTEXTD_LISEN", &["unknown environment variable `CONTEXTD_LISEN`; did you mean `CONTEXTD_LISTEN`?"]);
    check("CONTEXTD_CONFG", &["unknown environment variable `CONTEXTD_CONFG`; did you mean `CONTEXTD_CONFIG`?"]);
    check("CONTEXTD_SOMETHING_ELSE", &["unknown environment variable `CONTEXTD_SOMETHING_ELSE`"]);
    check("CONTEXTD_SERVICE", &[]);
    check("LISTEN", &[]);
}

#[test]
fn service_variables_of_kubernetes_are_ignored() {
    let variables = [
        ("CONTEXTD_SERVICE_HOST", "10.0.0.1"),
        ("CONTEXTD_SERVICE_PORT", "7070"),
        ("CONTEXTD_SERVICE_PORT_GRPC", "7070"),
        ("CONTEXTD_PORT", "tcp://10.0.0.1:7070"),
        ("CONTEXTD_PORT_7070_TCP", "tcp://10.0.0.1:7070"),
        ("CONTEXTD_PORT_7070_TCP_ADDR", "10.0.0.1"),
        ("CONTEXTD_METRICS_PORT_9090_TCP_PROTO", "tcp"),
    ];
    Given { variables: &variables, ..Given::default() }.load().unwrap();
}

#[test]
fn all_configuration_problems_are_reported_together() {
    let given = Given {
        file: "
            [server]
            listen = 'nowhere'
            max_request_bytes = '4 MiB'
            [turn]
            lease_ttl = '100ms'
            tool_timeout = 600
            turn_timeout = '169h'
            default_max_steps = 2000
            retries = 3
            [embedded]
            max_connections = 12
            [providers.mine]
            kind = 'magic'",
        variables: &[("CONTEXTD_LOG_FORMAT", "xml"), ("CONTEXTD_LOGS", "info")],
        flags: &[("default-model", "elsewhere/gpt"), ("database-url", "mysql://u:secret@h/d")],
    };
    let problems = given.problems();
    let expected = [
        "unknown environment variable `CONTEXTD_LOGS`; did you mean `CONTEXTD_LOG`?",
        "`providers.mine` (from DIR/contextd.toml): unknown variant `magic`, expected one of `scripted`, `openai`, `openai-responses`, `anthropic`, `gemini`",
        "`server.listen` (from DIR/contextd.toml): invalid socket address syntax",
        "`server.max_request_bytes` (from DIR/contextd.toml): invalid type: string \"4 MiB\", expected usize",
        "`telemetry.log_format` (from CONTEXTD_LOG_FORMAT): unknown variant `xml`, expected `text` or `json`",
        "`turn.tool_timeout` (from DIR/contextd.toml): invalid type: integer `600`, expected a duration such as \"15s\"",
        "unknown key `turn.retries` (from DIR/contextd.toml)",
        "`turn.lease_ttl` (from DIR/contextd.toml): 100ms is not between 500ms and 10m",
        "`turn.default_max_steps` (from DIR/contextd.toml): 2000 is not between 1 and 1000 steps",
        "`turn.turn_timeout` (from DIR/contextd.toml): 169h is not between 1s and 168h",
        "`database.url` (from --database-url): must look like postgres://user:password@host:5432/name",
        "`models.default_model` (from --default-model): no provider `elsewhere` is configured; configured providers: scripted",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_pool_larger_than_the_embedded_max_connections_is_refused() {
    let too_large = "[database]\npool_size = 33";
    assert_eq!(
        from_file(too_large).problems(),
        ["`embedded.max_connections`: 40 is too low; database.pool_size = 33 needs at least 41"]
    );
    let url = [("database-url", "postgres://host/name")];
    Given { file: too_large, flags: &url, ..Given::default() }.load().unwrap();
}

#[test]
fn listening_on_other_interfaces_requires_authentication_and_tls_or_a_decision_against_them() {
    fn with(flags: &[(&str, &str)], expected: &[&str]) {
        let mut all = vec![("listen", "0.0.0.0:7070")];
        all.extend(flags);
        let given = Given { flags: &all, ..Given::default() };
        let told = given.load().map(drop).err().unwrap_or_default();
        assert_eq!(told.is_empty(), expected.is_empty(), "{flags:?}: {told}");
        for words in expected {
            assert!(told.contains(words), "{flags:?}: {told}");
        }
    }
    let keys = [("auth-required", "true"), ("keys-file", "/keys.toml")];
    with(&keys, &["--tls-cert", "--tls-terminated-elsewhere"]);
    with(&[&keys[..], &[("tls-terminated-elsewhere", "true")]].concat(), &[]);
    let tls = [("tls-cert", "/cert.pem"), ("tls-key", "/key.pem")];
    with(&[&keys[..], &tls].concat(), &[]);
    with(&tls, &["callers are not authenticated", "--auth-required"]);
    with(&keys[..1], &["no credential source is configured"]);
    with(&[&keys[1..], &tls].concat(), &["configured but not required"]);
    with(&[&keys[..], &tls[..1]].concat(), &["set together"]);

    fn check(listen: &str, insecure: &str, allowed: bool) {
        let given = Given { flags: &[("listen", listen), ("insecure-no-auth", insecure)], ..Given::default() };
        let told = given.load().map(drop).err().unwrap_or_default();
        assert_eq!(told.is_empty(), allowed, "{listen} {insecure}: {told}");
        assert!(allowed || told.contains("callers are not authenticated"), "{told}");
        assert!(allowed || told.contains("--insecure-no-auth"), "{told}");
    }
    check("127.0.0.1:7070", "false", true);
    check("127.8.9.1:7070", "false", true);
    check("[::1]:7070", "false", true);
    check("0.0.0.0:7070", "false", false);
    check("[::]:7070", "false", false);
    check("192.168.1.4:7070", "false", false);
    check("0.0.0.0:7070", "true", true);
}

#[test]
fn client_certificates_are_configured_in_the_file() {
    let file = r#"
        auth.required = true
        auth.certificates."spiffe://cluster.local/ns/agents/sa/host" = {tenant = "acme", access = "write"}
        tls = {cert_file = "cert.pem", key_file = "key.pem", client_ca_file = "ca.pem"}
    "#;
    let certificates = from_file(file).config().auth.certificates;
    let names: Vec<&str> = certificates.keys().map(String::as_str).collect();
    assert_eq!(names, ["spiffe://cluster.local/ns/agents/sa/host"]);
}

#[test]
fn durations_are_parsed_in_human_form() {
    fn check(text: &str, expected: Option<Duration>) {
        assert_eq!(parse_duration(text).ok(), expected, "{text}");
    }
    check("15s", Some(Duration::from_secs(15)));
    check("500ms", Some(Duration::from_millis(500)));
    check("10m", Some(Duration::from_mins(10)));
    check("10min", Some(Duration::from_mins(10)));
    check("1h 30m", Some(Duration::from_mins(90)));
    check("168h", Some(Duration::from_hours(168)));
    check("0s", Some(Duration::ZERO));
    check("1.5s", Some(Duration::from_millis(1500)));
    for wrong in ["", "15", "s", "-15s", "15 fortnights", "15s ago", "7d"] {
        check(wrong, None);
    }
}

#[test]
fn a_duration_that_was_written_is_read_back_as_the_same() {
    for millis in [0, 1, 10, 999, 1000, 1500, 61_001, 3_600_000, 90_061_001] {
        let duration = Duration::from_millis(millis);
        assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
    }
}

#[test]
fn passwords_of_urls_are_redacted() {
    fn check(url: &str, expected: &str) {
        assert_eq!(redact_url(url), expected);
    }
    check("postgres://user:s3cret@host:5432/name", "postgres://user:***@host:5432/name");
    check("postgres://user:s3c@ret/@host/name", "postgres://user:***@host/name");
    check("postgres://user@host/name", "postgres://user@host/name");
    check("postgres://host/name", "postgres://host/name");
    check("postgres://[::1]:5432/name", "postgres://[::1]:5432/name");
    check("postgres://host/name?password=s3cret", "postgres://host/name?***");
    check("postgres://user:s3cret@host/name?sslpassword=s3cret", "postgres://user:***@host/name?***");
    check("postgres://user:s3?cret@host/name", "postgres://user:***@host/name");
    check("postgres://user:s3cret", "postgres://***");
    check("host=h password=s3cret", "***");
}

#[test]
fn secrets_are_hidden_in_debug_output_and_in_print_and_in_errors() {
    let url = "postgres://user:s3cret@host/name?password=s3cret";
    let variables = [("CONTEXTD_DATABASE_URL", url)];
    let given = Given { variables: &variables, ..Given::default() };
    let loaded = given.load().unwrap();
    let shown = [
        format!("{loaded:?}"),
        config::print(&loaded),
        format!("{:?}", Environment::new(variables)),
        from_file(&format!("[database]\nurl = '{url}")).load().unwrap_err(),
        from_file(&format!("[database]\nurl = ['{url}']")).load().unwrap_err(),
        from_file(&format!("[database]\nurl = 'mysql://{url}'")).load().unwrap_err(),
    ];
    for text in shown {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(
        config::print(&loaded).contains("url = \"postgres://user:***@host/name?***\" # from CONTEXTD_DATABASE_URL")
    );
}

#[test]
fn a_syntax_error_names_file_line_and_column() {
    let told = from_file("[server]\nlisten = \n").load().unwrap_err();
    assert!(told.starts_with("DIR/contextd.toml:2:10: "), "{told}");
}

#[test]
fn a_named_file_that_is_not_there_is_refused_and_an_unnamed_one_is_not() {
    let named = Sources { file: Some(PathBuf::from("/nowhere/contextd.toml")), ..Sources::default() };
    assert!(matches!(config::load(&named), Err(ConfigError::Unreadable { .. })));
    let home = tempfile::tempdir().unwrap();
    let environment = || Environment::new([("HOME", home.path().to_str().unwrap())]);
    let unnamed = || Sources { environment: environment(), ..Sources::default() };
    assert_eq!(config::load(&unnamed()).unwrap().config.turn.max_takeovers, 5);
    let dir = home.path().join(".config/contextd");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("contextd.toml"), "turn.max_takeovers = 7").unwrap();
    assert_eq!(config::load(&unnamed()).unwrap().config.turn.max_takeovers, 7);
}

#[test]
fn default_data_dir_is_in_the_users_home() {
    fn check(variables: &[(&str, &str)], expected: &str) {
        let config = Given { variables, ..Given::default() }.config();
        assert_eq!(config.embedded.data_dir, Path::new(expected));
    }
    if cfg!(target_os = "macos") {
        check(&[("HOME", "/home/ada")], "/home/ada/Library/Application Support/contextd");
    } else {
        check(&[("HOME", "/home/ada")], "/home/ada/.local/share/contextd");
        check(&[("HOME", "/home/ada"), ("XDG_DATA_HOME", "/data")], "/data/contextd");
        check(&[("HOME", "/home/ada"), ("XDG_DATA_HOME", "data")], "/home/ada/.local/share/contextd");
    }
    check(&[("HOME", "/home/ada"), ("CONTEXTD_DATA_DIR", "/srv/x")], "/srv/x");
    check(&[], "/var/lib/contextd");
}

#[test]
fn a_policy_keeps_what_it_does_not_set_from_the_shipped_one() {
    let file = "
        [policies.default.tools.output_limits.bash]
        max_output_chars = 9
        [policies.terse.tools.default_output_limits]
        max_output_chars = 1000
        keep = 'head_and_tail'
        [policies.terse.tools.output_limits.edit]
        max_lines = 10";
    let config = from_file(file).config();
    let chars = |max_output_chars| OutputLimitsConfig { max_output_chars, ..OutputLimitsConfig::default() };
    let read = OutputLimitsConfig { max_lines: 2000, max_line_length: 2000, ..OutputLimitsConfig::default() };
    let shipped = &config.policies["default"].tools;
    let terse = &config.policies["terse"].tools;
    assert_eq!(shipped.output_limits["bash"], chars(9));
    assert_eq!(shipped.output_limits["read"], read);
    assert_eq!(
        shipped.output_limits["grep"],
        OutputLimitsConfig { max_matches: 1000, ..OutputLimitsConfig::default() }
    );
    assert_eq!(shipped.default_output_limits, chars(120_000));
    assert_eq!(terse.default_output_limits, OutputLimitsConfig { keep: Keep::HeadAndTail, ..chars(1000) });
    assert_eq!(terse.output_limits["bash"], chars(30_000));
    assert_eq!(terse.output_limits["edit"], OutputLimitsConfig { max_lines: 10, ..OutputLimitsConfig::default() });
}

#[test]
fn config_print_output_loads_as_the_same_settings() {
    let file = "
        turn.lease_ttl = '1500ms'
        [policies.'dotted.name'.tools.output_limits.'my tool']
        max_lines = 10
        [providers.mine]
        kind = 'scripted'
        script_dir = '/quo\"ted'";
    let loaded = from_file(file).load().unwrap();
    let again = from_file(&config::print(&loaded)).config();
    assert_eq!(format!("{:?}", loaded.config), format!("{again:?}"));
}

#[test]
fn the_defaults_are_valid() {
    assert_eq!(Config::default().problems(), []);
}

#[test]
fn every_setting_has_a_key_and_a_default_or_a_description_of_its_absence() {
    let defaults = defaults();
    for setting in SETTINGS {
        assert!(defaults.contains_key(setting.key) || setting.without_default().is_some(), "{}", setting.key);
    }
}

#[test]
fn every_flag_of_every_command_shows_its_variable_and_its_default() {
    let mut seen = 0;
    for_each_command(Cli::command(), &mut |path, command| {
        let help = contextd(&[path, &["--help"]].concat(), &[]);
        let help = stdout(&help);
        let flags = command.get_arguments().filter(|arg| !arg.is_positional());
        for arg in flags.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
            seen += 1;
            let flag = arg.get_long().unwrap();
            let variable = variable_of(flag);
            let known = SETTINGS.iter().map(|setting| setting.flag).chain(COMMAND_FLAGS.iter().copied());
            assert!(known.into_iter().any(|known| known == flag), "--{flag} is in no table");
            let entry = entry_of(help, flag).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(entry.contains(&format!("[env: {variable}")), "{path:?} --{flag}: {entry}");
            assert!(entry.contains("default: "), "{path:?} --{flag}: {entry}");
        }
    });
    assert!(seen > SETTINGS.len(), "{seen} flags");
}

#[test]
fn config_print_prints_the_settings_in_force() {
    let output =
        contextd(&["config", "print", "--lease-ttl", "3s"], &[("CONTEXTD_DATABASE_URL", "postgres://u:s3cret@h/d")]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.contains("lease_ttl = \"3s\" # from --lease-ttl\n"), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:7070\"\n"), "{text}");
    assert!(text.contains("# ca_file is not set\n"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn config_validate_succeeds_or_names_every_problem_with_exit_code_2() {
    let valid = contextd(&["config", "validate", "--insecure-no-auth", "--listen=0.0.0.0:1"], &[]);
    assert_eq!((valid.status.code(), stdout(&valid)), (Some(0), "configuration is valid\n"));
    let invalid = contextd(&["config", "validate", "--lease-ttl=x", "--log-format=x"], &[("CONTEXTD_LISEN", "x")]);
    assert_eq!((invalid.status.code(), stdout(&invalid)), (Some(2), ""));
    let told = stderr(&invalid);
    assert!(told.starts_with("contextd: the configuration has 3 problems:\n"), "{told}");
    assert!(told.contains("did you mean `CONTEXTD_LISTEN`?"), "{told}");
    assert!(told.contains("(from --lease-ttl)") && told.contains("(from --log-format)"), "{told}");
}

#[test]
fn settings_of_compactions_have_the_limits_of_the_api() {
    let problems = |setting: &str| {
        let file = format!("[policies.mine.compaction]\n{setting}");
        let loaded = from_file(&file).load();
        loaded.map_or_else(|_| from_file(&file).problems(), |_| Vec::new())
    };
    for right in ["guard_max_restarts = 100", "summary_model = 'a/b'"] {
        assert_eq!(problems(right), [""; 0], "{right}");
    }
    for (wrong, key, why) in [
        ("guard_max_restarts = 101", "guard_max_restarts", "101 is not between 0 and 100 restarts"),
        ("summary_model = 'notes'", "summary_model", "`notes` must look like PROVIDER/MODEL"),
    ] {
        let found = problems(wrong);
        let [problem] = &found[..] else { panic!("{wrong}: {found:?}") };
        let key = format!("policies.mine.compaction.{key}");
        assert!(problem.contains(&key) && problem.contains(why), "{problem}");
    }
}

#[test]
fn serve_refuses_to_start_with_an_unknown_variable() {
    let output = contextd(&["serve"], &[("CONTEXTD_LISEN", "x")]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert!(stderr(&output).contains("CONTEXTD_LISTEN"));
}

#[test]
fn version_prints_the_version_for_people_and_for_programs() {
    let output = contextd(&["version"], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with(concat!("contextd ", env!("CARGO_PKG_VERSION"))));
    let output = contextd(&["version", "--output", "json"], &[]);
    let said: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(said["schemaVersion"], contextd::store::migrate::newest());
    assert_eq!(said["architecture"], std::env::consts::ARCH);
}

#[test]
fn each_shells_completion_names_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = contextd(&["completion", shell], &[]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = stdout(&output);
        for_each_command(Cli::command(), &mut |path, _| {
            for name in path {
                assert!(script.contains(name), "{shell} does not complete {name}");
            }
        });
        assert!(script.contains("approve-tools"), "{shell} completes no flags");
    }
    assert_eq!(contextd(&["completion", "tcsh"], &[]).status.code(), Some(2));
}

#[test]
fn health_of_a_server_that_is_not_there_is_exit_code_1() {
    let output = contextd(&["health", "--address", "127.0.0.1:1"], &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    assert!(stderr(&output).starts_with("contextd: cannot reach 127.0.0.1:1: "), "{}", stderr(&output));
}

#[test]
fn the_earlier_variable_names_the_server_unless_the_newer_one_does() {
    let check = |variables: &[(&str, &str)], address: &str| {
        let output = contextd(&["health"], variables);
        let expected = format!("contextd: cannot reach {address}: ");
        let said = stderr(&output);
        assert!(said.starts_with(&expected), "{variables:?}: {said}");
    };
    let earlier = ("CONTEXTD_ADDRESS", "127.0.0.1:1");
    check(&[earlier], "127.0.0.1:1");
    check(&[earlier, ("CONTEXTD_URL", "127.0.0.1:2")], "127.0.0.1:2");
}

#[test]
fn a_command_warns_before_it_sends_a_key_in_plain_text() {
    let info = |address: &str, key: &[(&str, &str)]| {
        let output = contextd(&["admin", "info", "--url", address], key);
        assert_ne!(output.status.code(), Some(0));
        stderr(&output).to_owned()
    };
    let key = [("CONTEXTD_API_KEY", "ctxd_secret")];
    // This is not a loopback address, although it leads to this machine.
    let said = info("http://0.0.0.0:1", &key);
    let warning = "warning: the API key is sent to http://0.0.0.0:1 in plain text";
    let (before, after) = said.split_once(warning).expect(&said);
    assert!(!before.contains("cannot reach"), "{said}");
    assert!(after.contains("cannot reach"), "{said}");
    assert!(!said.contains("ctxd_secret"), "{said}");
    for (address, key) in
        [("http://127.0.0.1:1", &key[..]), ("http://0.0.0.0:1", &key[..0]), ("https://0.0.0.0:1", &key[..])]
    {
        let said = info(address, key);
        assert!(!said.contains("plain text"), "{address}: {said}");
    }
}

#[tokio::test]
async fn health_command_prints_the_servers_status() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("contextd.v1.TurnService", tonic_health::ServingStatus::NotServing).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    let ask = async |args: &[&str]| {
        let args: Vec<_> = ["health", "--address", &address].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        let ask = move || contextd(&args.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let output = tokio::task::spawn_blocking(ask).await.unwrap();
        (output.status.code(), stdout(&output).to_owned())
    };
    assert_eq!(ask(&[]).await, (Some(0), "SERVING\n".to_owned()));
    assert_eq!(ask(&["--service", "contextd.v1.TurnService"]).await, (Some(1), "NOT_SERVING\n".to_owned()));
    assert_eq!(ask(&["--service", "nobody"]).await, (Some(1), String::new()));
}

fn for_each_command(root: clap::Command, visit: &mut dyn FnMut(&[&str], &clap::Command)) {
    fn walk<'a>(path: &mut Vec<&'a str>, command: &'a clap::Command, visit: &mut dyn FnMut(&[&str], &clap::Command)) {
        visit(path, command);
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            path.push(inner.get_name());
            walk(path, inner, visit);
            path.pop();
        }
    }
    walk(&mut Vec::new(), &root, visit);
}

/// The lines of a help text about one flag.
fn entry_of<'a>(help: &'a str, flag: &str) -> &'a str {
    let start = help
        .find(&format!("--{flag} "))
        .or_else(|| help.find(&format!("--{flag}[")))
        .unwrap_or_else(|| panic!("no --{flag} in {help}"));
    let entry = &help[start..];
    let end = entry.match_indices("\n").map(|(at, _)| at).find(|at| entry[*at..].trim_start().starts_with('-'));
    &entry[..end.unwrap_or(entry.len())]
}

/// Runs the built binary with only these environment variables.
fn contextd(args: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_contextd"))
        .args(args)
        .env_clear()
        .env("HOME", "/nowhere")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}
