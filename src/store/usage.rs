//! What calls used that a host made by itself.

use std::sync::LazyLock;

use super::{
    Error, Store,
    anchor::anchor_param,
    lock::lock_run,
    named_parameters::{self, Named},
    pipeline::Param,
    row::get,
    rows::Key,
    version::Version,
};
use crate::{
    codec::{self, message::MessageInfo},
    model::{
        Anchor, MessageId, Payload, RequestId, Seq, SessionKey, Usage, UsagePurpose,
        command::Idempotency,
    },
};

/// How a message stands to the end of its transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// The version of the transcript that it was appended to. `None` means it is not the first of
    /// an append.
    pub version: Option<i64>,
    /// Appends since then.
    pub later: i64,
    /// What was said since then, in tokens.
    pub tokens: i64,
}

/// The report of a call, to be recorded.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// What the transcript was when it was looked at.
    pub seen: Version,
    /// What the call was for.
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: &'a str,
    /// What the provider reported.
    pub usage: &'a Usage,
    /// The event.
    pub payload: &'a Payload,
    /// The message that the call wrote, with what is to be kept of it.
    pub message: Option<(&'a MessageId, &'a MessageInfo)>,
    /// What the call measured. `None` means it describes no prompt that is known.
    pub measured: Option<Anchor>,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// What the request led to, for its repetition.
    pub result: &'a str,
}

/// After the row lock. The first one answers.
pub(super) static RECORD: LazyLock<Vec<Named>> = named![
    "sql/record_usage/run.sql",
    "sql/rows/request.sql",
    "sql/record_usage/spend.sql",
    "sql/rows/event.sql",
    "sql/record_usage/message.sql",
    "sql/rows/session_used.sql",
];

pub(super) static SINCE: LazyLock<Named> = named_alone!("sql/record_usage/since.sql");

impl Store {
    /// How a message stands to the end of its transcript. `None` means there is no such message.
    pub async fn since(
        &self,
        key: &SessionKey,
        message: &MessageId,
    ) -> Result<Option<Since>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(
                &SINCE,
                &[
                    ("tenant", &key.tenant as Param<'_>),
                    ("session", &key.session),
                    ("message", &message.as_str()),
                ],
            )
            .await?;
        let since = |row| {
            Ok(Since {
                version: get(row, "behind")?,
                later: get(row, "later")?,
                tokens: get(row, "tokens")?,
            })
        };
        rows.first().map(since).transpose()
    }

    /// Records what a call used in an idle session. `None` means a turn runs, the transcript is not
    /// what was seen, or the request is known; [`Store::tail`] tells. Else the newest seq.
    pub async fn record_usage(
        &self,
        key: &SessionKey,
        report: &Report<'_>,
    ) -> Result<Option<Seq>, Error> {
        let key = Key::from(key);
        let Version {
            context,
            epoch,
            op,
            revision: _,
        } = report.seen;
        let request = report.idempotency.request.as_ref().map(RequestId::as_str);
        let purpose = purpose_number(report.purpose);
        let Usage {
            input,
            output,
            reasoning,
            cache_read,
            cache_write,
            provider_tool_calls: _,
            provider_json: _,
        } = report.usage;
        let [input, output, reasoning, cache_read, cache_write] =
            [input, output, reasoning, cache_read, cache_write].map(|tokens| i64::from(*tokens));
        let event = codec::event::encode(report.payload);
        let message = report.message.map(|(id, _)| id.as_str());
        let info = report
            .message
            .map(|(_, info)| codec::message::encode_info(info));
        let measured = report.measured.as_ref().map(anchor_param);
        let mut values = vec![
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("context", &context),
            ("epoch", &epoch),
            ("op", &op),
            ("request_id", &request),
            ("request_hash", &report.idempotency.hash),
            ("led", &report.result),
            ("measured", &measured),
        ];
        values.extend([
            ("purpose", &purpose as Param<'_>),
            ("model", &report.model),
            ("input_tokens", &input),
            ("output_tokens", &output),
            ("reasoning_tokens", &reasoning),
            ("cache_read_tokens", &cache_read),
            ("cache_write_tokens", &cache_write),
        ]);
        values.extend([
            ("kind", &event.kind as Param<'_>),
            ("payload", &event.payload),
            ("message", &message),
            ("info", &info),
        ]);
        let mut queries = vec![lock_run(&key)];
        queries.extend(named_parameters::queries(
            &RECORD,
            &values,
            |name| match name {
                "store::rows::request" => request.is_some(),
                "store::usage::record_message" => message.is_some(),
                _ => true,
            },
        )?);
        match self.database.transact(&queries).await {
            Ok(answers) => answers
                .get(1)
                .and_then(|rows| rows.first())
                .map(|row| Ok(Seq(get::<i64>(row, "next_seq")? - 1)))
                .transpose(),
            // The same request at the same time was faster.
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn purpose_number(purpose: UsagePurpose) -> i16 {
    match purpose {
        UsagePurpose::Turn => 1,
        UsagePurpose::Compaction => 2,
    }
}
