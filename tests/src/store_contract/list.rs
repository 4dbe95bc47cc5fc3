//! Cases of the list of conversations, and of removal.

use engine::events::ConversationSummary;
use protocol::Timestamp;

use super::{StoreBackend, conversation, events, log};

/// Conversations are listed with their times, the latest first.
pub async fn list_is_sorted_by_latest_event(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    store
        .append(&conversation("old"), &events(0..2))
        .await
        .unwrap();
    store
        .append(&conversation("new"), &events(0..5))
        .await
        .unwrap();
    store
        .append(&conversation("middle"), &events(0..3))
        .await
        .unwrap();
    let at = |text: &str| Timestamp::try_from(text.to_owned()).unwrap();
    let summary = |name: &str, events, last: &str| ConversationSummary {
        id: conversation(name),
        events,
        created_at: at("2025-10-03T12:00:00.000000"),
        last_updated_at: at(last),
    };
    let list = store.conversations().await.unwrap();
    assert_eq!(
        list.conversations,
        [
            summary("new", 5, "2025-10-03T12:00:04.000000"),
            summary("middle", 3, "2025-10-03T12:00:02.000000"),
            summary("old", 2, "2025-10-03T12:00:01.000000"),
        ]
    );
    assert!(list.damaged.is_empty());
    for listed in &list.conversations {
        let found = store.find(&listed.id).await.unwrap();
        assert_eq!(found.map(|found| found.summary).as_ref(), Some(listed));
    }
    assert_eq!(store.find(&conversation("none")).await.unwrap(), None);
}

/// A removed conversation leaves nothing, and its id can be used again.
pub async fn removed_conversation_is_gone_with_its_events(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    let (removed, kept) = (conversation("removed"), conversation("kept"));
    for conversation in [&removed, &kept] {
        store.append(conversation, &events(0..3)).await.unwrap();
    }
    store.remove(&removed).await.unwrap();
    assert_eq!(log(&*store, &removed).await, []);
    assert_eq!(log(&*store, &kept).await, events(0..3));
    assert_eq!(store.conversations().await.unwrap().conversations.len(), 1);
    // Its id can be used again, from the first event.
    store.append(&removed, &events(0..1)).await.unwrap();
    assert_eq!(log(&*store, &removed).await, events(0..1));
}

/// An unknown and a removed conversation can be removed.
pub async fn removal_is_idempotent(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.remove(&a).await.unwrap();
    store.append(&a, &events(0..3)).await.unwrap();
    store.remove(&a).await.unwrap();
    store.remove(&a).await.unwrap();
    assert_eq!(store.conversations().await.unwrap().conversations, []);
}
