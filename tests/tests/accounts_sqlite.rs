//! The contract of stores of users and keys, on SQLite.

use std::path::PathBuf;
use std::sync::Arc;

use accounts::{AccountStore, AuditStore};
use storage::SqliteAccounts;
use tempfile::TempDir;
use tests::account_contract::AccountBackend;

/// Stores in one file.
struct SqliteBackend(TempDir);

impl SqliteBackend {
    fn file(&self) -> PathBuf {
        self.0.path().join("state/accounts.db")
    }

    async fn accounts(&self) -> SqliteAccounts {
        SqliteAccounts::open(self.file()).await.unwrap()
    }
}

#[async_trait::async_trait]
impl AccountBackend for SqliteBackend {
    async fn open(&self) -> Arc<dyn AccountStore> {
        Arc::new(self.accounts().await)
    }

    async fn open_audit(&self) -> Arc<dyn AuditStore> {
        Arc::new(self.accounts().await)
    }
}

tests::account_contract!(SqliteBackend(tempfile::tempdir().unwrap()));

/// No secret is in the file, and only its owner can read it.
#[tokio::test]
async fn file_has_only_hashes_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;

    use accounts::{KeyScope, Users};
    use secrecy::ExposeSecret as _;

    let backend = SqliteBackend(tempfile::tempdir().unwrap());
    let users = Users::new(backend.open().await);
    let ada = "ada".parse().unwrap();
    users.add(&ada).await.unwrap();
    let key = users.add_key(&ada, KeyScope::Write, None).await.unwrap();
    let folder = backend.0.path().join("state");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        let secret = key.secret.expose_secret().as_bytes();
        assert!(
            !content.windows(16).any(|window| secret.ends_with(window)),
            "{}",
            path.display()
        );
        assert_eq!(
            path.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{}",
            path.display()
        );
    }
}

/// Not even by a program that uses the file without this one.
#[tokio::test]
async fn entries_of_the_audit_log_cannot_be_changed() {
    use accounts::{AuditActor, AuditEntry};

    let backend = SqliteBackend(tempfile::tempdir().unwrap());
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
    let connection = rusqlite::Connection::open(backend.file()).unwrap();
    let error = connection
        .execute("UPDATE audit SET status = 404", [])
        .unwrap_err();
    assert!(error.to_string().contains("not changed"), "{error}");
}
