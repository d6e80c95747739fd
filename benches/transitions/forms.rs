//! The two forms of a transition: one statement of many CTEs, and plain statements of one
//! transaction, as the store sends them.

use std::{collections::BTreeSet, fmt};

use contextd::store::{hot_statements, hot_transitions, named_parameters::Named, rows::PARAMETERS};
use futures_util::future::{join_all, join3};
use tokio_postgres::{Client, Row, Statement, error::SqlState};

use super::values::Values;

/// The statements of many CTEs, which the store sent before.
const FINISH: &str = include_str!("finish.sql");
const ADMIT_NEW: &str = include_str!("admit_new.sql");

/// The parameters that each has of its own, after those of the rows.
const OF_FINISH: &[&str] = &[
    "epoch",
    "op",
    "model",
    "calls",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "step_count",
    "final_message",
    "payload",
    "outcome",
    "lease",
    "measured",
    "owner",
    "turn",
];
const OF_ADMIT_NEW: &[&str] = &[
    "turn",
    "owner",
    "lease",
    "timeout",
    "revision",
    "request_id",
    "request_hash",
    "request",
    "model",
    "toolset",
    "config",
    "tools",
    "tools_tokens",
    "ttl",
];
/// The statements that answer, as the plain form names them.
const ADMITS: &str = "store::admission::admit_new";
const FENCE: &str = "store::turn::finish";
const OF_SESSION: &[&str] = &["tenant", "session"];

/// How a transition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One statement of many CTEs, as the store sent it before.
    Cte,
    /// One simple statement for each table, as the store sends them.
    Plain,
}

impl Form {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Cte, Self::Plain];
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// A session and its first turn.
    AdmitNew,
    /// The end of a turn.
    Finish,
}

/// What a transition answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The values of its row.
    Row(String),
    /// It is refused.
    Refused,
    /// The database's error.
    Error(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(values) => f.write_str(values),
            Self::Refused => f.write_str("refused"),
            Self::Error(code) => write!(f, "error {code}"),
        }
    }
}

/// A statement as one connection has prepared it.
struct Prepared {
    /// What it writes.
    name: String,
    statement: Statement,
    parameters: Vec<String>,
    /// It gives the transition's answer.
    answers: bool,
}

/// A connection that knows one form of the transitions.
pub(crate) struct Writer {
    /// The process that serves it.
    pub backend: i32,
    client: Client,
    admit_new: Vec<Prepared>,
    finish: Vec<Prepared>,
}

impl Writer {
    /// Prepares the statements of a form.
    pub(crate) async fn new(client: Client, form: Form) -> Self {
        let admit_new = prepare(&client, statements(form, Transition::AdmitNew)).await;
        let finish = prepare(&client, statements(form, Transition::Finish)).await;
        let backend = client
            .query_one("select pg_backend_pid()", &[])
            .await
            .unwrap()
            .get(0);
        Self {
            backend,
            client,
            admit_new,
            finish,
        }
    }

    /// The connection.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Writes a transition in one round trip. What the store sends as a single statement is sent as
    /// one here.
    pub(crate) async fn write(&self, transition: Transition, values: &Values) -> Answer {
        let statements = match transition {
            Transition::AdmitNew => &self.admit_new,
            Transition::Finish => &self.finish,
        };
        let needed: Vec<&Prepared> = statements
            .iter()
            .filter(|it| values.needs(&it.name))
            .collect();
        match self.send(&needed, values).await {
            Ok(Some(row)) => Answer::Row(text(transition, &row)),
            Ok(None) => Answer::Refused,
            Err(error) if error.code() == Some(refusal(transition)) => Answer::Refused,
            Err(error) => Answer::Error(
                error
                    .code()
                    .map_or_else(|| error.to_string(), |code| code.code().to_owned()),
            ),
        }
    }

    async fn send(
        &self,
        needed: &[&Prepared],
        values: &Values,
    ) -> Result<Option<Row>, tokio_postgres::Error> {
        let bound: Vec<_> = needed.iter().map(|it| values.of(&it.parameters)).collect();
        if let ([single], [bound]) = (needed, bound.as_slice()) {
            return Ok(self.client.query(&single.statement, bound).await?.pop());
        }
        // Each future sends its request when it is first polled, in this order: the first answer is
        // awaited when all are on their way.
        let bodies = needed
            .iter()
            .zip(&bound)
            .map(|(it, bound)| Box::pin(self.client.query(&it.statement, bound)));
        let (begun, answers, ended) = join3(
            self.client.batch_execute("begin"),
            join_all(bodies),
            self.client.batch_execute("commit"),
        )
        .await;
        begun?;
        let mut answer = None;
        for (it, rows) in needed.iter().zip(answers) {
            let row = rows?.pop();
            if it.answers {
                answer = row;
            }
        }
        ended?;
        Ok(answer)
    }
}

/// The error by which a transaction says that it is refused.
fn refusal(transition: Transition) -> &'static SqlState {
    match transition {
        // As the store takes it: the session exists.
        Transition::AdmitNew => &SqlState::UNIQUE_VIOLATION,
        // The fence is another one: plain statements set `op` to null then.
        Transition::Finish => &SqlState::NOT_NULL_VIOLATION,
    }
}

async fn prepare(client: &Client, statements: Vec<(String, Named)>) -> Vec<Prepared> {
    let mut prepared = Vec::with_capacity(statements.len());
    for (name, Named { sql, names }) in statements {
        let statement = client
            .prepare(&sql)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        prepared.push(Prepared {
            answers: [ADMITS, FENCE].contains(&name.as_str()),
            name,
            statement,
            parameters: names,
        });
    }
    prepared
}

fn statements(form: Form, transition: Transition) -> Vec<(String, Named)> {
    let numbered = |name: &str, sql: &str, parameters: &[&[&str]]| {
        let names = parameters.concat().into_iter().map(str::to_owned).collect();
        (
            name.to_owned(),
            Named {
                sql: sql.to_owned(),
                names,
            },
        )
    };
    let locks = ["gate", "lock_run"].map(|lock| {
        let (_, sql) = hot_statements()
            .into_iter()
            .find(|(known, _)| *known == lock)
            .unwrap();
        numbered(lock, sql, &[OF_SESSION])
    });
    let plain = |transition: &str| {
        let (_, all) = hot_transitions()
            .into_iter()
            .find(|(known, _)| *known == transition)
            .unwrap();
        all.iter()
            .map(|statement| (statement.name().to_owned(), statement.clone()))
            .collect::<Vec<_>>()
    };
    match (form, transition) {
        (Form::Cte, Transition::AdmitNew) => {
            vec![numbered(ADMITS, ADMIT_NEW, &[&PARAMETERS, OF_ADMIT_NEW])]
        }
        (Form::Cte, Transition::Finish) => locks
            .into_iter()
            .chain([numbered(FENCE, FINISH, &[&PARAMETERS, OF_FINISH])])
            .collect(),
        (Form::Plain, Transition::AdmitNew) => plain("admit_new"),
        (Form::Plain, Transition::Finish) => locks.into_iter().chain(plain("finish")).collect(),
    }
}

/// The names that the statements of a transition take, in either form.
pub(crate) fn parameters(form: Form, transition: Transition) -> BTreeSet<String> {
    statements(form, transition)
        .into_iter()
        .flat_map(|(_, statement)| statement.names)
        .collect()
}

fn text(transition: Transition, row: &Row) -> String {
    match transition {
        Transition::AdmitNew => {
            let (epoch, op, next): (i64, i64, i64) =
                (row.get("epoch"), row.get("op"), row.get("next_seq"));
            format!(
                "epoch {epoch}, op {op}, turn {}, next seq {next}",
                row.get::<_, &str>("turn_id")
            )
        }
        Transition::Finish => {
            let (state, cancel): (i16, i16) = (row.get("state"), row.get("cancel"));
            format!(
                "state {state}, cancel {cancel}, next seq {}",
                row.get::<_, i64>("next_seq")
            )
        }
    }
}
