//! Closing a store: queued appends are written, leases are released.

use engine::events::{EventStore as _, StoreError};
use tests::postgres::TestDatabase;
use tests::store_contract::{conversation, event, events, log};

use super::{acquire, host};

#[tokio::test]
async fn queued_appends_are_written_when_the_store_is_closed() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (store, a, queued) = (host(&database).await, conversation("a"), events(0..3));
    {
        // Polled once, so that it is queued, then dropped.
        let mut append = store.append(&a, &queued);
        let waker = std::task::Waker::noop();
        assert!(
            append
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker))
                .is_pending()
        );
    }
    store.close().await;
    assert_eq!(log(&host(&database).await, &a).await, queued);
}

#[tokio::test]
async fn leases_are_released_when_the_store_is_closed() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other) = (host(&database).await, host(&database).await);
    for name in ["a", "b", "c"] {
        drop(acquire(&one, name).await);
    }
    one.close().await;
    assert!(other.leases().held().await.unwrap().is_empty());
    assert!(other.leases().expired().await.unwrap().is_empty());
    assert!(matches!(
        one.append(&conversation("a"), &[event(0)]).await,
        Err(StoreError::Storage { .. })
    ));
}

/// The conversation was running: other hosts find it when the lease has expired.
#[tokio::test]
async fn held_lease_is_lost_but_not_released_when_the_store_is_closed() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other) = (host(&database).await, host(&database).await);
    let lease = acquire(&one, "a").await;
    one.close().await;
    assert!(lease.lost().is_cancelled());
    drop(lease);
    drop(one);
    assert_eq!(
        other.leases().held().await.unwrap(),
        [conversation("a")].into()
    );
}
