//! The application layer: everything that a front end can do with conversations, behind one type,
//! [`Conversations`].
//!
//! A front end (command line, REST server, chat) parses, authorizes and renders. Rules that all of
//! them share live here: write access, limits on resume, redaction, waiting for the user, retention
//! of sandboxes, contents of lists, forks and exports.
//!
//! A new conversation is [`create`](Conversations::create)d, which claims its id, and
//! [`start`](Conversations::start)ed. A stored one is [`open`](Conversations::open)ed, which claims
//! it and reads its log, and [`resume`](Conversations::resume)d. It then runs in this process and
//! is controlled by its id. Any number of front ends [`follow`](Conversations::follow) it, until it
//! is [`close`](Conversations::close)d. A claim keeps other processes from writing the same
//! conversation. A [`Sweep`] removes sandboxes of killed processes.
//!
//! [`UserProfiles`] keeps the settings and secrets of users.
//!
//! Knows the traits of [`engine`] and no adapter: stores, sandbox providers and models arrive as
//! trait objects, locks and folders through [`ConversationLocks`] and [`Workspaces`]. Reads no
//! files, no environment and no configuration, and prints nothing. `examples/embedded.rs` runs a
//! conversation on the engine's test parts.

mod checks;
mod claim;
mod client_limits;
mod client_view;
mod commands;
mod conversations;
mod copy;
mod error;
mod event_query;
mod event_search;
mod follow;
mod host;
mod hosted;
mod library;
mod lifecycle;
mod list;
mod log_pages;
mod parts;
mod ports;
mod profile;
mod profile_service;
mod running;
mod sandbox_service;
mod selector;
mod service;
mod single_process;
mod start;
mod stored;
mod sweeping;
mod task_prompt;
mod title;
mod trajectory;
mod update;
mod workspace_files;
mod workspace_service;

pub use engine::events::{InvalidPosition, ListPosition, Overview};
pub use engine::sandbox::ByteSource;

pub use claim::{Claim, FolderUse};
pub use client_limits::{check_message, check_text, check_title};
pub use client_view::{event_json, event_value, to_client};
pub use conversations::Conversations;
pub use copy::{CopiedLog, CopyMode, EventPages};
pub use error::{ConversationsError, InvalidRequest};
pub use event_query::{EventView, SelectedEvents};
pub use follow::{Follower, run_outcome, track_answer};
pub use host::{ConversationLock, ConversationLocks, HostError, LockGuard, Workspaces};
pub use hosted::{
    ComposedConversation, ConversationFactory, ConversationRequest, EventStream,
    HostedConversations, HostingOptions, MIN_QUESTION_AGE, Turn, TurnEnd, TurnOutcome, TurnUpdate,
    UserConversations, check_right,
};
pub use library::{DeleteMode, FindProvider};
pub use list::{ConversationEntry, ConversationFilter};
pub use log_pages::LogPages;
pub use parts::{ComposedAgents, ConversationParts};
pub use ports::SandboxAccessError;
pub use profile::{
    GitToken, InvalidSetting, ProfileError, ProfileStore, SettingsPolicy, StoredProfile,
    UserProfile, UserProfiles,
};
pub use profile_service::{Choices, OwnProfile, ProfileService};
pub use running::{CloseReason, ClosedConversation};
pub use sandbox_service::SandboxService;
pub use selector::{AmbiguousId, ConversationSelector, find_by_id_part};
pub use service::{ConversationService, ServiceError, ServiceErrorKind, Updates};
pub use single_process::{NoWorkspaces, ProcessLocks};
pub use start::{InitialTask, NewConversation};
pub use stored::StoredConversation;
pub use sweeping::{SWEEP_INTERVAL, SandboxRetention, Sweep};
pub use task_prompt::task_prompt;
pub use trajectory::TrajectoryPages;
pub use workspace_files::{FolderNames, WorkspaceError, WorkspaceFiles};
pub use workspace_service::WorkspaceService;
