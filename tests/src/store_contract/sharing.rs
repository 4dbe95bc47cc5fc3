//! Cases of several handles on the same data, as several processes have them.

use super::{StoreBackend, assert_out_of_order, conversation, event, events, log};

/// Each handle sees what the other has acknowledged.
pub async fn append_of_another_handle_is_read(backend: &dyn StoreBackend) {
    let (one, other, a) = (
        backend.open().await,
        backend.open().await,
        conversation("a"),
    );
    one.append(&a, &events(0..2)).await.unwrap();
    assert_out_of_order(other.append(&a, &[event(1)]).await);
    other.append(&a, &[event(2)]).await.unwrap();
    assert_eq!(log(&*one, &a).await, events(0..3));
    one.remove(&a).await.unwrap();
    assert_eq!(log(&*other, &a).await, []);
}

/// Of two concurrent appends of the same id on two handles, one succeeds.
pub async fn one_append_succeeds_when_two_handles_append_the_same_id(backend: &dyn StoreBackend) {
    let (one, other, a) = (
        backend.open().await,
        backend.open().await,
        conversation("a"),
    );
    for next in 0..50 {
        let event = [event(next)];
        let (first, second) = tokio::join!(one.append(&a, &event), other.append(&a, &event));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        assert_out_of_order(first.and(second));
    }
    assert_eq!(log(&*one, &a).await, events(0..50));
}

/// Concurrent first opens create the data once.
pub async fn handles_can_be_opened_concurrently(backend: &dyn StoreBackend) {
    let opening = (0..5).map(|_| backend.open());
    let stores = futures_util::future::join_all(opening).await;
    let a = conversation("a");
    for (next, store) in (0..).zip(&stores) {
        store.append(&a, &[event(next)]).await.unwrap();
    }
    assert_eq!(log(&*stores[0], &a).await, events(0..5));
}
