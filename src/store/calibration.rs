//! What was learnt about the size of prompts, per model of a provider. No tenant's: a ratio says
//! nothing about anybody's words.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{Error, Store, named::Named, pipeline::Param, row::get};

/// So many calls weigh in a ratio; older ones fade.
const MEMORY: f64 = 16.0;

/// Reported over predicted tokens of one model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learnt {
    /// The ratio.
    pub ratio: f64,
    /// Calls it was learnt from.
    pub calls: u32,
}

/// Ratios are within these bounds, as the table's CHECK says.
const RATIOS: (f64, f64) = (0.5, 2.0);

impl Learnt {
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

    /// What is known after more calls, of which only their mean is: as `learn` writes it.
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

static LEARN: LazyLock<Named> = named_alone!("sql/learn.sql");

impl Store {
    /// What was learnt of these models; of others nothing yet.
    pub async fn calibrations(&self, models: &[&str]) -> Result<BTreeMap<String, Learnt>, Error> {
        const SQL: &str = "-- store::calibration::calibrations
            select model, ratio, calls from calibration where model = any($1)";
        let rows = self.database.read(SQL, &[&models]).await?;
        rows.iter()
            .map(|row| Ok((get(row, "model")?, learnt(row)?)))
            .collect()
    }

    /// Adds what calls taught, of each model their number and mean ratio: a moving average, so that
    /// old calls fade.
    pub async fn learn(&self, taught: &BTreeMap<String, Learnt>) -> Result<(), Error> {
        let models: Vec<&str> = taught.keys().map(String::as_str).collect();
        let ratios: Vec<f64> = taught.values().map(|taught| taught.ratio).collect();
        let calls: Vec<i64> = taught
            .values()
            .map(|taught| i64::from(taught.calls))
            .collect();
        self.database
            .write(&LEARN.query(&[
                ("models", &models as Param<'_>),
                ("ratios", &ratios),
                ("calls", &calls),
                ("memory", &MEMORY),
                ("least", &RATIOS.0),
                ("most", &RATIOS.1),
            ])?)
            .await
            .map(drop)
    }
}

fn learnt(row: &tokio_postgres::Row) -> Result<Learnt, Error> {
    let calls: i64 = get(row, "calls")?;
    Ok(Learnt {
        ratio: get(row, "ratio")?,
        calls: u32::try_from(calls).unwrap_or(u32::MAX),
    })
}
