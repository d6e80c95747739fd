//! When tool sets are removed and when they are kept.

use super::*;

async fn tool_sets(client: &Client) -> i64 {
    client.query_one("select count(*) from toolsets", &[]).await.unwrap().get(0)
}

/// A tool set whose only session was deleted an hour ago, as a sweep has recorded.
async fn unused_tool_set(host: &Host, client: &Client) {
    create(host, pb::Session { tools: tools(&["look"]), ..named("gone") }, "").await;
    delete(host, "gone", "").await.unwrap();
    age(client, HOUR).await;
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_set_is_removed_when_no_session_referred_to_it_for_a_day() {
    let host = Host::with(options(RetentionConfig { tool_sets: 24 * HOUR, ..for_ever() })).await;
    let client = host.database.client().await;
    create(&host, pb::Session { tools: tools(&["other"]), ..named("chat") }, "").await;
    unused_tool_set(&host, &client).await;
    age(&client, 23 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(tool_sets(&client).await, 2);
    // A new reference: its retention period starts again when that session is deleted.
    create(&host, pb::Session { tools: tools(&["look"]), ..named("again") }, "").await;
    age(&client, 48 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(tool_sets(&client).await, 2);
    delete(&host, "again", "").await.unwrap();
    age(&client, HOUR).await;
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(tool_sets(&client).await, 2);
    age(&client, 25 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(tool_sets(&client).await, 1, "that of the session which is there stays");
    assert_eq!(host.session("chat").await.tools.unwrap().host_tools[0].name, "other");
}

/// Without the foreign key, the session would lose its tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_set_that_a_session_is_about_to_refer_to_stays() {
    let host = Host::with(options(RetentionConfig { tool_sets: 24 * HOUR, ..for_ever() })).await;
    let client = host.database.client().await;
    let mut other = host.database.client().await;
    unused_tool_set(&host, &client).await;
    age(&client, 48 * HOUR).await;
    let creating = other.transaction().await.unwrap();
    let refer = "insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
                 select tenant_id, 'new', 1, toolset_id, '' from toolsets";
    assert_eq!(creating.execute(refer, &[]).await.unwrap(), 1);
    let sweep = tokio::spawn({
        let engine = std::sync::Arc::clone(&host.replica.engine);
        async move { as_worker(engine.sessions.retain()).await }
    });
    crate::harness::host::until("the sweep waits for the session", || async {
        let waiting =
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%sweep_tool_sets%'
                          and datname = current_database()";
        client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    creating.commit().await.unwrap();
    sweep.await.unwrap().unwrap();
    assert_eq!(tool_sets(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_tool_set_was_removed_concurrently_stores_it_again() {
    let host = Host::with(options(for_ever())).await;
    let client = host.database.client().await;
    let mut other = host.database.client().await;
    unused_tool_set(&host, &client).await;
    let removing = other.transaction().await.unwrap();
    assert_eq!(removing.execute("delete from toolsets", &[]).await.unwrap(), 1);
    let creating = tokio::spawn({
        let mut sessions = host.sessions();
        let session = pb::Session { tools: tools(&["look"]), ..named("chat") };
        let request = pb::CreateSessionRequest { session: Some(session), ..pb::CreateSessionRequest::default() };
        async move { sessions.create_session(request).await }
    });
    crate::harness::host::until("the session waits for the removal", || async {
        let waiting =
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%store::commit::commit%'
                          and datname = current_database()";
        client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    removing.commit().await.unwrap();
    let session = creating.await.unwrap().unwrap().into_inner().session.unwrap();
    assert_eq!(session.tools.unwrap().host_tools[0].name, "look");
}

// --- Many at once
// --------------------------------------------------------------------------------------------------
