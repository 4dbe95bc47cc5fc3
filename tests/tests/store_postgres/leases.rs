//! Leases: one host appends, until it releases the conversation or no longer renews.

use std::sync::Arc;
use std::time::Duration;

use engine::events::{EventStore as _, StoreError};
use storage::PostgresStore;
use storage::postgres::{LeaseTiming, PostgresOptions};
use tests::postgres::{PostgresServer, TestDatabase};
use tests::store_contract::{conversation, event, events, log};

use super::{acquire, expire_leases, host};

/// Timing with frequent renewals, for tests that wait for one.
const FREQUENT_RENEWALS: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(45),
    renewal_interval: Duration::from_millis(20),
    safety_margin: Duration::from_secs(5),
};

async fn host_with(database: &TestDatabase, lease_timing: LeaseTiming) -> PostgresStore {
    let options = PostgresOptions {
        lease_timing,
        ..PostgresOptions::default()
    };
    PostgresStore::open(&database.address(), options)
        .await
        .unwrap()
}

fn assert_lease_lost(result: Result<(), StoreError>) {
    assert!(
        matches!(result, Err(StoreError::LeaseLost { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn only_the_host_with_the_lease_changes_a_conversation() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other, a) = (
        host(&database).await,
        host(&database).await,
        conversation("a"),
    );
    assert_ne!(one.leases().host(), other.leases().host());
    let lease = acquire(&one, "a").await;
    assert!(other.leases().acquire(&a).await.unwrap().is_none());
    assert!(one.leases().acquire(&a).await.unwrap().is_none()); // nor another task of the same host
    one.append(&a, &events(0..2)).await.unwrap();
    assert_lease_lost(other.append(&a, &[event(2)]).await);
    assert_lease_lost(other.remove(&a).await);
    // Other conversations are not affected, also in the same group.
    let (b, third, next) = (conversation("b"), [event(2)], [event(0)]);
    let (rejected, appended) = tokio::join!(other.append(&a, &third), other.append(&b, &next));
    assert_lease_lost(rejected);
    appended.unwrap();
    assert_eq!(log(&other, &a).await, events(0..2));
    assert!(!lease.lost().is_cancelled());
    one.remove(&a).await.unwrap();
}

#[tokio::test]
async fn released_lease_can_be_acquired_by_another_host() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other, a) = (
        host(&database).await,
        host(&database).await,
        conversation("a"),
    );
    let first = acquire(&one, "a").await;
    let generation = first.generation();
    one.append(&a, &events(0..2)).await.unwrap();
    drop(first);
    let second = acquire(&other, "a").await;
    assert!(second.generation() > generation);
    other.append(&a, &[event(2)]).await.unwrap();
    assert_lease_lost(one.append(&a, &[event(3)]).await);
    drop(second);
    assert!(acquire(&one, "a").await.generation() > generation + 1);
}

#[tokio::test]
async fn abandoned_acquisition_leaves_no_lease() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other, a) = (
        host(&database).await,
        host(&database).await,
        conversation("a"),
    );
    {
        let mut acquiring = Box::pin(one.leases().acquire(&a));
        let waker = std::task::Waker::noop();
        let polled = acquiring
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker));
        assert!(polled.is_pending());
    }
    acquire(&one, "a").await;
    acquire(&other, "a").await;
}

#[tokio::test]
async fn held_and_expired_leases_of_all_hosts_are_listed() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other) = (host(&database).await, host(&database).await);
    let _a = acquire(&one, "a").await;
    let _b = acquire(&one, "b").await;
    expire_leases(&database);
    let _c = acquire(&other, "c").await;
    assert_eq!(
        other.leases().held().await.unwrap(),
        [conversation("c")].into()
    );
    assert_eq!(
        other.leases().expired().await.unwrap(),
        [conversation("a"), conversation("b")].into()
    );
    let _taken = acquire(&other, "a").await;
    assert_eq!(
        one.leases().held().await.unwrap(),
        [conversation("a"), conversation("c")].into()
    );
    assert_eq!(
        one.leases().expired().await.unwrap(),
        [conversation("b")].into()
    );
}

#[tokio::test]
async fn leases_are_renewed() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let one = host_with(&database, FREQUENT_RENEWALS).await;
    let _leases = [acquire(&one, "a").await, acquire(&one, "b").await];
    let first = database.execute("SELECT max(expires_at) FROM leases");
    let all_renewed = format!("SELECT count(*) FROM leases WHERE expires_at > '{first}'");
    while database.execute(&all_renewed) != "2" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Renewals and groups of appends lock many leases, and do so in the same order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_and_appends_do_not_deadlock() {
    const CONVERSATIONS: usize = 60;
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let timing = LeaseTiming {
        renewal_interval: Duration::from_micros(100),
        ..FREQUENT_RENEWALS
    };
    let one = Arc::new(host_with(&database, timing).await);
    let mut leases = Vec::new();
    // Not in the order of their ids, which is that of the rows otherwise.
    for number in 0..CONVERSATIONS {
        leases.push(acquire(&one, &format!("c{}", number * 37 % CONVERSATIONS)).await);
    }
    let appending = leases.iter().map(|lease| {
        let (store, own) = (Arc::clone(&one), lease.conversation().clone());
        tokio::spawn(async move {
            for next in 0..30 {
                store.append(&own, &[event(next)]).await.unwrap();
            }
        })
    });
    for task in appending.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert!(leases.iter().all(|lease| !lease.lost().is_cancelled()));
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    one.close().await; // sessions report their statistics when they end
    assert_eq!(database.execute(deadlocks), "0");
}

#[tokio::test]
async fn lease_is_lost_when_it_expired_before_its_renewal() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, a) = (
        host_with(&database, FREQUENT_RENEWALS).await,
        conversation("a"),
    );
    let lease = acquire(&one, "a").await;
    expire_leases(&database);
    lease.lost().cancelled().await;
    assert_lease_lost(one.append(&a, &[event(0)]).await);
    drop(lease);
    acquire(&one, "a").await;
}

#[tokio::test]
async fn lease_is_lost_when_an_append_finds_it_taken_over() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other, a) = (
        host(&database).await,
        host(&database).await,
        conversation("a"),
    );
    let lost = acquire(&one, "a").await;
    expire_leases(&database);
    let current = acquire(&other, "a").await;
    assert_lease_lost(one.append(&a, &[event(0)]).await);
    assert!(lost.lost().is_cancelled());
    // The late release affects only its own generation.
    drop(lost);
    one.close().await;
    other.append(&a, &[event(0)]).await.unwrap();
    assert!(!current.lost().is_cancelled());
}

/// The holder learns it by its own clock, because it cannot ask the database.
#[tokio::test]
async fn lease_is_lost_when_the_database_is_gone() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let server = Arc::new(server);
    let database = TestDatabase::on(Arc::clone(&server));
    let timing = LeaseTiming {
        duration: Duration::from_secs(3),
        renewal_interval: Duration::from_millis(200),
        safety_margin: Duration::from_secs(2),
    };
    let (one, a) = (host_with(&database, timing).await, conversation("a"));
    let lease = acquire(&one, "a").await;
    server.stop(rustix::process::Signal::INT);
    lease.lost().cancelled().await;
    assert_lease_lost(one.append(&a, &[event(0)]).await); // without a connection
    server.restart();
    let other = host(&database).await;
    acquire(&other, "a").await;
}
