//! What was learnt about the size of prompts, per model of a provider. No tenant's: a ratio says
//! nothing about anybody's words.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{Error, Store, named::Named, pipeline::Param, row::get};
use crate::model::{
    Calibration,
    calibration::{MEMORY, RATIOS},
};

static LEARN: LazyLock<Named> = named_alone!("sql/learn.sql");

impl Store {
    /// What was learnt of these models; of others nothing yet.
    pub async fn calibrations(
        &self,
        models: &[&str],
    ) -> Result<BTreeMap<String, Calibration>, Error> {
        const SQL: &str = "-- store::calibration::calibrations
            select model, ratio, calls from calibration where model = any($1)";
        let rows = self.database.read(SQL, &[&models]).await?;
        rows.iter()
            .map(|row| Ok((get(row, "model")?, learnt(row)?)))
            .collect()
    }

    /// Adds what calls taught, of each model their number and mean ratio: a moving average, so that
    /// old calls fade.
    pub async fn learn(&self, taught: &BTreeMap<String, Calibration>) -> Result<(), Error> {
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

fn learnt(row: &tokio_postgres::Row) -> Result<Calibration, Error> {
    let calls: i64 = get(row, "calls")?;
    Ok(Calibration {
        ratio: get(row, "ratio")?,
        calls: u32::try_from(calls).unwrap_or(u32::MAX),
    })
}
