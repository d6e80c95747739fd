//! Supervises a private PostgreSQL cluster that uses the installed PostgreSQL programs.
//!
//! [`Postgres::start`] finds the programs, creates the cluster if it is missing, cleans up after a crash, and starts
//! the server under a guard: a second process of our own binary ([`guard_main`]) that stops the server when contextd
//! exits, for any reason. The server listens only on a Unix socket, in a directory that only the server's user and ours
//! can enter, and accepts only our user. It never runs as root: if contextd does, an unprivileged user owns and runs
//! the server.

mod binaries;
mod child;
mod cluster;
mod database;
mod dump;
mod error;
mod guard;
mod lock;
mod log;
mod orphan;
mod owner;
mod pid_file;
mod server;
mod settings;
mod socket;
mod stopping;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::Config;

pub use dump::{dump, restore};
pub use error::Error;
pub use guard::guard_main;
pub use settings::{DATABASE, Durability, Progress, ROLE, Settings};

use binaries::{Binaries, ProgramFile};
use child::GuardedProcess;
use lock::Lock;
use orphan::PostmasterState;
use owner::Owner;
use pid_file::PidFile;
use stopping::GUARD_TIMEOUT;

/// A running server. Dropping it stops the server in the background; [`Postgres::stop`] waits for the stop.
///
/// It does not depend on the async runtime from which it was started, so tests may keep one in a static.
#[derive(Debug)]
pub struct Postgres {
    running: Mutex<Running>,
    /// Held while the server is restarted.
    restarting: tokio::sync::Mutex<()>,
    settings: Settings,
    owner: Owner,
    socket_dir: PathBuf,
    _lock: Lock,
}

/// A server process and the program file that it was started from.
#[derive(Debug, Clone)]
struct Running {
    process: Arc<GuardedProcess>,
    binaries: Binaries,
    program: Option<ProgramFile>,
}

impl Postgres {
    /// Starts the server and returns when our database accepts connections.
    pub async fn start(settings: Settings, progress: Progress<'_>) -> Result<Self, Error> {
        let settings = resolve(settings)?;
        let data_dir = settings.cluster_dir.clone();
        let owner = Owner::of(&data_dir)?;
        owner.check_reaches(data_dir.parent().unwrap_or(&data_dir))?;
        let lock = Lock::take(&data_dir, &owner)?;
        let binaries = Binaries::find(&settings, &owner, cluster::version(&data_dir).as_deref()).await?;
        if cluster::version(&data_dir).is_none() {
            cluster::create(&settings, &owner, &binaries, progress).await?;
        }
        cluster::check_owner(&data_dir, &owner)?;
        orphan::clear(&data_dir, progress).await?;
        cluster::allow_current_user(&data_dir, &owner)?;
        let socket_dir = socket::prepare(&data_dir, settings.embedded.runtime_dir.as_deref(), &owner)?;
        let running = Running::start(&settings, &owner, binaries, &socket_dir, progress).await?;
        let postgres = Self {
            running: Mutex::new(running),
            restarting: tokio::sync::Mutex::default(),
            settings,
            owner,
            socket_dir,
            _lock: lock,
        };
        database::ensure(&postgres.config("postgres")).await?;
        Ok(postgres)
    }

    /// The connection configuration for one of its databases.
    pub fn config(&self, database: &str) -> Config {
        config(&self.socket_dir, database)
    }

    /// The directory of the server's Unix socket.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Resolves when the server or its guard has exited without a request to stop or restart.
    pub async fn exited(&self) {
        loop {
            let process = self.running().process;
            process.exited().await;
            drop(self.restarting.lock().await);
            if Arc::ptr_eq(&process, &self.running().process) {
                return;
            }
        }
    }

    /// Whether the file of the server's program was replaced, as by a package upgrade. A running server cannot load the
    /// libraries of the new package.
    pub fn is_replaced(&self) -> bool {
        let Running { process: _, binaries, program } = self.running();
        binaries.program_file().is_some_and(|file| Some(file) != program)
    }

    /// Restarts the server with the program that is installed now. Clients are disconnected.
    pub async fn restart(&self) -> Result<(), Error> {
        let _restarting = self.restarting.lock().await;
        let data_dir = &self.settings.cluster_dir;
        let version = cluster::version(data_dir);
        let binaries = Binaries::find(&self.settings, &self.owner, version.as_deref()).await?;
        let before = self.running().process;
        before.request_exit();
        let _ = tokio::time::timeout(GUARD_TIMEOUT, before.exited()).await; // if late, orphan::clear stops it
        orphan::clear(data_dir, &|_| {}).await?;
        let (settings, owner) = (&self.settings, &self.owner);
        let running = Running::start(settings, owner, binaries, &self.socket_dir, &|_| {}).await?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
        Ok(())
    }

    fn running(&self) -> Running {
        let running = self.running.lock();
        running.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the server and waits until it is down. Clients are disconnected; committed transactions are preserved.
    pub async fn stop(self) -> Result<(), Error> {
        let process = self.running().process;
        process.request_exit();
        let _ = tokio::time::timeout(GUARD_TIMEOUT, process.exited()).await; // if late, orphan::clear stops it
        orphan::clear(&self.settings.cluster_dir, &|_| {}).await?; // finds a server only if the guard was killed
        socket::remove(&self.socket_dir);
        Ok(())
    }
}

impl Running {
    async fn start(
        settings: &Settings,
        owner: &Owner,
        binaries: Binaries,
        socket_dir: &Path,
        progress: Progress<'_>,
    ) -> Result<Self, Error> {
        // Read before the start, so that a concurrent replacement is noticed.
        let program = binaries.program_file();
        let process = server::start(settings, owner, &binaries, socket_dir, progress).await?;
        Ok(Self { process: Arc::new(process), binaries, program })
    }
}

/// The connection configuration of a running server of this data directory. Returns `None` if no server runs or it
/// refuses the connection.
pub async fn find_running(data_dir: &Path) -> Option<Config> {
    let data_dir = data_dir.canonicalize().ok()?;
    let file = PidFile::read(&data_dir).filter(PidFile::is_ready)?;
    let running = file.pid > 0 && orphan::postmaster_state(file.pid, &data_dir) == PostmasterState::Running;
    let config = config(file.socket_dir.as_deref().filter(|_| running)?, DATABASE);
    database::answers(&config).await.then_some(config)
}

/// Makes the paths absolute, so that they do not depend on the working directory.
fn resolve(mut settings: Settings) -> Result<Settings, Error> {
    settings.cluster_dir = cluster::locate(&settings.cluster_dir)?;
    for path in [&mut settings.guard_program].into_iter().chain(&mut settings.embedded.runtime_dir) {
        *path = std::path::absolute(&*path).map_err(error::io("resolve", path.clone()))?;
    }
    Ok(settings)
}

fn config(socket_dir: &Path, database: &str) -> Config {
    let mut config = Config::new();
    config.host_path(socket_dir).port(socket::PORT).user(ROLE).dbname(database);
    config
}
