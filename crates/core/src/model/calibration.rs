//! Calibration: the learned ratio of reported to predicted prompt tokens.

/// Lower and upper bound of a ratio, as in the CHECK constraint of the table `tenant_calibration`. A ratio outside of
/// them has a cause other than the prediction.
pub const RATIOS: (f64, f64) = (0.5, 2.0);

/// Number of calls that a ratio averages over; older calls fade out (feature row A12).
pub const MEMORY: f64 = 16.0;

/// Ratio of reported to predicted tokens for one model of one provider, learned from the calls of one tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// 1 before the first call.
    pub ratio: f64,
    /// Number of calls it was learned from.
    pub calls: u32,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { ratio: 1.0, calls: 0 }
    }
}

impl Calibration {
    /// The calibration from one call. Returns `None` if nothing was predicted or reported.
    pub fn of_call(predicted: u32, reported: u32) -> Option<Self> {
        (predicted > 0 && reported > 0).then(|| Self { ratio: f64::from(reported) / f64::from(predicted), calls: 1 })
    }

    /// The calibration when these calls are the first: the ratio is clamped to [`RATIOS`].
    #[must_use]
    pub fn clamped(self) -> Self {
        Self { ratio: self.ratio.clamp(RATIOS.0, RATIOS.1), ..self }
    }

    /// Combines the means of two disjoint sets of calls, weighted by their numbers of calls.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        let calls = self.calls.saturating_add(more.calls);
        let sum = self.ratio * f64::from(self.calls) + more.ratio * f64::from(more.calls);
        Self { ratio: sum / f64::from(calls.max(1)), calls }
    }

    /// Adds later calls, given as their mean: a moving average, computed the same way by the statement
    /// `store::calibration::learn`.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let calls = self.calls.saturating_add(more.calls);
        let weight = (f64::from(more.calls) / f64::from(calls).min(MEMORY)).min(1.0);
        Self { ratio: self.ratio + (more.clamped().ratio - self.ratio) * weight, calls }
    }
}
