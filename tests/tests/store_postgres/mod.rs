//! The contract of event stores on PostgreSQL, and what only several hosts can show.

mod broken_connections;
mod closing;
mod documents;
mod leases;
mod schema;
mod takeover;
mod tls;
mod wakeups;

use std::time::Duration;

use storage::PostgresStore;
use storage::postgres::{Lease, PostgresOptions};
use tests::postgres::TestDatabase;
use tests::store_contract::conversation;
use tests::store_contract::postgres::PostgresBackend;

tests::store_contract!(PostgresBackend::create());
tests::stored_damage_contract!(PostgresBackend::create());

/// Opens the store of another host.
async fn host(database: &TestDatabase) -> PostgresStore {
    PostgresStore::open(&database.address(), PostgresOptions::default())
        .await
        .unwrap()
}

/// Acquires the lease of a conversation, as soon as it is free.
async fn acquire(host: &PostgresStore, name: &str) -> Lease {
    loop {
        if let Some(lease) = host.leases().acquire(&conversation(name)).await.unwrap() {
            return lease;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lets all leases run out, without waiting for it.
fn expire_leases(database: &TestDatabase) {
    database.execute("UPDATE leases SET expires_at = clock_timestamp() - interval '1 second'");
}
