//! Command-line flags generated from `config::SETTINGS`.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};

use crate::config::{self, ConfigError, Environment, LoadedConfig, SETTINGS, Setting, Sources, variable_of};

/// The settings given on the command line. [`SettingArgs::load`] adds the environment and the file.
#[derive(Debug)]
pub(super) struct SettingArgs {
    file: Option<PathBuf>,
    flags: Vec<(&'static Setting, String)>,
}

impl SettingArgs {
    /// Loads the settings in force.
    pub(super) fn load(self) -> Result<LoadedConfig, ConfigError> {
        let Self { file, flags } = self;
        config::load(&Sources { file, environment: Environment::of_process(), flags })
    }
}

impl clap::Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        let defaults = config::defaults();
        command.arg(config_flag()).args(SETTINGS.iter().map(|setting| flag(setting, defaults.get(setting.key))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let file = matches.get_one::<String>(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
        let flags = SETTINGS.iter().filter_map(|setting| Some((setting, given(matches, setting)?.clone()))).collect();
        Ok(Self { file, flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

const CONFIG: &str = "config";

fn config_flag() -> Arg {
    Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .env(kept(variable_of(CONFIG)))
        .hide_env_values(true)
        .help("TOML file of settings [default: $XDG_CONFIG_HOME/contextd/contextd.toml, if it exists]")
}

/// The variable and the default are only for the help text; `config` reads the settings.
fn flag(setting: &'static Setting, default: Option<&String>) -> Arg {
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        .value_name(setting.value_name)
        .env(kept(setting.variable()))
        .hide_env_values(true);
    let arg = match (setting.without_default(), default) {
        (Some(instead), _) => arg.help(format!("{} [{instead}]", setting.help())),
        (None, default) => arg.help(setting.help()).default_value(kept(default.cloned().unwrap_or_default())),
    };
    let switch = default.is_some_and(|default| default.parse::<bool>().is_ok());
    if switch { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
}

/// clap requires names and defaults with the lifetime of the process.
fn kept(text: String) -> &'static str {
    text.leak()
}

fn given<'a>(matches: &'a ArgMatches, setting: &Setting) -> Option<&'a String> {
    let on_the_command_line = matches.value_source(setting.flag) == Some(ValueSource::CommandLine);
    matches.get_one(setting.flag).filter(|_| on_the_command_line)
}
