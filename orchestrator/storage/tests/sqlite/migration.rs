//! Files of earlier versions.

use engine::events::{ConversationQuery, EventStore as _, OverviewChange};
use protocol::client_api::git::GitProvider;
use protocol::record::ConversationTrigger;
use rusqlite::{Connection, params};
use storage::{BlobStore, Durability, SqliteOptions, SqliteStore};

use crate::fixture::{Fixture, conversation, event, events, id, large_event};

/// Writes the file as the first version did, which had no overviews.
fn write_first_version(fixture: &Fixture, conversations: u64, length: u64) {
    std::fs::create_dir(fixture.file().parent().unwrap()).unwrap();
    let mut connection = Connection::open(fixture.file()).unwrap();
    connection
        .execute_batch(include_str!("../../migrations/0001_events.sql"))
        .unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    let transaction = connection.transaction().unwrap();
    for number in 1..=conversations {
        let insert = "INSERT INTO conversations VALUES (?1, ?2, ?3, ?4, ?4)";
        let time = format!("2025-10-03T12:00:00.{number:06}");
        transaction
            .execute(insert, params![number, format!("c{number}"), length, time])
            .unwrap();
        for event in events(0..length) {
            let json = serde_json::to_string(&event).unwrap();
            let insert = "INSERT INTO events VALUES (?1, ?2, ?3)";
            transaction
                .execute(insert, params![number, event.id.0, json])
                .unwrap();
        }
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn logs_of_the_first_version_are_listed_after_migration() {
    let fixture = Fixture::new();
    write_first_version(&fixture, 300, 100);
    let store = fixture.store().await;
    let query = ConversationQuery {
        text: Some("hello 0".to_owned()),
        limit: 1000,
        ..Default::default()
    };
    let page = store.list(&query).await.unwrap();
    assert_eq!(page.conversations.len(), 300);
    let overview = OverviewChange::from_events(&events(0..100)).overview;
    for listed in &page.conversations {
        assert_eq!(
            (&listed.overview, listed.overview_events),
            (&overview, 100),
            "{}",
            listed.summary.id
        );
    }
    store
        .append(&conversation("c1"), &[event(100)])
        .await
        .unwrap();
    assert_eq!(
        store.read(&conversation("c1"), id(0), 1000).await.unwrap(),
        events(0..101)
    );
}

#[tokio::test]
async fn log_of_the_first_version_continues_with_blobs() {
    let fixture = Fixture::new();
    write_first_version(&fixture, 1, 3);
    let folder = fixture.file().with_file_name("blobs");
    let options = SqliteOptions {
        blobs: Some(BlobStore::folder(&folder)),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(fixture.file(), options).await.unwrap();
    let (log, large) = (conversation("c1"), large_event(3));
    store
        .append(&log, &[large.clone(), event(4)])
        .await
        .unwrap();
    assert_eq!(folder.join("c1").read_dir().unwrap().count(), 1);
    let expected = [events(0..3), vec![large, event(4)]].concat();
    assert_eq!(store.read(&log, id(0), 1000).await.unwrap(), expected);
}

/// A program of the first version may still run when another one migrates the file.
#[tokio::test]
async fn first_version_can_append_and_remove_after_migration() {
    let fixture = Fixture::new();
    write_first_version(&fixture, 2, 1);
    drop(fixture.store().await);
    let json = serde_json::to_string(&event(1)).unwrap();
    fixture.tamper(&format!(
        "PRAGMA foreign_keys = ON;
         INSERT INTO events (conversation, id, json) VALUES (1, 1, '{json}');
         UPDATE conversations SET events = 2, last_updated_at = '2025-10-03T12:00:01' WHERE number = 1;
         DELETE FROM events WHERE conversation = 2;
         DELETE FROM conversations WHERE number = 2"
    ));
    let store = SqliteStore::open(fixture.file(), Durability::default())
        .await
        .unwrap();
    let page = store
        .list(&ConversationQuery {
            limit: 10,
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(page.conversations.len(), 1);
    assert_eq!(page.conversations[0].overview_events, 2);
}

/// The fourth version had overviews without a trigger. The first event of `c3` is in a blob, the
/// one of `c4` damaged.
#[tokio::test]
async fn triggers_of_older_logs_are_known_after_migration() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.file().parent().unwrap()).unwrap();
    let connection = Connection::open(fixture.file()).unwrap();
    for migration in [
        include_str!("../../migrations/0001_events.sql"),
        include_str!("../../migrations/0002_overviews.sql"),
        include_str!("../../migrations/0003_owners.sql"),
        include_str!("../../migrations/0004_blobs.sql"),
    ] {
        connection.execute_batch(migration).unwrap();
    }
    connection.pragma_update(None, "user_version", 4).unwrap();
    let started = |id: u64, trigger: Option<&str>| {
        let args = serde_json::json!({
            "agent": "CodeActAgent", "model": "m", "max_iterations": 5, "runtime": "local", "image": null,
            "workspace": null, "git_provider": trigger.map(|_| "gitlab"), "trigger": trigger,
        });
        let event = serde_json::json!({
            "id": id, "timestamp": "2025-10-03T12:00:00.000000", "source": "environment",
            "record": "conversation_started", "args": args,
        });
        event.to_string()
    };
    let folder = fixture.file().with_file_name("blobs");
    let blobs = BlobStore::folder(&folder);
    for (number, json) in [
        (1, started(0, Some("slack"))),
        (2, started(0, None)),
        (3, String::new()),
        (4, "{\"record\": ".to_owned()),
    ] {
        let name = format!("c{number}");
        connection
            .execute(
                "INSERT INTO conversations (number, id, events, created_at, last_updated_at, overview_events)
                 VALUES (?1, ?2, 1, '2025-10-03T12:00:00', '2025-10-03T12:00:00', 1)",
                params![number, name],
            )
            .unwrap();
        connection
            .execute(
                "INSERT INTO overviews (conversation, model) VALUES (?1, 'm')",
                [number],
            )
            .unwrap();
        let mut blob = None;
        if json.is_empty() {
            let content = started(0, Some("jira"));
            let reference = format!("{}-{}", sha256(&content), content.len());
            std::fs::create_dir_all(folder.join(&name)).unwrap();
            std::fs::write(folder.join(&name).join(&reference), content).unwrap();
            blob = Some(reference);
        }
        let insert = "INSERT INTO events (conversation, id, json, blob) VALUES (?1, 0, ?2, ?3)";
        connection
            .execute(insert, params![number, json, blob])
            .unwrap();
    }
    drop(connection);
    let options = SqliteOptions {
        blobs: Some(blobs),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(fixture.file(), options).await.unwrap();
    let (gitlab, slack, jira) = (
        GitProvider::GitLab,
        ConversationTrigger::Slack,
        ConversationTrigger::Jira,
    );
    for (name, expected) in [
        ("c1", Some((gitlab, slack))),
        ("c2", None),
        ("c3", Some((gitlab, jira))),
        ("c4", None),
    ] {
        let overview = store
            .find(&conversation(name))
            .await
            .unwrap()
            .unwrap()
            .overview;
        assert_eq!(
            overview.git_provider.zip(overview.trigger),
            expected,
            "{name}"
        );
    }
}

fn sha256(content: &str) -> String {
    ring::digest::digest(&ring::digest::SHA256, content.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
