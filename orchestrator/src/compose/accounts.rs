//! The store of users, keys and sessions, in the state folder.

use std::sync::Arc;

use accounts::AccountStore;
use anyhow::Context as _;
use storage::SqliteAccounts;

use super::StateDir;

/// Opens the store.
pub(crate) async fn account_store(state_dir: &StateDir) -> anyhow::Result<Arc<dyn AccountStore>> {
    let opened = SqliteAccounts::open(state_dir.path().join("accounts.db")).await;
    Ok(Arc::new(opened.context("cannot open the users")?))
}
