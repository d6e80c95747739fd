//! What calls taught about the size of prompts.

/// Ratios stay within these bounds, lowest first, as the CHECK of the table `tenant_calibration` says:
/// beyond them something else is wrong than the prediction.
pub const RATIOS: (f64, f64) = (0.5, 2.0);

/// So many calls weigh in a ratio; older ones fade (feature row A12).
pub const MEMORY: f64 = 16.0;

/// Reported over predicted tokens of one model of one provider, learnt from a tenant's calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The ratio; 1 before the first call.
    pub ratio: f64,
    /// Calls it was learnt from.
    pub calls: u32,
}

impl Default for Calibration {
    fn default() -> Self {
        Self {
            ratio: 1.0,
            calls: 0,
        }
    }
}

impl Calibration {
    /// What one call teaches. `None` where nothing was predicted or reported.
    pub fn of_call(predicted: u32, reported: u32) -> Option<Self> {
        (predicted > 0 && reported > 0).then(|| Self {
            ratio: f64::from(reported) / f64::from(predicted),
            calls: 1,
        })
    }

    /// What is known after calls of which this is the mean and nothing was known before.
    #[must_use]
    pub fn alone(self) -> Self {
        Self {
            ratio: self.ratio.clamp(RATIOS.0, RATIOS.1),
            ..self
        }
    }

    /// Two means of different calls as one.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        let calls = self.calls.saturating_add(more.calls);
        let sum = self.ratio * f64::from(self.calls) + more.ratio * f64::from(more.calls);
        Self {
            ratio: sum / f64::from(calls.max(1)),
            calls,
        }
    }

    /// What is known after more calls, of which only their mean is: a moving average, as the
    /// statement `store::calibration::learn` writes it.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let calls = self.calls.saturating_add(more.calls);
        let weight = (f64::from(more.calls) / f64::from(calls).min(MEMORY)).min(1.0);
        Self {
            ratio: self.ratio + (more.alone().ratio - self.ratio) * weight,
            calls,
        }
    }
}
