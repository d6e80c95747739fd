//! Collects what is wrong with the values of the settings, so that all of it is reported at once.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::duration::format_duration;

/// What is wrong so far: key and message.
#[derive(Debug, Default)]
pub struct Checks(Vec<(String, String)>);

impl Checks {
    /// The problems found, in the order in which they were looked for.
    pub fn into_problems(self) -> Vec<(String, String)> {
        self.0
    }

    pub(super) fn fail(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push((key.into(), message.into()));
    }

    pub(super) fn require(&mut self, holds: bool, key: &str, message: impl FnOnce() -> String) {
        if !holds {
            self.fail(key, message());
        }
    }

    pub(super) fn number<N: PartialOrd + Display>(
        &mut self,
        key: &str,
        value: N,
        allowed: RangeInclusive<N>,
        unit: &str,
    ) {
        self.require(allowed.contains(&value), key, || {
            let (least, most) = allowed.into_inner();
            format!("{value} is not between {least} and {most} {unit}")
        });
    }

    pub(super) fn duration(
        &mut self,
        key: &str,
        value: Duration,
        allowed: RangeInclusive<Duration>,
    ) {
        self.require(allowed.contains(&value), key, || {
            let [value, least, most] =
                [value, *allowed.start(), *allowed.end()].map(format_duration);
            format!("{value} is not between {least} and {most}")
        });
    }
}
