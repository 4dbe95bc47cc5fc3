//! Cases of reads by cursor.

use protocol::EventId;

use super::{StoreBackend, conversation, event, event_with, events};

/// Pages follow each other up to the end of the log.
pub async fn reader_follows_by_cursor(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &events(0..10)).await.unwrap();
    for (from, expected) in [(0, 0..4), (4, 4..8), (8, 8..10), (10, 10..10), (11, 11..11)] {
        assert_eq!(
            store.read(&a, EventId(from), 4).await.unwrap(),
            events(expected),
            "from {from}"
        );
    }
}

/// Neither the limit nor the start overflows.
pub async fn limits_of_a_page_may_be_extreme(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &events(0..10)).await.unwrap();
    assert_eq!(store.read(&a, EventId(3), 0).await.unwrap(), []);
    assert_eq!(
        store.read(&a, EventId(3), usize::MAX).await.unwrap(),
        events(3..10)
    );
    for from in [
        i64::MAX.unsigned_abs(),
        i64::MAX.unsigned_abs() + 1,
        u64::MAX,
    ] {
        assert_eq!(store.read(&a, EventId(from), usize::MAX).await.unwrap(), []);
        assert_eq!(store.read(&a, EventId(from), 1).await.unwrap(), []);
    }
}

/// Ids are compared exactly, and an unknown one is an empty log.
pub async fn unknown_conversation_is_empty(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    store
        .append(&conversation("a"), &events(0..1))
        .await
        .unwrap();
    // Differs in case only, and is a prefix.
    for unknown in ["A", "a.", "unknown"] {
        assert_eq!(
            store
                .read(&conversation(unknown), EventId::FIRST, 4)
                .await
                .unwrap(),
            []
        );
        store.remove(&conversation(unknown)).await.unwrap();
    }
    assert_eq!(store.conversations().await.unwrap().conversations.len(), 1);
}

/// A page is cut after the first event beyond the maximum, so that it has at least one.
pub async fn page_ends_with_the_event_that_exceeds_its_bytes(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    let log = [0, 1, 2, 3]
        .map(|id| event_with(id, &"x".repeat(10_000)))
        .into_iter();
    let log: Vec<_> = log.chain([event(4), event(5)]).collect();
    store.append(&a, &log).await.unwrap();
    for (from, limit, max_bytes, expected) in [
        (0, 10, 0, 0..1),
        (0, 10, 1, 0..1),
        (0, 10, 30_000, 0..2),
        (0, 1, 30_000, 0..1),
        (2, 10, 30_000, 2..4),
        (3, 10, 30_000, 3..6),
        (4, 10, 1, 4..5),
        (0, 10, usize::MAX, 0..6),
        (6, 10, 0, 6..6),
    ] {
        let page = store
            .read_page(&a, EventId(from), limit, max_bytes)
            .await
            .unwrap();
        assert_eq!(
            page, log[expected],
            "from {from}, at most {limit} and {max_bytes} bytes"
        );
    }
}
