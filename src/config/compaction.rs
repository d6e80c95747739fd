//! Checks the values of `[policies.NAME.compaction]`.

use crate::model::{
    compaction::{CompactionPolicy, GUARD_RESTARTS},
    config::is_model_reference,
};
use crate::settings::Checks;

/// Maximum characters of the instructions for summaries.
const MAX_INSTRUCTIONS_CHARS: usize = 16_384;

/// The largest number that the API can represent: its numbers are 32-bit and signed.
const MAX_NUMBER: u32 = i32::MAX.unsigned_abs();

pub(super) fn check(policy: &CompactionPolicy, checks: &mut Checks, prefix: &str) {
    let key = |name: &str| format!("{prefix}.{name}");
    let numbers = [
        ("keep_turns", policy.keep_turns, 0..=MAX_NUMBER, "turns"),
        ("summary_max_tokens", policy.summary_max_tokens, 1..=MAX_NUMBER, "tokens"),
        ("guard_max_restarts", policy.guard_max_restarts, GUARD_RESTARTS, "restarts"),
    ];
    for (name, number, allowed, unit) in numbers {
        checks.range(&key(name), &number, &allowed, unit);
    }
    let kept = policy.keep_ratio.get();
    checks.range(&key("keep_ratio"), &kept, &(0.0..=0.9), "of the size");
    let shares = [
        ("threshold", policy.threshold),
        ("guard_request_ratio", Some(policy.guard_request_ratio)),
        ("guard_stream_ratio", Some(policy.guard_stream_ratio)),
    ];
    for (name, share) in shares {
        let fits = share.is_none_or(|share| share.get() > 0.0);
        checks.require(fits, &key(name), || "must be above 0 and at most 1".to_owned());
    }
    if let Some(model) = &policy.summary_model {
        let named = model.is_empty() || is_model_reference(model);
        checks.require(named, &key("summary_model"), || format!("`{model}` must look like PROVIDER/MODEL"));
    }
    let fits = policy.instructions.chars().count() <= MAX_INSTRUCTIONS_CHARS;
    checks.require(fits, &key("instructions"), || format!("must have at most {MAX_INSTRUCTIONS_CHARS} characters"));
}
