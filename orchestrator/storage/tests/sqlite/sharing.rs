//! Several stores of one file, as in several processes. `crash` tests real processes.

use engine::events::{EventStore as _, StoreError};
use storage::{Durability, SqliteStore};

use crate::fixture::{Fixture, conversation, event, events, id};

#[tokio::test]
async fn append_of_another_store_is_read() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.store().await, fixture.store().await);
    let log = conversation("a");
    one.append(&log, &events(0..2)).await.unwrap();
    let error = other.append(&log, &[event(1)]).await.unwrap_err();
    assert!(matches!(error, StoreError::OutOfOrder { .. }), "{error}");
    other.append(&log, &[event(2)]).await.unwrap();
    assert_eq!(one.read(&log, id(0), 10).await.unwrap(), events(0..3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_file_can_be_opened_concurrently() {
    let fixture = Fixture::new();
    let opening: Vec<_> =
        (0..8).map(|_| tokio::spawn(SqliteStore::open(fixture.file(), Durability::default()))).collect();
    for store in opening {
        store.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_append_wins_when_two_stores_append_the_same_id() {
    let fixture = Fixture::new();
    let stores = [fixture.store().await, fixture.store().await];
    let log = conversation("a");
    for next in 0..50 {
        let event = [event(next)];
        let (one, other) = tokio::join!(stores[0].append(&log, &event), stores[1].append(&log, &event));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        let error = one.and(other).unwrap_err();
        assert!(matches!(error, StoreError::OutOfOrder { .. }), "{error}");
    }
    assert_eq!(stores[0].read(&log, id(0), 100).await.unwrap(), events(0..50));
}
