//! Cases of appends: in order, atomic, concurrent.

use std::sync::Arc;

use protocol::EventId;

use super::{StoreBackend, assert_out_of_order, conversation, event, events, log};

/// Events of several appends are one log; an empty append is none.
pub async fn appended_events_are_read_in_order(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &events(0..2)).await.unwrap();
    store.append(&a, &[event(2)]).await.unwrap();
    store.append(&a, &[]).await.unwrap();
    assert_eq!(log(&*store, &a).await, events(0..3));
}

/// An append before, within or beyond the end of the log is rejected, and the next one that follows
/// succeeds.
pub async fn append_is_rejected_when_ids_do_not_continue(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &events(0..3)).await.unwrap();
    for wrong in [
        events(0..1),
        events(2..3),
        events(4..5),
        vec![event(u64::MAX)],
    ] {
        assert_out_of_order(store.append(&a, &wrong).await);
    }
    assert_eq!(log(&*store, &a).await, events(0..3));
    store.append(&a, &[event(3)]).await.unwrap();
    assert_eq!(log(&*store, &a).await, events(0..4));
}

/// An append with a wrong id in the middle leaves none of its events.
pub async fn rejected_append_leaves_nothing(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &events(0..2)).await.unwrap();
    // The first events of each would follow.
    for wrong in [
        vec![event(2), event(4)],
        vec![event(2), event(3), event(3)],
        vec![event(2), event(1)],
    ] {
        assert_out_of_order(store.append(&a, &wrong).await);
        assert_eq!(log(&*store, &a).await, events(0..2));
    }
    assert_eq!(
        store.conversations().await.unwrap().conversations[0].events,
        2
    );
}

/// A rejected first append creates no conversation.
pub async fn no_conversation_exists_when_first_append_is_rejected(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    let error = store
        .append(&conversation("a"), &[event(1)])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "event 1 of conversation a does not follow the end of its log"
    );
    assert_eq!(store.conversations().await.unwrap().conversations, []);
}

/// Concurrent appends of many conversations, of which half are rejected, do not affect each other.
pub async fn many_conversations_append_concurrently(backend: &dyn StoreBackend) {
    const CONVERSATIONS: usize = 20;
    let store = backend.open().await;
    let appending: Vec<_> = (0..CONVERSATIONS)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let own = conversation(&format!("c{number}"));
                for next in 0..50 {
                    store.append(&own, &[event(next)]).await.unwrap();
                    // A rejected one does not affect the others of its group.
                    store.append(&own, &[event(next)]).await.unwrap_err();
                }
            })
        })
        .collect();
    for task in appending {
        task.await.unwrap();
    }
    for number in 0..CONVERSATIONS {
        assert_eq!(
            log(&*store, &conversation(&format!("c{number}"))).await,
            events(0..50)
        );
    }
}

/// Of two concurrent appends of the same id on one handle, one succeeds.
pub async fn one_of_concurrent_appends_of_the_same_id_succeeds(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    for next in 0..50 {
        let event = [event(next)];
        let (one, other) = tokio::join!(store.append(&a, &event), store.append(&a, &event));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        assert_out_of_order(one.and(other));
    }
    assert_eq!(
        store.read(&a, EventId(0), 100).await.unwrap(),
        events(0..50)
    );
}
