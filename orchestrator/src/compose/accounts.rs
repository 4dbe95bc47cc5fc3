//! The store of users, keys and sessions, and of the audit log.

use std::sync::Arc;

use accounts::{AccountStore, AuditActor, AuditEntry, AuditStore, MAX_AUDIT_ENTRIES};
use storage::{OpenError, SqliteAccounts};

use super::unusable_files::cannot_open;

/// Users and the audit log, which are stored together.
#[derive(Clone)]
pub(crate) struct Accounts {
    pub(crate) users: Arc<dyn AccountStore>,
    pub(crate) audit: Arc<dyn AuditStore>,
}

impl Accounts {
    pub(super) fn new(store: impl AccountStore + AuditStore + 'static) -> Self {
        let store = Arc::new(store);
        Self {
            users: store.clone(),
            audit: store,
        }
    }

    pub(super) fn of_file(opened: Result<SqliteAccounts, OpenError>) -> anyhow::Result<Self> {
        let opened = opened.map_err(|error| cannot_open("the users", error));
        Ok(Self::new(opened?))
    }

    /// Appends a command of the operator to the audit log.
    pub(crate) async fn record_command(&self, action: String) -> anyhow::Result<()> {
        let entry = AuditEntry {
            at_ms: accounts::unix_now_ms(),
            actor: AuditActor::Operator,
            address: None,
            action,
            conversation: None,
            status: None,
        };
        Ok(self.audit.append(&entry, MAX_AUDIT_ENTRIES).await?)
    }
}
