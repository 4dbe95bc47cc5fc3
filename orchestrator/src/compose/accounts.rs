//! The store of users, keys and sessions, and of the audit log, in the state folder.

use accounts::{AuditActor, AuditEntry, AuditStore as _, MAX_AUDIT_ENTRIES};
use anyhow::Context as _;
use storage::SqliteAccounts;

use super::StateDir;

/// Opens the store.
pub(crate) async fn accounts(state_dir: &StateDir) -> anyhow::Result<SqliteAccounts> {
    let opened = SqliteAccounts::open(state_dir.path().join("accounts.db")).await;
    opened.context("cannot open the users")
}

/// Appends a command of the operator to the audit log.
pub(crate) async fn record_command(accounts: &SqliteAccounts, action: String) -> anyhow::Result<()> {
    let entry = AuditEntry {
        at_ms: accounts::unix_now_ms(),
        actor: AuditActor::Operator,
        address: None,
        action,
        conversation: None,
        status: None,
    };
    Ok(accounts.append(&entry, MAX_AUDIT_ENTRIES).await?)
}
