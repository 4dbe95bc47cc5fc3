//! Appends in order, reads by cursor, and the list of conversations.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use engine::events::{ConversationSummary, EventStore as _, StoreError};
use protocol::Timestamp;
use storage::{Durability, OpenError, SqliteStore};

use crate::fixture::{Fixture, conversation, event, events, id};

#[tokio::test]
async fn appended_events_are_read_in_order() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let log = conversation("a");
    store.append(&log, &events(0..2)).await.unwrap();
    store.append(&log, &[event(2)]).await.unwrap();
    store.append(&log, &[]).await.unwrap();
    assert_eq!(store.read(&log, id(0), 100).await.unwrap(), events(0..3));
}

#[tokio::test]
async fn reader_follows_by_cursor() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let log = conversation("a");
    store.append(&log, &events(0..10)).await.unwrap();
    assert_eq!(store.read(&log, id(0), 4).await.unwrap(), events(0..4));
    assert_eq!(store.read(&log, id(4), 4).await.unwrap(), events(4..8));
    assert_eq!(store.read(&log, id(8), 4).await.unwrap(), events(8..10));
    assert_eq!(store.read(&log, id(10), 4).await.unwrap(), []);
    assert_eq!(store.read(&log, id(u64::MAX), usize::MAX).await.unwrap(), []);
    assert_eq!(store.read(&log, id(3), 0).await.unwrap(), []);
    assert_eq!(store.read(&conversation("missing"), id(0), 4).await.unwrap(), []);
}

#[tokio::test]
async fn append_is_refused_when_ids_do_not_continue() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let log = conversation("a");
    store.append(&log, &events(0..3)).await.unwrap();
    for wrong in [events(2..3), events(4..5), vec![event(3), event(5)], vec![event(u64::MAX)]] {
        let error = store.append(&log, &wrong).await.unwrap_err();
        assert!(matches!(error, StoreError::OutOfOrder { .. }), "{error}");
    }
    assert_eq!(store.read(&log, id(0), 100).await.unwrap(), events(0..3));
    store.append(&log, &[event(3)]).await.unwrap();
}

#[tokio::test]
async fn no_conversation_exists_when_first_append_is_refused() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let error = store.append(&conversation("a"), &[event(1)]).await.unwrap_err();
    assert_eq!(error.to_string(), "event 1 of conversation a does not follow the end of its log");
    assert_eq!(store.conversations().await.unwrap().conversations, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_conversations_append_concurrently() {
    let fixture = Fixture::new();
    let store = Arc::new(fixture.store().await);
    let appending: Vec<_> = (0..20)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let log = conversation(&format!("c{number}"));
                for next in 0..50 {
                    store.append(&log, &[event(next)]).await.unwrap();
                    // A rejected append must not affect the others of its transaction.
                    store.append(&log, &[event(next)]).await.unwrap_err();
                }
            })
        })
        .collect();
    for task in appending {
        task.await.unwrap();
    }
    for number in 0..20 {
        let log = conversation(&format!("c{number}"));
        assert_eq!(store.read(&log, id(0), 100).await.unwrap(), events(0..50));
    }
}

#[tokio::test]
async fn list_is_sorted_by_latest_event() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    store.append(&conversation("old"), &events(0..2)).await.unwrap();
    store.append(&conversation("new"), &events(0..5)).await.unwrap();
    let at = |text: &str| Timestamp::try_from(text.to_owned()).unwrap();
    let summary = |name: &str, events, last: &str| ConversationSummary {
        id: conversation(name),
        events,
        created_at: at("2025-10-03T12:00:00.000000"),
        last_updated_at: at(last),
    };
    assert_eq!(
        store.conversations().await.unwrap().conversations,
        [summary("new", 5, "2025-10-03T12:00:04.000000"), summary("old", 2, "2025-10-03T12:00:01.000000"),]
    );
}

#[tokio::test]
async fn queued_appends_are_committed_when_store_is_dropped() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let log = conversation("a");
    let first = events(0..3);
    {
        // Polled once, which queues it, and then dropped.
        let mut append = store.append(&log, &first);
        let waker = std::task::Waker::noop();
        let _ = append.as_mut().poll(&mut std::task::Context::from_waker(waker));
    }
    drop(store);
    let store = fixture.store().await;
    assert_eq!(store.read(&log, id(0), 100).await.unwrap(), first);
    store.append(&log, &[event(3)]).await.unwrap();
}

#[tokio::test]
async fn file_and_folder_are_readable_only_by_the_owner() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    store.append(&conversation("a"), &[event(0)]).await.unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = fixture.file();
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    let files: Vec<_> =
        std::fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 3, "{files:?}"); // the file, its log, the log's index
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}

#[tokio::test]
async fn file_is_unchanged_when_its_version_is_newer() {
    let fixture = Fixture::new();
    drop(fixture.store().await);
    fixture.tamper("PRAGMA user_version = 1000");
    let error = SqliteStore::open(fixture.file(), Durability::default()).await.err().unwrap();
    assert!(matches!(error, OpenError::TooNew { found: 1000, .. }), "{error}");
}

#[tokio::test]
async fn error_contains_the_path_when_file_is_not_a_database() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.file().parent().unwrap()).unwrap();
    std::fs::write(fixture.file(), "this is not a database, it is much too friendly for one".repeat(100))
        .unwrap();
    let error = SqliteStore::open(fixture.file(), Durability::default()).await.err().unwrap();
    assert!(matches!(error, OpenError::Open { .. }), "{error}");
    assert_eq!(error.to_string(), format!("cannot open {}", fixture.file().display()));
}

#[tokio::test]
async fn removed_conversation_is_gone_with_its_events() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let (removed, kept) = (conversation("removed"), conversation("kept"));
    for log in [&removed, &kept] {
        store.append(log, &events(0..3)).await.unwrap();
    }
    store.remove(&removed).await.unwrap();
    store.remove(&removed).await.unwrap();
    assert_eq!(store.read(&removed, id(0), 10).await.unwrap(), []);
    assert_eq!(store.read(&kept, id(0), 10).await.unwrap(), events(0..3));
    assert_eq!(store.conversations().await.unwrap().conversations.len(), 1);
    // Its id can be used again, from the first event.
    store.append(&removed, &events(0..1)).await.unwrap();
    assert_eq!(store.read(&removed, id(0), 10).await.unwrap(), events(0..1));
}
