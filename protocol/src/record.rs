//! Events of our own: what the log must hold to be the whole state, and V0 has no event for.
//!
//! They are stored and read like V0's, under the key `record`, and kept from V0's routes and sockets.

use serde::{Deserialize, Serialize};

use crate::action::EditAction;
use crate::ids::{BootId, ConversationId, EventId, SandboxId};
use crate::kinds::kinds;
use crate::risk::{ConfirmationPolicy, SecurityRisk};

kinds! {
    /// Everything of our own that a log holds.
    pub enum Record, wire key "record", fields under "args" {
        /// A conversation begins; always a log's first event.
        "conversation_started" => ConversationStarted(ConversationStarted),
        /// A sandbox was placed for this conversation.
        "sandbox_leased" => SandboxLeased(SandboxLeased),
        /// The sandbox was removed, or found gone.
        "sandbox_released" => SandboxReleased(SandboxReleased),
        /// A limit stopped the agent.
        "limit_reached" => LimitReached(LimitReached),
        /// The user let the agent go on past a limit.
        "limit_extended" => LimitExtended(LimitExtended),
        /// The user changed what the agent may do unasked.
        "confirmation_changed" => ConfirmationChanged(ConfirmationChanged),
        /// The user approved an action and those like it, for the rest of the conversation.
        "approval_granted" => ApprovalGranted(ApprovalGranted),
        /// A call to the model failed and is made again.
        "model_retried" => ModelRetried(ModelRetried),
        /// A title was found for the conversation.
        "conversation_titled" => ConversationTitled(ConversationTitled),
        /// The draft of an edit was written out.
        "edit_drafted" => EditDrafted(EditDrafted),
    }
}

/// What a conversation was asked to be, so that it can go on after a restart. Holds no secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationStarted {
    /// The agent's name.
    pub agent: String,
    /// The model's name as it was configured.
    pub model: String,
    /// The limit of steps.
    pub max_iterations: u32,
    /// The limit of what the model's calls may cost, in US dollars; nothing: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_budget: Option<f64>,
    /// What the agent may do unasked; everything in older logs.
    #[serde(default, skip_serializing_if = "ConfirmationPolicy::is_never")]
    pub confirmation: ConfirmationPolicy,
    /// The runtime's name: `docker`, `local`, …
    pub runtime: String,
    /// The image, for runtimes that have one.
    pub image: Option<String>,
    /// The folder of the host that is the workspace; nothing: a fresh one.
    pub workspace: Option<String>,
    /// The network of its sandboxes: `none`, `host`, or the name of one of the engine's; `None` in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// What is done in each new sandbox before the agent's first step there; nothing in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<WorkspaceSetup>,
    /// Whether a history that does not fit the model's window stays as it is, and the step fails; not in older logs.
    #[serde(rename = "keeps_whole_history", default, skip_serializing_if = "std::ops::Not::not")]
    pub history_truncation_disabled: bool,
    /// Whether an agent that goes in circles is let be; not in older logs.
    #[serde(rename = "lets_loops_be", default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck_detection_disabled: bool,
    /// The conversation whose beginning this one shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
}

/// Where a conversation branched off another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The other one.
    pub conversation: ConversationId,
    /// The last event that both have.
    pub event: EventId,
}

/// How a workspace is made ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum WorkspaceSetup {
    /// A repository is cloned into a folder of the workspace; then its own set-up script and commit hook.
    Repository {
        /// What git is given, without credentials.
        url: String,
        /// The branch; nothing: the repository's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
    },
    /// The workspace becomes an empty repository.
    EmptyRepository,
    /// The workspace is there; its set-up script and commit hook.
    Folder,
}

/// Where the sandbox is. Enough to attach to it again, or to remove it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxLeased {
    /// The runtime that placed it.
    pub runtime: String,
    /// Its id at that runtime.
    pub sandbox_id: SandboxId,
    /// The life of its action server. Found changed: what ran is gone.
    pub boot_id: BootId,
    /// Where the agent works in it, absolute.
    pub working_dir: String,
}

/// The sandbox was removed, or found gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxReleased {
    /// Its id at its runtime.
    pub sandbox_id: SandboxId,
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Steps of the agent.
    Iterations,
    /// What the model's calls cost, in US dollars.
    Budget,
}

/// A limit stopped the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitReached {
    /// What is limited.
    pub limit: Limit,
    /// The value it was reached at.
    pub at: f64,
}

/// The user let the agent go on past a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitExtended {
    /// What is limited.
    pub limit: Limit,
    /// The new value.
    pub to: f64,
}

/// The user changed what the agent may do unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmationChanged {
    /// What holds from now on.
    pub policy: ConfirmationPolicy,
}

/// The user approved an action and those like it, for the rest of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGranted {
    /// Which actions are alike.
    pub scope: ApprovalScope,
    /// The risk of the action that was approved. A riskier one needs an approval of its own.
    pub risk: SecurityRisk,
}

/// The actions that an approval covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalScope {
    /// The same shell text in a session.
    Command {
        /// The text, byte for byte.
        command: String,
    },
    /// The same Python cell.
    Cell {
        /// The code, byte for byte.
        code: String,
    },
    /// Every call of an MCP tool.
    McpTool {
        /// The name under which the tool is offered.
        name: String,
    },
    /// Every action of a kind, such as `edit`.
    Action {
        /// The kind, as on the wire.
        action: String,
    },
}

/// A call to the model failed and is made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRetried {
    /// Which try comes next, from 2.
    pub attempt: u32,
    /// How many there are.
    pub attempts: u32,
    /// How long is waited before it, in seconds.
    pub after: f64,
    /// What went wrong, in a sentence.
    pub reason: String,
}

/// A title was found for the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationTitled {
    /// One short line.
    pub title: String,
}

/// A model has written out the draft of the edit that its agent asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EditDrafted {
    /// What the sandbox is asked for in the draft's place; nothing: the answer was paid for, and is of no use.
    pub edit: Option<EditAction>,
}
