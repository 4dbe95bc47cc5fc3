//! The contract of stores of users and keys, on PostgreSQL.

use std::sync::Arc;

use accounts::{AccountStore, AuditStore, KeyScope, Users};
use secrecy::ExposeSecret as _;
use storage::postgres::PostgresOptions;
use storage::{PostgresAccounts, PostgresStore};
use tests::account_contract::AccountBackend;
use tests::postgres::TestDatabase;
use tokio::sync::Mutex;

/// Hosts of one database. `None` without PostgreSQL.
struct PostgresBackend {
    database: TestDatabase,
    /// Their connections close when they are dropped.
    hosts: Mutex<Vec<PostgresStore>>,
}

impl PostgresBackend {
    fn create() -> Option<Self> {
        Some(Self {
            database: TestDatabase::create()?,
            hosts: Mutex::default(),
        })
    }

    async fn accounts(&self) -> PostgresAccounts {
        let host = PostgresStore::open(&self.database.address(), PostgresOptions::default())
            .await
            .unwrap();
        let accounts = host.accounts();
        self.hosts.lock().await.push(host);
        accounts
    }
}

#[async_trait::async_trait]
impl AccountBackend for PostgresBackend {
    async fn open(&self) -> Arc<dyn AccountStore> {
        Arc::new(self.accounts().await)
    }

    async fn open_audit(&self) -> Arc<dyn AuditStore> {
        Arc::new(self.accounts().await)
    }
}

tests::account_contract!(match PostgresBackend::create() {
    Some(backend) => backend,
    None => return,
});

/// A key that is added while its user is being removed may stay, and is neither valid then nor
/// after a restoration.
#[tokio::test]
async fn key_of_a_removed_user_is_not_valid() {
    let Some(backend) = PostgresBackend::create() else {
        return;
    };
    let store = backend.open().await;
    let users = Users::new(Arc::clone(&store));
    let ada = "ada".parse().unwrap();
    users.add(&ada).await.unwrap();
    let key = users.add_key(&ada, KeyScope::Write, None).await.unwrap();
    backend.database.execute("UPDATE users SET removed_at = 1");
    assert!(store.key(&key.key.id).await.unwrap().is_none());
    users.restore(&ada).await.unwrap();
    assert!(store.key(&key.key.id).await.unwrap().is_none());
    assert_eq!(backend.database.execute("SELECT count(*) FROM keys"), "0");
    assert_eq!(backend.database.execute("SELECT key_count FROM users"), "0");
}

#[tokio::test]
async fn database_has_only_hashes_of_keys() {
    let Some(backend) = PostgresBackend::create() else {
        return;
    };
    let users = Users::new(backend.open().await);
    let ada = "ada".parse().unwrap();
    users.add(&ada).await.unwrap();
    let key = users.add_key(&ada, KeyScope::Write, None).await.unwrap();
    let rows = backend
        .database
        .execute("SELECT row_to_json(keys) FROM keys");
    assert!(rows.contains("ada"), "{rows}");
    let secret = key.secret.expose_secret();
    assert!(!rows.contains(&secret[secret.len() - 16..]), "{rows}");
}

/// Not even by a program that uses the database without this one.
#[tokio::test]
async fn entries_in_the_database_cannot_be_changed() {
    use accounts::{AuditActor, AuditEntry};

    let Some(backend) = PostgresBackend::create() else {
        return;
    };
    let (at_ms, actor, action) = (1, AuditActor::Operator, "POST /a".to_owned());
    let entry = AuditEntry {
        at_ms,
        actor,
        address: None,
        action,
        conversation: None,
        status: Some(200),
    };
    backend
        .open_audit()
        .await
        .append(&entry, 100)
        .await
        .unwrap();
    let refused =
        std::panic::catch_unwind(|| backend.database.execute("UPDATE audit SET status = 404"));
    let message = refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("not changed"), "{message}");
}
