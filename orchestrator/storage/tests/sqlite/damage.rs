//! Damaged rows: each is reported by a typed error with the id of its event, and never skipped.

use engine::events::{EventStore as _, StoreError};
use protocol::EventId;

use crate::fixture::{Fixture, conversation, event, events, id};

/// Runs `sql` on the file of a store. Returns the id of the event that is reported as damaged, and the cause.
async fn damage(sql: &str) -> (EventId, String) {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let log = conversation("a");
    store.append(&log, &events(0..5)).await.unwrap();
    fixture.tamper(sql);
    assert_eq!(store.read(&log, id(0), 3).await.unwrap(), events(0..3)); // undamaged events are still read
    let StoreError::Damaged { conversation, id, source } = store.read(&log, id(2), 10).await.unwrap_err()
    else {
        panic!("unexpected error");
    };
    assert_eq!(conversation, log);
    (id, source.to_string())
}

#[tokio::test]
async fn read_fails_when_a_row_is_no_json() {
    let found = damage("UPDATE events SET json = substr(json, 1, 40) WHERE id = 3").await;
    assert_eq!(found, (id(3), "its row holds no event".into()));
}

#[tokio::test]
async fn read_fails_when_a_row_is_no_text() {
    let found = damage("UPDATE events SET json = CAST(x'ff' AS TEXT) WHERE id = 3").await;
    assert_eq!(found, (id(3), "its row holds no event".into()));
}

#[tokio::test]
async fn read_fails_when_a_row_has_another_event() {
    let sql = "UPDATE events SET json = (SELECT json FROM events WHERE id = 1) WHERE id = 3";
    assert_eq!(damage(sql).await, (id(3), "its row holds event 1".into()));
}

#[tokio::test]
async fn read_fails_when_a_row_is_missing() {
    assert_eq!(damage("DELETE FROM events WHERE id = 3").await, (id(3), "its row is missing".into()));
    assert_eq!(damage("DELETE FROM events WHERE id = 4").await, (id(4), "its row is missing".into()));
}

#[tokio::test]
async fn only_one_append_fails_when_its_row_exists() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let (bad, good) = (conversation("bad"), conversation("good"));
    store.append(&bad, &events(0..1)).await.unwrap();
    fixture.tamper("INSERT INTO events (conversation, id, json) VALUES (1, 2, '{}')");
    let (refused, next) = (events(1..3), [event(0)]);
    let (refused, appended) = tokio::join!(store.append(&bad, &refused), store.append(&good, &next));
    assert!(matches!(refused.unwrap_err(), StoreError::Storage { .. }));
    appended.unwrap();
    assert_eq!(store.read(&bad, id(0), 10).await.unwrap(), events(0..1));
}

#[tokio::test]
async fn damaged_entry_is_reported_and_the_others_are_listed() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    for name in ["a", "b", "c", "d"] {
        store.append(&conversation(name), &events(0..1)).await.unwrap();
    }
    fixture.tamper(
        "UPDATE conversations SET id = '../b' WHERE id = 'b';
         UPDATE conversations SET events = -1 WHERE id = 'c';
         UPDATE conversations SET created_at = CAST(x'ff' AS TEXT) WHERE id = 'd'",
    );
    let list = store.conversations().await.unwrap();
    assert_eq!(list.conversations.into_iter().map(|known| known.id).collect::<Vec<_>>(), [conversation("a")]);
    let mut damaged: Vec<_> = list.damaged.iter().map(ToString::to_string).collect();
    damaged.sort();
    assert_eq!(damaged, ["../b", "c", "d"].map(|id| format!("the entry of conversation {id:?} is damaged")));
}
