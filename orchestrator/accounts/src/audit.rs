//! The audit log: who changed what, when, with which result.

use std::net::IpAddr;

use async_trait::async_trait;
use protocol::{ConversationId, UserId};

use crate::caller::Caller;
use crate::key::KeyId;
use crate::store::StoreFailure;

/// Maximum number of entries of the log. The oldest are removed.
pub const MAX_AUDIT_ENTRIES: u64 = 1_000_000;

/// One entry. It has no secret: of a request, only the pattern of its route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who.
    pub actor: AuditActor,
    /// The address of the client. `None` for the command line.
    pub address: Option<IpAddr>,
    /// What was done: method and route, the action of a socket, or a command.
    pub action: String,
    /// The conversation that it was done to.
    pub conversation: Option<ConversationId>,
    /// The status of the response; of an action of a socket, the one that the same request would
    /// have; 499 if the client was gone first. `None` for commands, of which only successful ones
    /// are recorded.
    pub status: Option<u16>,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditActor {
    /// A client without a valid key.
    Unknown,
    /// The operator: a client with the operator's key, or the command line.
    Operator,
    /// A user.
    User {
        /// The name.
        name: UserId,
        /// The key, or that of the session.
        key: Option<KeyId>,
    },
}

impl From<Option<&Caller>> for AuditActor {
    fn from(caller: Option<&Caller>) -> Self {
        match caller {
            None => Self::Unknown,
            Some(Caller { user: None, .. }) => Self::Operator,
            Some(Caller {
                user: Some(name),
                key,
                ..
            }) => Self::User {
                name: name.clone(),
                key: key.clone(),
            },
        }
    }
}

/// Selects entries. The default selects all.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only those of this user.
    pub user: Option<UserId>,
    /// Only those of this conversation.
    pub conversation: Option<ConversationId>,
    /// At most this many, the latest.
    pub limit: usize,
}

/// Stores the audit log. Entries are never changed, and removed only when there are too many.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Appends an entry, and removes the oldest beyond `max`, or some more.
    async fn append(&self, entry: &AuditEntry, max: u64) -> Result<(), StoreFailure>;

    /// Returns the selected entries, the oldest first.
    async fn read(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreFailure>;

    /// Appends entries in this order, and removes the oldest beyond `max`. Atomic.
    async fn append_all(&self, entries: &[AuditEntry], max: u64) -> Result<(), StoreFailure>;

    /// Returns at most `limit` entries with their numbers, which increase from 1 and may have gaps:
    /// those that follow the entry with the number `after`, or all if it is 0.
    async fn read_after(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditEntry)>, StoreFailure>;
}
