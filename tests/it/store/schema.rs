//! A lint over the catalog: tenant isolation, the keys of sessions, and inexpensive updates of the hot row.

use std::collections::BTreeMap;

use crate::harness::TestDatabase;

/// Tables without a tenant: the versions of keys and limits, the replicas, and the history of migrations.
const GLOBAL: [&str; 4] = ["api_keys_version", "refinery_schema_history", "replicas", "tenant_limits_version"];

/// An index with its columns. The `"C"` collation is marked.
struct Index {
    table: String,
    name: String,
    primary: bool,
    columns: Vec<String>,
    predicate: Vec<String>,
}

async fn indexes() -> Vec<Index> {
    let sql = "select t.relname::text, i.relname::text, x.indisprimary,
                      array(select a.attname || case when co.collname = 'C' then ' C' else '' end
                              from unnest(x.indkey::int2[], x.indcollation::oid[]) with ordinality as k(att, coll, n)
                              join pg_attribute a on a.attrelid = t.oid and a.attnum = k.att
                              left join pg_collation co on co.oid = k.coll
                             where k.n <= x.indnkeyatts order by k.n),
                      array(select a.attname::text from pg_depend d
                              join pg_attribute a on a.attrelid = t.oid and a.attnum = d.refobjsubid
                             where d.objid = i.oid and d.refobjid = t.oid and d.refobjsubid > 0 and not a.attnum = any(x.indkey::int2[]))
                 from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
                where t.relnamespace = 'public'::regnamespace and t.relkind = 'r' order by 1, 2";
    let rows = TestDatabase::new().await.client().await.query(sql, &[]).await.unwrap();
    let index = |row: &tokio_postgres::Row| Index {
        table: row.get(0),
        name: row.get(1),
        primary: row.get(2),
        columns: row.get(3),
        predicate: row.get(4),
    };
    rows.iter().map(index).filter(|index| !GLOBAL.contains(&index.table.as_str())).collect()
}

async fn columns() -> BTreeMap<String, Vec<String>> {
    let sql = "select table_name::text, array_agg(column_name::text) from information_schema.columns
                where table_schema = 'public' group by 1";
    let rows = TestDatabase::new().await.client().await.query(sql, &[]).await.unwrap();
    rows.iter()
        .map(|row| (row.get::<_, String>(0), row.get(1)))
        .filter(|(name, _)| !GLOBAL.contains(&name.as_str()))
        .collect()
}

#[tokio::test]
async fn every_primary_key_starts_with_the_tenant_and_goes_on_with_the_session() {
    let indexes = indexes().await;
    for (table, columns) in columns().await {
        let key = indexes.iter().find(|index| index.table == table && index.primary);
        let key = &key.unwrap_or_else(|| panic!("{table} has no primary key")).columns;
        assert_eq!(key[0], "tenant_id C", "{table}");
        if columns.iter().any(|column| column == "session_id") {
            assert_eq!(key[1], "session_id C", "{table}");
        }
    }
}

#[tokio::test]
async fn every_index_starts_with_the_tenant() {
    // Sweeps and polls read the oldest or due rows of all tenants.
    let retention = [
        "sessions_oldest_event",
        "session_activity_expiring",
        "idempotency_by_age",
        "queue_ended",
        "queue_expired",
        "session_run_due",
    ];
    // Hashes of labels, which include the tenant.
    let hashes = "session_revisions_labels";
    let stray: Vec<String> = indexes()
        .await
        .into_iter()
        .filter(|index| {
            index.name != hashes
                && !retention.contains(&index.name.as_str())
                && index.columns.first().is_none_or(|column| column != "tenant_id C")
        })
        .map(|index| index.name)
        .collect();
    assert_eq!(stray, Vec::<String>::new());
}

#[tokio::test]
async fn no_foreign_key_leaves_the_tenant() {
    let sql = "select c.conname::text, a.attname::text, f.attname::text from pg_constraint c
                 join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
                 join pg_attribute f on f.attrelid = c.confrelid and f.attnum = c.confkey[1]
                where c.contype = 'f'";
    for row in TestDatabase::new().await.client().await.query(sql, &[]).await.unwrap() {
        let (name, from, to): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        assert_eq!((from.as_str(), to.as_str()), ("tenant_id", "tenant_id"), "{name}");
    }
}

#[tokio::test]
async fn no_session_run_index_covers_a_column_that_changes_within_a_turn() {
    for index in indexes()
        .await
        .into_iter()
        // The index of due turns. Its column changes when a turn starts or stops waiting for its tools.
        .filter(|index| index.table == "session_run" && index.name != "session_run_due")
    {
        assert_eq!(index.columns, ["tenant_id C", "session_id C"], "{}", index.name);
        assert!(index.predicate.is_empty(), "{}: {:?}", index.name, index.predicate);
    }
}
