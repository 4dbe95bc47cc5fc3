//! Events appended per second by two hosts: `cargo test --release -p tests -- --ignored --nocapture store_postgres::rate`.

use std::sync::Arc;
use std::time::Instant;

use engine::events::EventStore as _;
use tests::postgres::{PostgresServer, TestDatabase};
use tests::store_contract::{conversation, event};

use super::{acquire, host};

const EVENTS: u64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure for reading, not a check"]
async fn rate_of_appends_of_two_hosts() {
    // Commits are synced to the disk, unlike in the other tests.
    let Some(server) = PostgresServer::start_with(5432, |_| vec!["fsync=on".into()]) else { return };
    let database = TestDatabase::on(Arc::new(server));
    let hosts = [Arc::new(host(&database).await), Arc::new(host(&database).await)];
    for conversations in [1, 32, 128] {
        let mut appending = Vec::new();
        let mut leases = Vec::new();
        for number in 0..2 * conversations {
            let (store, name) = (&hosts[number % 2], format!("{conversations}-{number}"));
            leases.push(acquire(store, &name).await);
            appending.push((Arc::clone(store), conversation(&name)));
        }
        let each = EVENTS / appending.len() as u64;
        let started = Instant::now();
        let tasks: Vec<_> = appending
            .into_iter()
            .map(|(store, own)| {
                tokio::spawn(async move {
                    for next in 0..each {
                        store.append(&own, &[event(next)]).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let rate = EVENTS as f64 / started.elapsed().as_secs_f64();
        println!("{conversations} conversations of each host: {rate:.0} events/s");
    }
}
