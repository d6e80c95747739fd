//! The environment of the process, which is read once and then passed on as a value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User, geteuid};

/// The data directory of the embedded PostgreSQL if contextd is started by root.
pub(super) const SYSTEM_DATA_DIR: &str = "/var/lib/contextd";

/// Environment variables, and the user that started the process.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    user: Option<Uid>,
}

impl Environment {
    /// An environment with these variables and without a user. Empty variables count as absent.
    pub fn new<N: Into<String>, V: Into<String>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self { variables: variables.filter(|(_, value)| !value.is_empty()).collect(), user: None }
    }

    /// The environment of this process. Variables that are not valid UTF-8 are left out.
    pub fn of_process() -> Self {
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { user: Some(geteuid()), ..Self::new(std::env::vars_os().filter_map(readable)) }
    }

    /// The value of a variable. Returns `None` if it is absent or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The default data directory: a system directory for root, else one in the user's home directory.
    pub(super) fn default_data_dir(&self) -> PathBuf {
        if self.user.is_some_and(Uid::is_root) {
            return PathBuf::from(SYSTEM_DATA_DIR);
        }
        let under = if cfg!(target_os = "macos") {
            self.home().map(|home| home.join("Library/Application Support"))
        } else {
            self.xdg("XDG_DATA_HOME", ".local/share")
        };
        under.map_or_else(|| PathBuf::from(SYSTEM_DATA_DIR), |dir| dir.join("contextd"))
    }

    /// The path of the configuration file that is used if none is named. Returns `None` if the home directory is not
    /// known.
    pub(super) fn default_config_file(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_CONFIG_HOME", ".config")?.join("contextd/contextd.toml"))
    }

    /// A directory of the XDG Base Directory Specification, which requires relative paths to be ignored.
    fn xdg(&self, variable: &str, under_home: &str) -> Option<PathBuf> {
        let named = self.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| Some(self.home()?.join(under_home)))
    }

    fn home(&self) -> Option<PathBuf> {
        let named = self.get("HOME").map(PathBuf::from);
        named.filter(|path| path.is_absolute()).or_else(|| home_of(self.user?))
    }
}

impl fmt::Debug for Environment {
    /// Writes only the names, since values may be secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.variables.keys()).finish()
    }
}

fn home_of(user: Uid) -> Option<PathBuf> {
    let home = User::from_uid(user).ok()??.dir;
    home.to_str().map(Path::new).map(Path::to_owned)
}
