//! Calibrations of prompt size estimates, per tenant and model of a provider.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{Error, Store, named_parameters::Named, row::get};
use crate::model::{
    Calibration, TenantId,
    calibration::{MEMORY, RATIOS},
};

static LEARN: LazyLock<Named> = named_alone!("sql/learn.sql");

impl Store {
    /// Reads a tenant's calibrations for these models. Models without a measured call are missing from the result.
    pub async fn calibrations(
        &self,
        tenant: &TenantId,
        models: &[&str],
    ) -> Result<BTreeMap<String, Calibration>, Error> {
        const SQL: &str = "-- store::calibration::calibrations
            select model, ratio, calls from tenant_calibration where tenant_id = $1 and model = any($2)";
        let rows = self.database.read(SQL, &[&tenant.as_str(), &models]).await?;
        rows.iter().map(|row| Ok((get(row, "model")?, learnt(row)?))).collect()
    }

    /// Adds measurements, as the number of calls and the mean ratio per tenant and model. The stored ratio is a moving
    /// average, so that old calls lose weight.
    pub async fn learn(&self, taught: &BTreeMap<(TenantId, String), Calibration>) -> Result<(), Error> {
        let tenants: Vec<&str> = taught.keys().map(|(tenant, _)| tenant.as_str()).collect();
        let models: Vec<&str> = taught.keys().map(|(_, model)| model.as_str()).collect();
        let ratios: Vec<f64> = taught.values().map(|taught| taught.ratio).collect();
        let calls: Vec<i64> = taught.values().map(|taught| i64::from(taught.calls)).collect();
        let learn = LEARN.query(&[
            ("tenants", &tenants),
            ("models", &models),
            ("ratios", &ratios),
            ("calls", &calls),
            ("memory", &MEMORY),
            ("least", &RATIOS.0),
            ("most", &RATIOS.1),
        ])?;
        self.database.write(&learn).await.map(drop)
    }
}

fn learnt(row: &tokio_postgres::Row) -> Result<Calibration, Error> {
    let calls: i64 = get(row, "calls")?;
    Ok(Calibration { ratio: get(row, "ratio")?, calls: u32::try_from(calls).unwrap_or(u32::MAX) })
}
