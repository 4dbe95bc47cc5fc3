//! The application layer: everything that a front end can do with conversations, behind one type, [`Conversations`].
//!
//! A front end (command line, REST server, chat) parses, authorizes and renders. A rule that holds for all of them lives
//! here: who may write a conversation, on what terms it is resumed, what is redacted, when it waits for the user, what
//! becomes of its sandbox, what a list shows, what a fork shares, what an export leaves out.
//!
//! A new conversation is [`create`](Conversations::create)d, which claims its id, and
//! [`start`](Conversations::start)ed. A stored one is [`open`](Conversations::open)ed, which claims it and reads its log,
//! and [`resume`](Conversations::resume)d. From then on it runs in this process: it is steered by its id, any number of
//! front ends [`follow`](Conversations::follow) it, and it ends with [`close`](Conversations::close). A claim keeps other
//! processes from writing the same conversation. A [`Sweep`] removes sandboxes that killed processes left.
//!
//! Knows the traits of [`engine`] and no adapter: stores, sandbox providers and models arrive as trait objects, locks and
//! folders through [`ConversationLocks`] and [`Workspaces`]. Reads no files, no environment and no configuration, and
//! prints nothing. `examples/embedded.rs` runs a conversation on the engine's test parts.

mod claim;
mod error;
mod follow;
mod host;
mod library;
mod lifecycle;
mod list;
mod parts;
mod progress;
mod resume;
mod running;
mod selector;
mod single_process;
mod start;
mod sweeping;
mod title;
mod trajectory;

use std::sync::Arc;

use engine::events::EventStore;
use protocol::ConversationId;

use running::Registry;

pub use claim::{Claim, FolderUse};
pub use error::ConversationsError;
pub use follow::{FollowOptions, Follower, RunOutcome};
pub use host::{ConversationLocks, HostError, LockGuard, Workspaces};
pub use library::{DeleteMode, FindProvider};
pub use list::{ConversationEntry, ConversationFilter, ConversationStatus, Overview};
pub use parts::ConversationParts;
pub use progress::{Progress, Waiting};
pub use resume::{Decision, ResumeRequest, StoredConversation};
pub use running::{CloseReason, ClosedConversation};
pub use selector::{AmbiguousPrefix, ConversationSelector, find_by_prefix};
pub use single_process::{NoWorkspaces, ProcessLocks};
pub use start::{NewConversation, Task};
pub use sweeping::{SandboxRetention, Sweep};

/// The conversations of one store, those that run in this process among them.
pub struct Conversations {
    store: Arc<dyn EventStore>,
    locks: Arc<dyn ConversationLocks>,
    workspaces: Arc<dyn Workspaces>,
    running: Registry,
}

impl Conversations {
    /// The conversations of a store.
    pub fn new(
        store: Arc<dyn EventStore>,
        locks: Arc<dyn ConversationLocks>,
        workspaces: Arc<dyn Workspaces>,
    ) -> Self {
        Self { store, locks, workspaces, running: Registry::default() }
    }

    /// Makes an id for a new conversation. Later ids sort after earlier ones.
    pub fn new_id() -> ConversationId {
        #[expect(clippy::expect_used, reason = "32 hexadecimal digits are an id")]
        let id = uuid::Uuid::now_v7().simple().to_string().try_into().expect("an id");
        id
    }
}
