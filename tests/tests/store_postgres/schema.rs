//! Opening a database: its schema, and errors that name it.

use std::error::Error as _;
use std::sync::Arc;

use accounts::{KeyScope, Users};
use engine::events::{ConversationQuery, EventStore as _, OverviewChange};
use storage::PostgresStore;
use storage::postgres::{PostgresOpenError, PostgresOptions};
use tests::postgres::TestDatabase;
use tests::store_contract::overviews::agent_log;
use tests::store_contract::{conversation, event_with, events, log};

use super::{acquire, host};

async fn open_error(address: &str) -> PostgresOpenError {
    PostgresStore::open(address, PostgresOptions::default())
        .await
        .err()
        .unwrap()
}

#[tokio::test]
async fn database_is_unchanged_when_its_version_is_newer() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    host(&database).await.close().await;
    database.execute("UPDATE glovebox_schema SET version = 1000");
    let error = open_error(&database.address()).await;
    assert!(
        matches!(error, PostgresOpenError::TooNew { found: 1000, .. }),
        "{error}"
    );
    assert_eq!(
        database.execute("SELECT version FROM glovebox_schema"),
        "1000"
    );
}

#[tokio::test]
async fn failed_migration_leaves_nothing() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    database.execute("CREATE TABLE leases (of_another_program int)");
    let error = open_error(&database.address()).await;
    assert!(
        matches!(error, PostgresOpenError::Migrate { .. }),
        "{error}"
    );
    let tables = "SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(database.execute(tables), "leases");
}

/// The first version had no overviews.
#[tokio::test]
async fn log_of_the_first_version_is_listed_after_migration() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let log = agent_log();
    let schema = include_str!("../../../orchestrator/storage/migrations/postgres/0001_events.sql");
    database.execute(&format!(
        "{schema};
         CREATE TABLE glovebox_schema (version bigint NOT NULL);
         INSERT INTO glovebox_schema VALUES (1);
         INSERT INTO conversations (id, events, created_at, last_updated_at)
         VALUES ('a', {}, '2025-10-03T12:00:00', '2025-10-03T12:00:05')",
        log.len()
    ));
    for event in &log {
        let json = serde_json::to_string(event).unwrap();
        database.execute(&format!(
            "INSERT INTO events SELECT number, {}, convert_to($json${json}$json$, 'UTF8') FROM conversations",
            event.id
        ));
    }
    let store = host(&database).await;
    let query = ConversationQuery {
        text: Some("fix login".to_owned()),
        limit: 1,
        ..Default::default()
    };
    let page = store.list(&query).await.unwrap();
    assert_eq!(
        page.conversations[0].overview,
        OverviewChange::from_events(&log).overview
    );
    assert_eq!(
        tests::store_contract::log(&store, &conversation("a")).await,
        log
    );
    store.close().await;
}

/// The version before the last one had overviews without a trigger.
#[tokio::test]
async fn triggers_of_older_logs_are_known_after_migration() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    host(&database).await.close().await;
    let (log, quoting) = (
        agent_log(),
        event_with(0, r#""record":"conversation_started","trigger":"slack""#),
    );
    for (name, log) in [("a", &log[..]), ("b", &[quoting])] {
        let length = log.len();
        database.execute(&format!(
            "INSERT INTO conversations (id, events, created_at, last_updated_at, overview_events)
             VALUES ('{name}', {length}, '2025-10-03T12:00:00', '2025-10-03T12:00:05', {length});
             INSERT INTO overviews (conversation) SELECT number FROM conversations WHERE id = '{name}'"
        ));
        for event in log {
            let json = serde_json::to_string(event).unwrap();
            database.execute(&format!(
                "INSERT INTO events SELECT number, {}, convert_to($json${json}$json$, 'UTF8')
                 FROM conversations WHERE id = '{name}'",
                event.id
            ));
        }
    }
    database.execute(
        "INSERT INTO conversations (id, events, created_at, last_updated_at, overview_events)
         VALUES ('damaged', 1, '2025-10-03T12:00:00', '2025-10-03T12:00:05', 1);
         INSERT INTO overviews (conversation) SELECT number FROM conversations WHERE id = 'damaged';
         INSERT INTO events SELECT number, 0, '\\xff' FROM conversations WHERE id = 'damaged'",
    );
    database.execute(
        "DROP TRIGGER removed_key_is_revoked ON keys;
         DROP FUNCTION record_removed_key;
         DROP TABLE revoked_keys;
         ALTER TABLE documents DROP COLUMN copied_revision;
         ALTER TABLE overviews DROP COLUMN git_provider, DROP COLUMN conversation_trigger;
         UPDATE glovebox_schema SET version = 6",
    );
    let store = host(&database).await;
    let overview = OverviewChange::from_events(&log).overview;
    for (name, provider, trigger) in [
        ("a", overview.git_provider, overview.trigger),
        ("b", None, None),
        ("damaged", None, None),
    ] {
        let found = store
            .find(&conversation(name))
            .await
            .unwrap()
            .unwrap()
            .overview;
        assert_eq!(
            (found.git_provider, found.trigger),
            (provider, trigger),
            "{name}"
        );
    }
    assert!(overview.git_provider.is_some() && overview.trigger.is_some());
    store.close().await;
}

/// As every role of PostgreSQL 15 and later that does not own the database.
#[tokio::test]
async fn role_that_may_not_create_tables_learns_the_grant_it_needs() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let role = format!("new_{}", std::process::id());
    database.execute(&format!(
        "CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    ));
    let address = database
        .address()
        .replace("user=glovebox", &format!("user={role}"));
    let error = open_error(&address).await;
    let grant = format!("GRANT CREATE ON SCHEMA public TO {role}");
    assert!(
        matches!(&error, PostgresOpenError::NotAllowed { .. })
            && error.to_string().ends_with(&grant),
        "{error}"
    );
    database.execute(&grant);
    let store = PostgresStore::open(&address, PostgresOptions::default()).await;
    store.unwrap().close().await;
}

/// An operator may migrate with one role and run hosts with another.
#[tokio::test]
async fn role_that_may_not_create_tables_can_use_a_migrated_database() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    host(&database).await.close().await;
    let role = format!("host_{}", std::process::id());
    database.execute(&format!(
        "CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
    ));
    let address = database
        .address()
        .replace("user=glovebox", &format!("user={role}"));
    let store = PostgresStore::open(&address, PostgresOptions::default())
        .await
        .unwrap();
    let (lease, a) = (acquire(&store, "a").await, conversation("a"));
    store.append(&a, &events(0..2)).await.unwrap();
    assert_eq!(log(&store, &a).await, events(0..2));
    store.remove(&a).await.unwrap();
    drop(lease);
    // As if it had its rights before this table existed.
    database.execute(&format!("REVOKE ALL ON revoked_keys FROM {role}"));
    let users = Users::new(Arc::new(store.accounts()));
    let ada = "ada".parse().unwrap();
    users.add(&ada).await.unwrap();
    let key = users.add_key(&ada, KeyScope::Write, None).await.unwrap();
    users.revoke_key(&key.key.id).await.unwrap();
    store.close().await;

    database.execute("UPDATE glovebox_schema SET version = version - 1");
    let error = open_error(&address).await;
    assert!(
        matches!(error, PostgresOpenError::NotOwner { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn errors_name_the_database_but_not_its_password() {
    let error = open_error("postgres://user:secret@127.0.0.1:notaport/name").await;
    assert!(matches!(error, PostgresOpenError::Address(_)), "{error}");
    // The host would be `ss:5432`, with the rest of the password in the name of the database.
    let error = open_error("postgres://user:p@ss/word@127.0.0.1:1/name").await;
    assert!(matches!(error, PostgresOpenError::NotEncoded), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let address = format!(
        "postgres://user:secret@/name?host={}",
        folder.path().display()
    );
    let error = open_error(&address).await;
    assert_eq!(
        error.to_string(),
        format!(
            "cannot connect to the database name at {}",
            folder.path().display()
        )
    );
    let mut text = format!("{error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("{error} {error:?}"));
        cause = error.source();
    }
    assert!(!text.contains("secret"), "{text}");
}
