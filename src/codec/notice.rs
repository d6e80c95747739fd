//! Human-readable notices for certain events.

use crate::pb::{self, NoticeCode, event::Payload};

/// The notice that follows an event. Returns `None` if the event has no notice.
pub fn for_event(payload: &Payload) -> Option<pb::Notice> {
    if let Payload::CompactionStarted(_) = payload {
        let text = "Compacting conversation history...".to_owned();
        return Some(pb::Notice { code: NoticeCode::Compacting.into(), text });
    }
    if let Payload::CompactionFailed(pb::CompactionFailed { compaction: Some(compaction) }) = payload
        && compaction.trigger() != pb::CompactionTrigger::Manual
    {
        let why = compaction.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
        let text = format!("The conversation was not compacted and is unchanged: {why}");
        return Some(pb::Notice { code: NoticeCode::CompactionTripped.into(), text });
    }
    if let Payload::TurnRetrying(pb::TurnRetrying { failure: Some(failure), delay: Some(delay), .. }) = payload
        && failure.reason() == pb::FailureReason::ProviderRateLimited
        && (delay.seconds, delay.nanos) > (0, 0)
    {
        let seconds = delay.seconds + i64::from(delay.nanos > 0);
        let text = format!("Waiting {seconds} s for the rate limit of {}", failure.provider);
        return Some(pb::Notice { code: NoticeCode::WaitingForProvider.into(), text });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row L5
    #[test]
    fn compaction_and_its_failure_have_user_notices() {
        let check = |payload: Payload, expected: Option<(NoticeCode, &str)>| {
            let told = for_event(&payload);
            assert_eq!(told.as_ref().map(|notice| (notice.code(), notice.text.as_str())), expected, "{payload:?}");
        };
        let failed = |trigger: pb::CompactionTrigger| {
            let failure = Some(pb::Failure { message: "the summary is empty".to_owned(), ..pb::Failure::default() });
            let compaction = pb::Compaction { trigger: trigger.into(), failure, ..pb::Compaction::default() };
            Payload::CompactionFailed(pb::CompactionFailed { compaction: Some(compaction) })
        };
        let started = Payload::CompactionStarted(pb::CompactionStarted::default());
        check(started, Some((NoticeCode::Compacting, "Compacting conversation history...")));
        let words = "The conversation was not compacted and is unchanged: the summary is empty";
        check(failed(pb::CompactionTrigger::Overflow), Some((NoticeCode::CompactionTripped, words)));
        // The caller of a manual compaction gets its error as the response.
        check(failed(pb::CompactionTrigger::Manual), None);
        check(Payload::CompactionCompleted(pb::CompactionCompleted::default()), None);
    }

    #[test]
    fn only_rate_limit_retries_have_a_user_notice() {
        let retrying = |reason: pb::FailureReason, seconds, nanos| {
            let failure = pb::Failure { reason: reason.into(), provider: "main".to_owned(), ..pb::Failure::default() };
            let delay = Some(prost_types::Duration { seconds, nanos });
            let retrying = pb::TurnRetrying { failure: Some(failure), delay, ..pb::TurnRetrying::default() };
            for_event(&Payload::TurnRetrying(retrying)).map(|notice| (notice.code(), notice.text))
        };
        use pb::FailureReason::{ProviderOverloaded, ProviderRateLimited};
        let told = |text: &str| Some((NoticeCode::WaitingForProvider, text.to_owned()));
        assert_eq!(retrying(ProviderRateLimited, 12, 0), told("Waiting 12 s for the rate limit of main"));
        assert_eq!(retrying(ProviderRateLimited, 0, 1), told("Waiting 1 s for the rate limit of main"));
        assert_eq!(retrying(ProviderRateLimited, 0, 0), None);
        assert_eq!(retrying(ProviderOverloaded, 12, 0), None);
    }
}
