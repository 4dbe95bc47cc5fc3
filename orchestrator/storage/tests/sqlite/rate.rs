//! Benchmark of appends and reads per second: `cargo test --release -p storage --test sqlite --
//! --ignored --nocapture rate`.

use std::sync::Arc;
use std::time::Instant;

use engine::events::EventStore as _;

use crate::fixture::{Fixture, conversation, event, events, id};

const EVENTS: u64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark, not a test"]
async fn rate_of_appending_and_reading() {
    let fixture = Fixture::new();
    let store = Arc::new(fixture.store().await);
    for conversations in [1, 20] {
        let started = Instant::now();
        let appending: Vec<_> = (0..conversations)
            .map(|number| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let log = conversation(&format!("{conversations}-{number}"));
                    for next in 0..EVENTS / conversations {
                        store.append(&log, &[event(next)]).await.unwrap();
                    }
                })
            })
            .collect();
        for task in appending {
            task.await.unwrap();
        }
        println!(
            "{conversations} concurrent conversations: {:.0} events/s",
            EVENTS as f64 / started.elapsed().as_secs_f64()
        );
    }
    let started = Instant::now();
    store
        .append(&conversation("whole"), &events(0..EVENTS))
        .await
        .unwrap();
    println!(
        "one append of all: {:.0} events/s",
        EVENTS as f64 / started.elapsed().as_secs_f64()
    );
    let started = Instant::now();
    store
        .read(&conversation("whole"), id(0), usize::MAX)
        .await
        .unwrap();
    println!(
        "read: {:.0} events/s",
        EVENTS as f64 / started.elapsed().as_secs_f64()
    );
}
