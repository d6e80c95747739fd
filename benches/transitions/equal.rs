//! Both forms do the same: on the same prepared sessions they give the same answers and leave the
//! same rows in all tables.

use std::collections::BTreeSet;

use contextd::postgres::Postgres;
use futures_util::future::join_all;
use tokio_postgres::Client;

use super::{
    database,
    forms::{Answer, Form, Transition, Writer, parameters},
    values::{Values, admission, ending},
};

/// How a transition is prepared, and what it answers. In SQL `$s` stands for the session.
struct Scene {
    name: &'static str,
    transition: Transition,
    /// SQL before the transition.
    prepared: &'static str,
    change: fn(&mut Values),
    /// The answer; a second one where the transition is repeated unchanged.
    answers: &'static [&'static str],
}

/// What is being tried, the statement that prepares it, how the values differ, and the answers
/// expected.
type Situation = (
    &'static str,
    &'static str,
    fn(&mut Values),
    &'static [&'static str],
);

/// The answer of a finish with two events that ends the turn, and of one after which it goes on.
const ENDS: &str = "state 0, cancel 0, next seq 7";
const GOES_ON: &str = "state 1, cancel 0, next seq 6";
const QUEUED: &str = "insert into queue (tenant_id, session_id, message_id, delivery, body) values ('bench', '$s', 'q1', ";

const FINISHES: &[Situation] = &[
    ("a turn ends", "", |_| {}, &[ENDS]),
    ("its end is repeated", "", |_| {}, &[ENDS, "refused"]),
    ("a message waits", "1, '')", |_| {}, &[GOES_ON]),
    (
        "a message waits and the request is repeated",
        "1, '')",
        |_| {},
        &[GOES_ON, "refused"],
    ),
    (
        "a message waits and the repeated request has no rows",
        "3, '')",
        |values| {
            values.without_rows();
        },
        &["state 1, cancel 0, next seq 4", "refused"],
    ),
    (
        "a message waits for the session to be idle",
        "2, '')",
        |_| {},
        &[ENDS],
    ),
    (
        "the epoch is another",
        "",
        |values| {
            values.set("epoch", 2_i64);
        },
        &["refused"],
    ),
    (
        "the operation is an older one",
        "update session_run set op = 1 where session_id = '$s'",
        |_| {},
        &["refused"],
    ),
    (
        "the operation is one to come",
        "",
        |values| {
            values.set("op", 1_i64);
        },
        &["refused"],
    ),
    (
        "another replica owns the turn",
        "update session_run set owner = 'other' where session_id = '$s'",
        |_| {},
        &["refused"],
    ),
    (
        "nobody owns the turn",
        "update session_run set owner = null where session_id = '$s'",
        |_| {},
        &["refused"],
    ),
    (
        "another turn runs",
        "",
        |values| {
            values.set("turn", "other");
        },
        &["refused"],
    ),
    (
        "a call is open",
        "update session_run set open_calls = 1 where session_id = '$s'",
        |_| {},
        &["refused"],
    ),
    (
        "the turn waits for calls",
        "update session_run set state = 2, owner = null, open_calls = 1 where session_id = '$s'",
        |_| {},
        &["refused"],
    ),
    (
        "the session is deleted",
        "update session_run set state = 3, owner = null where session_id = '$s'",
        |_| {},
        &["refused"],
    ),
    (
        "there is no session",
        "",
        |values| {
            values.set("session", "nothing");
        },
        &["refused"],
    ),
    (
        "the turn is cancelled",
        "update session_run set cancel = 2, takeovers = 3 where session_id = '$s'",
        |_| {},
        &["state 1, cancel 2, next seq 6"],
    ),
    (
        "nothing is written but the end",
        "",
        |values| {
            values.without_rows();
        },
        &["state 0, cancel 0, next seq 5"],
    ),
    (
        "no call was made",
        "",
        |values| {
            values
                .set("calls", 0_i64)
                .set("measured", None::<Vec<i64>>)
                .leave_out("store::usage::spend");
        },
        &[ENDS],
    ),
    (
        "nothing was measured",
        "",
        |values| {
            values.set("measured", None::<Vec<i64>>);
        },
        &[ENDS],
    ),
    (
        "the prompt grew since the last call",
        "update session_run set anchor_model = 'scripted/bench', anchor_version = 0, anchor_input = 22, growth = 10 where session_id = '$s'",
        |_| {},
        &[ENDS],
    ),
    (
        "the context changed since the last call",
        "update session_run set anchor_model = 'scripted/bench', anchor_version = 3, anchor_input = 22, growth = 10 where session_id = '$s'",
        |_| {},
        &[ENDS],
    ),
    (
        "the model was used before",
        "insert into usage_totals (tenant_id, session_id, purpose, model, calls, input_tokens) values ('bench', '$s', 1, 'scripted/bench', 3, 100)",
        |_| {},
        &[ENDS],
    ),
    (
        "partial text is stored",
        "insert into partial_chunks (tenant_id, session_id, epoch, message_id, n, body) select 'bench', '$s', e, 'm', 1, '' from generate_series(0, 2) e",
        |_| {},
        &[ENDS],
    ),
    (
        "a compaction runs",
        "insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, info) values ('bench', '$s', 'c', 1, now() + interval '3000 s', 0, '')",
        |_| {},
        &[ENDS],
    ),
    (
        "the step begins another one",
        "",
        |values| {
            values.set("kinds", vec!["message_committed", "step_started"]);
        },
        &[ENDS],
    ),
    (
        "the message has media and a pinned text",
        "insert into blobs (tenant_id, blob_id, media_type, size_bytes) values ('bench', 'blob', 'image/png', 1) on conflict do nothing",
        with_media,
        &[ENDS],
    ),
    (
        "the blob is missing",
        "",
        |values| {
            with_media(values);
            values.set("part_bodies", vec!["missing".to_owned(); 2]);
        },
        &["error 23503"],
    ),
    (
        "the message exists",
        "insert into messages (tenant_id, session_id, seq, message_id, step, role, tokens, info) values ('bench', '$s', 99, '$s-turn-answer', 1, 3, 4, '')",
        |_| {},
        &["error 23505"],
    ),
];

const ADMISSIONS: &[Situation] = &[
    (
        "a session is created",
        "",
        |_| {},
        &["epoch 1, op 0, turn $s-turn, next seq 4"],
    ),
    (
        "its creation is repeated",
        "",
        |_| {},
        &["epoch 1, op 0, turn $s-turn, next seq 4", "refused"],
    ),
    (
        "no request is remembered",
        "",
        |values| {
            values
                .set("request_id", None::<String>)
                .leave_out("store::admission::request");
        },
        &["epoch 1, op 0, turn $s-turn, next seq 4"],
    ),
    (
        "the session lives for an hour",
        "",
        |values| {
            values.set("ttl", Some(3600.0_f64));
        },
        &["epoch 1, op 0, turn $s-turn, next seq 4"],
    ),
    (
        "the tools are new",
        "",
        |values| {
            values.set("toolset", "new").set("tools", b"tools".to_vec());
        },
        &["epoch 1, op 0, turn $s-turn, next seq 4"],
    ),
    (
        "the turn has no rows",
        "",
        |values| {
            values.without_rows();
        },
        &["epoch 1, op 0, turn $s-turn, next seq 1"],
    ),
    (
        "the id was that of a deleted session",
        "insert into idempotency (tenant_id, session_id, request_id, req_hash, result) values ('bench', '$s', '', '', '7')",
        |_| {},
        &["epoch 8, op 0, turn $s-turn, next seq 4"],
    ),
    (
        "a deleted session still has the id",
        "insert into session_run (tenant_id, session_id, state) values ('bench', '$s', 3)",
        |_| {},
        &["refused"],
    ),
    (
        "the session exists",
        "insert into sessions (tenant_id, session_id) values ('bench', '$s')",
        |_| {},
        &["refused"],
    ),
    (
        "the message has media",
        "insert into blobs (tenant_id, blob_id, media_type, size_bytes) values ('bench', 'blob', 'image/png', 1) on conflict do nothing",
        with_media,
        &["epoch 1, op 0, turn $s-turn, next seq 4"],
    ),
];

/// Gives the message a medium and a pinned text.
fn with_media(values: &mut Values) {
    let id = values.message.clone();
    values
        .set("part_messages", vec![id; 2])
        .set("part_positions", vec![0_i32, 1]);
    values
        .set("part_kinds", vec!["media", "text"])
        .set("part_bodies", vec!["blob".to_owned(); 2]);
    values
        .set("part_calls", vec![None::<String>; 2])
        .set("part_names", vec![None::<String>; 2]);
    values
        .set("part_outcomes", vec![None::<i16>; 2])
        .set("part_rests", vec![None::<Vec<u8>>; 2]);
    values
        .set("part_tokens", vec![1000_i32, 7])
        .set("part_categories", vec![6_i16, 8])
        .need("store::rows::media");
}

fn scenes() -> impl Iterator<Item = Scene> {
    let finish = FINISHES.iter().map(|row| (Transition::Finish, row));
    let admission = ADMISSIONS.iter().map(|row| (Transition::AdmitNew, row));
    finish
        .chain(admission)
        .map(|(transition, &(name, prepared, change, answers))| Scene {
            name,
            transition,
            prepared,
            change,
            answers,
        })
}

/// Fails unless both forms give the same answers and leave the same rows.
pub(crate) async fn check(postgres: &Postgres) {
    check_names();
    let mut sides = Vec::new();
    for form in Form::ALL {
        let name = format!("equal_{form:?}").to_lowercase();
        database::create(postgres, &name).await;
        let prepares = Writer::new(database::connect(postgres, &name).await, Form::Cte).await;
        let writers =
            join_all((0..4).map(|_| async {
                Writer::new(database::connect(postgres, &name).await, form).await
            }));
        sides.push((prepares, writers.await));
    }
    let mut count = 0;
    for (number, scene) in scenes().enumerate() {
        let mut left = Vec::new();
        for (prepares, writers) in &sides {
            let answers = play(&scene, &format!("s{number}"), prepares, &writers[0]).await;
            left.push((answers, contents(prepares.client()).await));
        }
        let [(answers, rows), (plain_answers, plain_rows)] = <[_; 2]>::try_from(left).unwrap();
        assert_eq!(
            (&plain_answers, differing(&rows, &plain_rows)),
            (&answers, Vec::new()),
            "{}",
            scene.name
        );
        let expected: Vec<String> = scene
            .answers
            .iter()
            .map(|it| it.replace("$s", &format!("s{number}")))
            .collect();
        assert_eq!(answers, expected, "{}", scene.name);
        count += 1;
    }
    for (_, writers) in &sides {
        race(writers).await;
    }
    println!("both forms are the same in {count} situations");
}

/// Each form takes all values, and no others.
fn check_names() {
    for (transition, values) in [
        (Transition::AdmitNew, admission("s", "t")),
        (Transition::Finish, ending("s", "t")),
    ] {
        for form in Form::ALL {
            let taken = parameters(form, transition);
            let given: BTreeSet<String> = values.names().into_iter().map(str::to_owned).collect();
            let unused: Vec<_> = given
                .difference(&taken)
                .filter(|name| *name != "offset" && *name != "estimator")
                .collect();
            assert_eq!(
                (unused, taken.difference(&given).collect::<Vec<_>>()),
                (vec![], vec![]),
                "{transition:?}, {form:?}"
            );
        }
    }
}

/// Prepares a session and writes the transition, as often as answers are expected. Gives the
/// answers.
async fn play(scene: &Scene, session: &str, prepares: &Writer, writer: &Writer) -> Vec<String> {
    let turn = format!("{session}-turn");
    let mut values = match scene.transition {
        Transition::AdmitNew => admission(session, &turn),
        Transition::Finish => {
            let mut begun = admission(session, &turn);
            begun.set("lease", 3000.0_f64).set("timeout", 36_000.0_f64);
            assert!(
                matches!(
                    prepares.write(Transition::AdmitNew, &begun).await,
                    Answer::Row(_)
                ),
                "{}",
                scene.name
            );
            ending(session, &turn)
        }
    };
    let aged = "; update session_activity set updated_at = now() - interval '5000 s' where session_id = '$s'";
    let queued = if scene.prepared.ends_with("'')") && !scene.prepared.starts_with("insert") {
        QUEUED
    } else {
        ""
    };
    let prepared = [queued, scene.prepared, aged]
        .concat()
        .replace("$s", session);
    prepares
        .client()
        .batch_execute(&prepared)
        .await
        .unwrap_or_else(|error| panic!("{}: {error:?}", scene.name));
    values.set("lease", 3000.0_f64);
    if scene.transition == Transition::AdmitNew {
        values.set("timeout", 36_000.0_f64);
    }
    (scene.change)(&mut values);
    let mut answers = Vec::new();
    for _ in scene.answers {
        answers.push(writer.write(scene.transition, &values).await.to_string());
    }
    answers
}

/// All rows, with times as how far from now they are, in thousands of seconds.
async fn contents(client: &Client) -> BTreeSet<String> {
    let columns = "select table_name::text, string_agg(case data_type
             when 'timestamp with time zone' then format('case when isfinite(%1$I) then round(extract(epoch from %1$I - now()) / 1000)::text else %1$I::text end', column_name)
             else format('%I::text', column_name) end, ', ' order by ordinal_position)
        from information_schema.columns
       where table_schema = 'public' and table_name <> 'refinery_schema_history' group by 1";
    let mut contents = BTreeSet::new();
    for table in client.query(columns, &[]).await.unwrap() {
        let (name, columns): (String, String) = (table.get(0), table.get(1));
        let rows = client
            .query(&format!("select row({columns})::text from {name}"), &[])
            .await
            .unwrap();
        contents.extend(
            rows.into_iter()
                .map(|row| format!("{name} {}", row.get::<_, &str>(0))),
        );
    }
    assert!(contents.len() > 10, "the tables were not read");
    contents
}

fn differing<'a>(one: &'a BTreeSet<String>, other: &'a BTreeSet<String>) -> Vec<&'a String> {
    one.symmetric_difference(other).collect()
}

/// Of several that write the same transition at once, one does.
async fn race(writers: &[Writer]) {
    for round in 0..10 {
        let session = format!("race{round}");
        let turn = format!("race{round}-turn");
        for (transition, values) in [
            (Transition::AdmitNew, admission(&session, &turn)),
            (Transition::Finish, ending(&session, &turn)),
        ] {
            let answers = join_all(
                writers
                    .iter()
                    .map(|writer| writer.write(transition, &values)),
            )
            .await;
            let written = answers
                .iter()
                .filter(|answer| matches!(answer, Answer::Row(_)))
                .count();
            let refused = answers
                .iter()
                .filter(|answer| **answer == Answer::Refused)
                .count();
            assert_eq!(
                (written, refused),
                (1, writers.len() - 1),
                "{transition:?}: {answers:?}"
            );
        }
    }
}
