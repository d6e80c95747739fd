//! What was learnt about the size of prompts, per model of a provider. No tenant's: a ratio says
//! nothing about anybody's words.

use std::collections::BTreeMap;

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::get,
};
use crate::model::{
    Calibration,
    calibration::{MEMORY, RATIOS},
};

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
        const SQL: &str = "-- store::calibration::learn
            insert into calibration as known (model, ratio, calls)
            select taught.model, greatest($5::float8, least($6::float8, taught.ratio)), taught.calls
              from unnest($1::text[], $2::float8[], $3::bigint[]) as taught(model, ratio, calls)
             order by taught.model
            on conflict (model) do update
               set ratio = known.ratio + (excluded.ratio - known.ratio)
                         * least(1, excluded.calls / least($4::float8, (known.calls + excluded.calls)::float8)),
                   calls = known.calls + excluded.calls,
                   updated_at = now()";
        let models: Vec<&str> = taught.keys().map(String::as_str).collect();
        let ratios: Vec<f64> = taught.values().map(|taught| taught.ratio).collect();
        let calls: Vec<i64> = taught
            .values()
            .map(|taught| i64::from(taught.calls))
            .collect();
        self.database
            .write(&Query::new(
                SQL,
                vec![
                    &models as Param<'_>,
                    &ratios,
                    &calls,
                    &MEMORY,
                    &RATIOS.0,
                    &RATIOS.1,
                ],
            ))
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
