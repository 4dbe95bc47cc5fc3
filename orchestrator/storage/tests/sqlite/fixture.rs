//! Fixture: a store in a temporary folder, and events to append.

use std::path::PathBuf;

use protocol::{ConversationId, Event, EventId};
use rusqlite::Connection;
use serde_json::json;
use storage::{Durability, SqliteStore};
use tempfile::TempDir;

pub(crate) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Path of the database, in a folder that the store creates.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("data").join("events.db")
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.file(), Durability::default())
            .await
            .unwrap()
    }

    /// Runs SQL on the file without the store.
    pub(crate) fn tamper(&self, sql: &str) {
        Connection::open(self.file())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }
}

pub(crate) fn conversation(name: &str) -> ConversationId {
    name.parse().unwrap()
}

/// Creates an event whose timestamp has the id as its second.
pub(crate) fn event(id: u64) -> Event {
    event_with(id, &format!("hello {id}, größer \u{1f9e4}"))
}

/// Creates an event that is large enough for a blob.
pub(crate) fn large_event(id: u64) -> Event {
    event_with(id, &"large ".repeat(20_000))
}

fn event_with(id: u64, content: &str) -> Event {
    Event::from_value(&json!({
        "id": id,
        "timestamp": format!("2025-10-03T12:00:{:02}.000000", id % 60),
        "source": "user",
        "action": "message",
        "args": { "content": content, "image_urls": null, "wait_for_response": false },
    }))
    .unwrap()
}

pub(crate) fn events(ids: std::ops::Range<u64>) -> Vec<Event> {
    ids.map(event).collect()
}

pub(crate) fn id(id: u64) -> EventId {
    EventId(id)
}
