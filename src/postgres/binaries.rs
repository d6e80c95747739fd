//! Finds the PostgreSQL programs; those that fit an existing cluster take precedence.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::Settings;
use super::error::Error;
use super::owner::Owner;

/// The oldest major version with all features that contextd uses.
const MINIMUM_MAJOR: u32 = 14;

/// Where installers put each version into a separate directory: root, prefix of the directory name, rest of the path.
const VERSIONED: [(&str, &str, &str); 6] = [
    ("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                  // packages of postgresql.org for RHEL
    ("/usr/libexec", "postgresql", ""),         // Alpine
    ("/opt/homebrew/opt", "postgresql", "bin"), // Homebrew, Apple silicon
    ("/usr/local/opt", "postgresql", "bin"),    // Homebrew, Intel
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// Identifies the file of the server program. A package upgrade replaces the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramFile {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

/// A directory with `postgres` and `initdb` of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binaries {
    dir: PathBuf,
    /// As the program reports it, for example `15.18`.
    pub(super) version: String,
    major: u32,
}

impl Binaries {
    /// Finds the first installation whose major version is `cluster`, or without a cluster the first that is new
    /// enough.
    pub(super) async fn find(settings: &Settings, owner: &Owner, cluster: Option<&str>) -> Result<Self, Error> {
        let mut unfit = Vec::new();
        let mut unreachable = None;
        for dir in places(settings) {
            if let Err(error) = owner.check_reaches(&dir.join("postgres")) {
                unreachable.get_or_insert(error);
                continue;
            }
            match Self::probe(dir).await {
                Some(found) if found.fits(cluster) => return Ok(found),
                Some(found) => unfit.push(found),
                None => {}
            }
        }
        let unreachable = unreachable.filter(|_| unfit.is_empty());
        Err(unreachable.unwrap_or_else(|| explain(settings, &unfit, cluster)))
    }

    async fn probe(dir: PathBuf) -> Option<Self> {
        let mut command = Command::new(dir.join("postgres"));
        let output = command.arg("--version").env_clear().current_dir("/").stdin(Stdio::null()).output().await.ok()?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { major: leading_number(&version), version, dir })
    }

    fn fits(&self, cluster: Option<&str>) -> bool {
        self.major >= MINIMUM_MAJOR && cluster.is_none_or(|cluster| cluster == self.major.to_string())
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// The file of the server program. Returns `None` if it is missing, as during a package upgrade.
    pub(super) fn program_file(&self) -> Option<ProgramFile> {
        let found = fs::metadata(self.postgres()).ok()?;
        Some(ProgramFile { device: found.dev(), inode: found.ino(), modified: (found.mtime(), found.mtime_nsec()) })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A client program of the same version. Returns `None` if it is not installed.
    pub(super) fn client(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir.join(name)).filter(|path| is_program(path))
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }
}

/// Every directory with both programs, in order of preference, without duplicates.
fn places(settings: &Settings) -> Vec<PathBuf> {
    let candidates = match &settings.embedded.bin_dir {
        Some(dir) => vec![dir.clone()],
        None => {
            let mut all: Vec<PathBuf> = std::env::split_paths(&settings.search_path).collect();
            all.extend(VERSIONED.iter().flat_map(|(root, start, rest)| versions(Path::new(root), start, rest)));
            let cache = settings.cache_dir.as_deref();
            all.extend(cache.into_iter().flat_map(|dir| versions(&dir.join("postgresql"), "", "bin")));
            all
        }
    };
    let mut places = Vec::new();
    for dir in candidates.iter().filter_map(|dir| programs_dir(dir)) {
        if !places.contains(&dir) {
            places.push(dir);
        }
    }
    places
}

/// `<root>/<start>*/<rest>`, newest first.
fn versions(root: &Path, start: &str, rest: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut found: Vec<(u32, PathBuf)> = names
        .filter_map(|name| {
            let version = name.to_str()?.strip_prefix(start)?.trim_start_matches('@').to_owned();
            Some((leading_number(&version), root.join(&name).join(rest)))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, dir)| dir).collect()
}

/// Resolves links to the directory of `postgres`, because the server locates its own files from there. `initdb` must be
/// in the same directory.
fn programs_dir(dir: &Path) -> Option<PathBuf> {
    let postgres = dir.join("postgres").canonicalize().ok()?;
    let dir = postgres.parent()?;
    (is_program(&postgres) && is_program(&dir.join("initdb"))).then(|| dir.to_owned())
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` has version `15.18`.
fn version_in(output: &str) -> Option<String> {
    let version = output.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
    Some(version.to_owned())
}

fn leading_number(text: &str) -> u32 {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

/// The error if no installation fits.
fn explain(settings: &Settings, unfit: &[Binaries], cluster: Option<&str>) -> Error {
    let found: Vec<String> = unfit.iter().map(|one| format!("{} in {}", one.version, one.dir.display())).collect();
    let found = found.join(", ");
    match cluster {
        _ if unfit.is_empty() => Error::NoBinaries {
            looked: settings.embedded.bin_dir.iter().map(|dir| format!(" in {}", dir.display())).collect(),
        },
        None => Error::TooOld { found, minimum: MINIMUM_MAJOR },
        Some(cluster) => {
            Error::VersionMismatch { data_dir: settings.cluster_dir.clone(), cluster: cluster.to_owned(), found }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str) -> Binaries {
        Binaries { dir: "/opt/pg/bin".into(), version: version.into(), major: leading_number(version) }
    }

    #[test]
    fn postgres_version_is_parsed_from_the_programs_output() {
        assert_eq!(version_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n").as_deref(), Some("15.18"));
        assert_eq!(version_in("postgres (PostgreSQL) 19devel\n").map(|found| leading_number(&found)), Some(19));
        assert_eq!(version_in("something else"), None);
    }

    #[test]
    fn a_cluster_needs_its_own_major_version_and_a_new_one_any_from_14() {
        assert!(version("15.18").fits(Some("15")) && version("15.18").fits(None));
        assert!(!version("16.1").fits(Some("15")));
        assert!(!version("13.9").fits(Some("13")) && !version("13.9").fits(None));
    }

    #[test]
    fn newer_postgres_directories_are_tried_first() {
        let root = tempfile::tempdir().unwrap();
        for name in ["postgresql@9.6", "postgresql@17", "postgresql@14", "other"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let names = ["postgresql@17/bin", "postgresql@14/bin", "postgresql@9.6/bin"].map(|name| root.path().join(name));
        assert_eq!(versions(root.path(), "postgresql", "bin"), names);
    }

    #[test]
    fn every_missing_program_error_says_what_to_do() {
        let settings = Settings::new("/data", "/contextd");
        let none = explain(&settings, &[], Some("15")).to_string();
        assert!(
            ["apt-get install", "dnf install", "brew install", "--database-url"].iter().all(|way| none.contains(way))
        );
        let old = explain(&settings, &[version("13.9")], None).to_string();
        assert!(old.contains("13.9 in /opt/pg/bin is too old: install version 14"), "{old}");
        let other = explain(&settings, &[version("17.2")], Some("15")).to_string();
        assert!(other.contains("PostgreSQL 15, but the binaries found are 17.2"), "{other}");
    }
}
