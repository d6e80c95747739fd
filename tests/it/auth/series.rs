//! Tenants are not a label of metrics.

use contextd::{
    model::Access,
    pb::{self, admin_service_client::AdminServiceClient},
};

use super::KeysFile;
use crate::harness::Replica;

const TENANTS: usize = 10_000;

/// The number of series of the scrape. Each bucket of a histogram counts.
async fn series(replica: &Replica) -> usize {
    let scrape = replica.scrape().await;
    let lines = scrape.lines().filter(|line| !line.starts_with('#'));
    lines.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_tenants_add_no_series() {
    let mut file = KeysFile::new();
    let names: Vec<String> = (0..TENANTS).map(|n| format!("tenant-{n}")).collect();
    let keys: Vec<_> = names.iter().map(|name| file.add(name, Access::Read)).collect();
    let (_database, replica) = Replica::alone(file.required()).await;
    let channel = replica.channel().await;
    let call = async |key: super::Key| {
        let mut client = AdminServiceClient::with_interceptor(channel.clone(), key);
        let info = client.get_server_info(pb::GetServerInfoRequest {});
        info.await.unwrap().into_inner().tenant_id
    };
    assert_eq!(call(keys[0].clone()).await, "tenant-0");
    let before = series(&replica).await;
    for key in &keys[1..] {
        call(key.clone()).await;
    }
    let after = series(&replica).await;
    // Workers may have recorded some hundred series for the first time since then.
    assert!(after < before + TENANTS / 10, "{before} series became {after}");
}
