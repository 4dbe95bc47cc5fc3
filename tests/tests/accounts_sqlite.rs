//! The contract of stores of users and keys, on SQLite.

use std::sync::Arc;

use accounts::AccountStore;
use storage::SqliteAccounts;
use tempfile::TempDir;
use tests::account_contract::AccountBackend;

/// Stores in one file.
struct SqliteBackend(TempDir);

#[async_trait::async_trait]
impl AccountBackend for SqliteBackend {
    async fn open(&self) -> Arc<dyn AccountStore> {
        Arc::new(SqliteAccounts::open(self.0.path().join("state/accounts.db")).await.unwrap())
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
        assert!(!content.windows(16).any(|window| secret.ends_with(window)), "{}", path.display());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
}
