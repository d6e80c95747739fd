//! The package of PostgreSQL is upgraded while PostgreSQL runs.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use contextd::pb::event::Payload;
use tonic::Code;

use crate::harness::{
    Host,
    errors::refusal,
    events::completed,
    host::{MODEL, answering, until},
    process::Place,
    requests::turn,
    survivor::{Survivor, asking, slow, two_tools},
};

/// The directory of an installed PostgreSQL's programs.
fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut dirs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    dirs.find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}

/// Replaces a program like a package manager does.
fn install(from: &Path, to: &Path, program: &str) {
    let new = to.join(format!("{program}.new"));
    fs::copy(from.join(program), &new).unwrap();
    fs::rename(new, to.join(program)).unwrap();
}

/// Row F45
#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_postgresql_whose_program_was_replaced_is_restarted() {
    let Some(package) = installed() else {
        eprintln!("skipped: no PostgreSQL of a package");
        return;
    };
    let programs = tempfile::tempdir().unwrap();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for program in ["initdb", "postgres"] {
        install(&package, programs.path(), program);
    }
    let place = Place::new(&format!("[embedded]\nbin_dir = '{}'\n", programs.path().display()))
        .script("slow", &slow())
        .script("tools", &two_tools());
    let served = place.serve().await;
    let before = place.postmaster().unwrap();
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await;
    install(&package, programs.path(), "postgres");
    until("PostgreSQL to be restarted", || async { place.postmaster().is_some_and(|pid| pid != before) }).await;
    host.survive(&[&served]).await;
    host.check_story(&served).await;
}

/// Makes PostgreSQL load a library that does not exist, as after an upgrade.
const LOADS: &str = "create function loads() returns trigger language plpgsql security definer as $$
    begin
      execute 'create function lost() returns int language c as ''/no/such.so'', ''lost''';
      return new;
    end $$;
    create trigger loads before insert on sessions for each row execute function loads();";

/// Row F45: a PostgreSQL that contextd cannot restart.
#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_postgresql_that_cannot_load_its_files_says_so() {
    let answers = [serde_json::json!([{"text": "Hello."}])];
    let host = Host::with(answering(&answers)).await;
    let client = host.database.client().await;
    client.batch_execute(LOADS).await.unwrap();
    let refused = host.try_execute(turn("s", MODEL, "Hi")).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "DATABASE_UNAVAILABLE"));
    let says = "cannot load its own files; restart it";
    assert!(refused.message().contains(says), "{refused}");
    let metrics = host.replica.scrape().await;
    let counted = metrics.lines().any(|line| {
        line.starts_with("db_client_operation_duration_seconds_count{") && line.contains("error_type=\"server_broken\"")
    });
    assert!(counted, "{metrics}");
    client.batch_execute("drop trigger loads on sessions").await.unwrap();
    completed(&host.run(turn("s", MODEL, "Hi")).await);
}
