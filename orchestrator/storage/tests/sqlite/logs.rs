//! The file and the queue of a store. The contract of all stores is tested in
//! `tests/src/store_contract`.

use std::os::unix::fs::PermissionsExt as _;

use engine::events::EventStore as _;
use storage::{Durability, OpenError, SqliteStore};

use crate::fixture::{Fixture, conversation, event, events, id};

#[tokio::test]
async fn queued_appends_are_committed_when_store_is_dropped() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let log = conversation("a");
    let first = events(0..3);
    {
        // Polled once, so that it is queued, then dropped.
        let mut append = store.append(&log, &first);
        let waker = std::task::Waker::noop();
        let _ = append
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker));
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
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = fixture.file();
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    let files: Vec<_> = std::fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 3, "{files:?}"); // the file, its log, the log's index
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}

#[tokio::test]
async fn file_is_unchanged_when_its_version_is_newer() {
    let fixture = Fixture::new();
    drop(fixture.store().await);
    fixture.tamper("PRAGMA user_version = 1000");
    let error = SqliteStore::open(fixture.file(), Durability::default())
        .await
        .err()
        .unwrap();
    assert!(
        matches!(error, OpenError::TooNew { found: 1000, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn error_contains_the_path_when_file_is_no_database() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.file().parent().unwrap()).unwrap();
    std::fs::write(
        fixture.file(),
        "this is not a database, it is much too friendly for one".repeat(100),
    )
    .unwrap();
    let error = SqliteStore::open(fixture.file(), Durability::default())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, OpenError::NotADatabase { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!("{} is not a database", fixture.file().display())
    );
}
