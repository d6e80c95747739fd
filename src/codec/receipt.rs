//! Responses that are stored as text under an idempotency key, for repeated requests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message;

use super::{
    DecodeError,
    field::{Field as _, messages},
    ledger,
};
use crate::{
    model::{PrepareReport, Seq, SessionId, TokenCount, UsageReceipt},
    pb,
};

messages! {
    UsageReceipt = RecordUsageResponse {
        estimate,
        size = context_tokens,
        _ = calibration_ratio,
    }
}

/// Encodes the response to a usage report, without the fields that may change.
pub fn write_recorded_usage(recorded: &UsageReceipt) -> String {
    let recorded: pb::RecordUsageResponse = recorded.to_field();
    write(&recorded)
}

/// Decodes a response from [`write_recorded_usage`].
pub fn read_recorded_usage(text: &str) -> Result<UsageReceipt, DecodeError> {
    let recorded: pb::RecordUsageResponse = read("recorded usage", text)?;
    UsageReceipt::from_field("recorded usage", recorded)
}

/// Encodes the size of a prompt; the text contains no space.
pub fn write_size(size: &TokenCount) -> String {
    let size: pb::TokenCount = size.to_field();
    write(&size)
}

/// Decodes a size from [`write_size`].
pub fn read_size(text: &str) -> Result<TokenCount, DecodeError> {
    let size: pb::TokenCount = read("prompt size", text)?;
    TokenCount::from_field("prompt size", size)
}

/// Encodes the report of how a prompt was made to fit. The statement that stores it prepends the seq of the prune, or 0
/// if nothing was pruned.
pub fn write_prepare_report(report: &PrepareReport) -> String {
    format!(" {}", write(&ledger::prepare_report_to_pb(report, &SessionId::new(""))))
}

/// Decodes a report from [`write_prepare_report`], with the seq before it.
pub fn read_prepare_report(text: &str) -> Result<PrepareReport, DecodeError> {
    const WHAT: &str = "preparation report";
    let (seq, report) = text.split_once(' ').ok_or_else(|| DecodeError::new(WHAT, "it has no seq"))?;
    let seq = seq.parse().map_err(|error| DecodeError::new(WHAT, error))?;
    ledger::prepare_report_from_pb(read(WHAT, report)?, Seq(seq))
}

fn write(message: &impl Message) -> String {
    STANDARD.encode(message.encode_to_vec())
}

fn read<M: Message + Default>(what: &'static str, text: &str) -> Result<M, DecodeError> {
    let bytes = STANDARD.decode(text).map_err(|error| DecodeError::new(what, error))?;
    super::read(what, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AppliedMessage, CallId, MessageId, PruneReport, TokenBasis, TokenCount, event::Estimate};

    #[test]
    fn stored_receipts_decode_to_the_first_response() {
        let size = TokenCount { tokens: 5_120, basis: TokenBasis::Heuristic, margin: 2, estimator: "chars".to_owned() };
        let estimate = Estimate { estimated: 5_120, actual: 5_115, basis: TokenBasis::Actual };
        for estimate in [None, Some(estimate)] {
            let recorded = UsageReceipt { estimate, size: size.clone() };
            assert_eq!(read_recorded_usage(&write_recorded_usage(&recorded)), Ok(recorded));
        }
        assert!(read_recorded_usage("no such thing").is_err());
    }

    #[test]
    fn prune_receipt_has_the_seq_that_its_statement_wrote() {
        let size =
            |tokens| TokenCount { tokens, basis: TokenBasis::Heuristic, margin: 1, estimator: "chars".to_owned() };
        let prune = PruneReport {
            calls: vec![CallId::new("c")],
            tools: vec!["look".to_owned()],
            saved: 9,
            rebilled: 1,
            at: None,
        };
        let report = PrepareReport {
            before: size(20),
            pruned: size(11),
            compacted: size(11),
            prune: Some(prune),
            compaction: None,
            applied: vec![AppliedMessage {
                message: MessageId::new("queued"),
                queued_at: jiff::Timestamp::UNIX_EPOCH,
                metadata: [("by".to_owned(), "ada".to_owned())].into(),
            }],
        };
        let read = read_prepare_report(&format!("7{}", write_prepare_report(&report))).expect("it was written so");
        let named = report.prune.clone().map(|prune| PruneReport { at: Some(Seq(7)), ..prune });
        assert_eq!(read, PrepareReport { prune: named, ..report });
        assert!(read_prepare_report("7").is_err());
    }
}
