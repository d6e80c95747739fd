//! Tasks that are spawned for a caller must keep its row-security scope. Without it their statements fail when
//! row-level security is enabled.

use super::{assert_clean, sources, without_tests};

/// Tasks of connections start before the caller is known.
const CONNECTIONS: &str = "src/grpc/connection.rs";

#[test]
fn what_is_spawned_for_a_caller_keeps_its_reach() {
    let mut files = sources("src/grpc");
    files.extend(sources("src/turn"));
    files.retain(|(path, _)| path != CONNECTIONS);
    assert_clean(&files, spawned_without_reach);
}

/// Tasks that do not start with setting the scope. Those of blocking threads do not use the database.
fn spawned_without_reach(_: &str, text: &str) -> Vec<String> {
    let code = without_tests(text);
    let tasks = code.split("spawn(").skip(1);
    let unsaid = tasks.filter(|task| {
        let said = task.trim_start();
        !(said.starts_with("reach.scope(") || said.starts_with("Reach::"))
    });
    unsaid
        .map(|task| {
            let begins: String = task.chars().take(40).collect();
            format!("spawn({begins}: say whose rows it may reach (store/row_security.rs)")
        })
        .collect()
}

#[test]
fn a_task_that_lost_its_reach_is_caught() {
    let caught = |text| spawned_without_reach("src/grpc/a.rs", text).len();
    assert_eq!(caught("tokio::spawn(async move { f().await });"), 1);
    assert_eq!(caught("tasks.spawn(Trace::current().scope(doing));"), 1);
    assert_eq!(caught("tokio::spawn(Reach::kept(doing));"), 0);
    assert_eq!(caught("tasks\n    .spawn(reach.scope(doing));"), 0);
    assert_eq!(caught("task::spawn_blocking(move || count());"), 0);
}
