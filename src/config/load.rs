//! Loads the settings from flags, environment, file and defaults, in this order of precedence, and reports all problems
//! at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::Config;
use super::environment::Environment;
use super::error::{ConfigError, Origin, Problem};
use super::explicit_values::{ExplicitValues, Origins};
use super::layers::{self, dotted};
use super::policy::PolicyConfig;
use super::services::{self, WellKnownService};
use super::setting::{COMMAND_FLAGS, ENV_PREFIX, SETTINGS, Setting, variable_of};
use super::suggest::nearest;
use super::telemetry;

/// Where settings are read from.
#[derive(Debug, Default)]
pub struct Sources {
    /// The configuration file. `None`: the file in the user's configuration directory, if it exists.
    pub file: Option<PathBuf>,
    pub environment: Environment,
    /// The settings given on the command line, as text.
    pub flags: Vec<(&'static Setting, String)>,
}

/// The settings in force.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// The origins of the values that are not defaults.
    pub origins: Origins,
    /// The model services that are configured only by a well-known environment variable.
    pub services: Vec<&'static WellKnownService>,
}

/// Reads all sources.
///
/// # Errors
/// The file cannot be read or parsed, a key or variable is unknown, or a value is invalid.
pub fn load(sources: &Sources) -> Result<LoadedConfig, ConfigError> {
    let mut given = ExplicitValues::default();
    if let Some(path) = config_file(sources) {
        given.add_file(read_file(&path)?, &path);
    }
    let mut known = default_table(&sources.environment);
    for (setting, value) in from_environment(&sources.environment) {
        given.add_text(&known, setting, value, Origin::Variable(setting.variable()));
    }
    for (setting, value) in &sources.flags {
        given.add_text(&known, setting, value, Origin::Flag(setting.flag.to_owned()));
    }
    telemetry::detect(&mut given, &sources.environment);
    let services = services::detect(&mut known, &mut given, &sources.environment);
    let mut problems = unknown_variables(&sources.environment);
    let config = check_values(known, &given, &mut problems);
    if problems.is_empty() {
        return Ok(LoadedConfig { config, origins: given.origins, services });
    }
    Err(ConfigError::Problems(problems))
}

/// The defaults by dotted key, as text. Keys without a default are left out.
pub fn defaults() -> BTreeMap<String, String> {
    let json = json_of(&Config::default());
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    layers::keys(&json)
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key, text(value)))
        .collect()
}

fn config_file(sources: &Sources) -> Option<PathBuf> {
    let users_own = || sources.environment.default_config_file().filter(|path| path.exists());
    sources.file.clone().or_else(users_own)
}

fn read_file(path: &Path) -> Result<Table, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    text.parse().map_err(|error: toml::de::Error| {
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
        ConfigError::Syntax {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.rsplit('\n').next().unwrap_or_default().chars().count() + 1,
            message: error.message().to_owned(),
        }
    })
}

fn default_table(environment: &Environment) -> Table {
    let mut config = Config::default();
    config.embedded.data_dir = environment.default_data_dir();
    table_of(&config)
}

fn from_environment(environment: &Environment) -> impl Iterator<Item = (&'static Setting, &str)> {
    SETTINGS.iter().filter_map(|setting| Some((setting, environment.get(&setting.variable())?)))
}

fn unknown_variables(environment: &Environment) -> Vec<Problem> {
    let known: Vec<_> =
        SETTINGS.iter().map(|setting| setting.flag).chain(COMMAND_FLAGS.iter().copied()).map(variable_of).collect();
    environment
        .variables()
        .filter(|(name, value)| name.starts_with(ENV_PREFIX) && !is_service_link(name, value))
        .filter(|(name, _)| !known.iter().any(|known| known == name))
        .map(|(name, _)| Problem::UnknownVariable {
            name: name.to_owned(),
            suggestion: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
        })
        .collect()
}

/// Whether Kubernetes sets this variable in every pod for a Service named `contextd`, such as `CONTEXTD_SERVICE_HOST`
/// or `CONTEXTD_PORT_7070_TCP`. These variables are not errors.
fn is_service_link(name: &str, value: &str) -> bool {
    let port_of_link = || {
        let port = name.split_once("_PORT_")?.1.split('_').next()?;
        Some(!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || port_of_link().unwrap_or(false)
}

/// Checks each value separately, so that one invalid value does not hide others. Then checks the configuration of all
/// valid values.
fn check_values(known: Table, given: &ExplicitValues, problems: &mut Vec<Problem>) -> Config {
    let base = with_named_policies(known, &given.values);
    let mut fitting = base.clone();
    let mut taken = Table::new();
    for (path, value) in layers::leaves(&given.values) {
        match check_value(&base, &path, &value) {
            Ok(()) => {
                layers::set(&mut fitting, &path, value.clone());
                layers::set(&mut taken, &path, value);
            }
            Err(message) => {
                let key = dotted(&path);
                problems.push(Problem::Value { origin: given.origin(&key), key, message });
            }
        }
    }
    let config: Config = fitting.try_into().expect("each value was checked separately");
    problems.extend(unknown_keys(&taken, &config, given));
    let problem = |(key, message): (String, String)| Problem::Value { origin: given.origin(&key), key, message };
    problems.extend(config.problems().into_iter().map(problem));
    config
}

/// Adds the policies that the file names to the defaults. Each starts as a copy of the built-in policy.
fn with_named_policies(mut known: Table, given: &Table) -> Table {
    let shipped = table_of(&PolicyConfig::default());
    for name in given.get("policies").and_then(Value::as_table).into_iter().flat_map(Table::keys) {
        layers::set(&mut known, &["policies".to_owned(), name.clone()], Value::Table(shipped.clone()));
    }
    known
}

/// Checks that a value can be read as the setting at `path`.
fn check_value(base: &Table, path: &[String], value: &Value) -> Result<(), String> {
    let mut table = base.clone();
    layers::set(&mut table, path, value.clone());
    let read: Result<Config, _> = table.try_into();
    read.map(drop).map_err(|error: toml::de::Error| error.message().trim().to_owned())
}

/// The given keys that do not exist.
fn unknown_keys(taken: &Table, config: &Config, given: &ExplicitValues) -> Vec<Problem> {
    let json = json_of(config);
    let known = layers::keys(&json);
    let problem = |key: String| Problem::UnknownKey {
        suggestion: nearest(&key, known.keys().map(String::as_str)).map(str::to_owned),
        origin: given.origin(&key),
        key,
    };
    layers::missing(taken, &json).iter().map(|path| problem(dotted(path))).collect()
}

fn table_of(settings: &impl serde::Serialize) -> Table {
    Table::try_from(settings).expect("settings are tables of plain values")
}

/// The configuration as in the file, with null for the keys that are not set.
pub(super) fn json_of(config: &Config) -> serde_json::Value {
    serde_json::to_value(config).expect("settings are tables of plain values")
}
