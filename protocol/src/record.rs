//! Glovebox's own events: the parts of a conversation's state for which V0 has no event.
//!
//! They are stored and read like V0's, under the key `record`. V0's routes and sockets do not serve
//! them.

use serde::{Deserialize, Serialize};

use crate::action::EditAction;
use crate::client_api::git::GitProvider;
use crate::ids::{BootId, ConversationId, EventId, SandboxId, UserId};
use crate::kinds::kinds;
use crate::risk::{ConfirmationPolicy, SecurityRisk};

kinds! {
    /// Glovebox's own events.
    pub enum Record, wire key "record", fields under "args" {
        /// A conversation started; always the first event of a log.
        "conversation_started" => ConversationStarted(ConversationStarted),
        /// A sandbox was leased for this conversation.
        "sandbox_leased" => SandboxLeased(SandboxLeased),
        /// The sandbox was removed, or no longer exists.
        "sandbox_released" => SandboxReleased(SandboxReleased),
        /// A limit stopped the agent.
        "limit_reached" => LimitReached(LimitReached),
        /// The user raised a limit so that the agent can continue.
        "limit_extended" => LimitExtended(LimitExtended),
        /// The user changed which actions need confirmation.
        "confirmation_changed" => ConfirmationChanged(ConfirmationChanged),
        /// The user chose another model.
        "model_changed" => ModelChanged(ModelChanged),
        /// The user approved an action and similar ones for the rest of the conversation.
        "approval_granted" => ApprovalGranted(ApprovalGranted),
        /// A call to the model failed and will be retried.
        "model_retried" => ModelRetried(ModelRetried),
        /// The conversation got a title.
        "conversation_titled" => ConversationTitled(ConversationTitled),
        /// A model turned the draft of an edit into an edit.
        "edit_drafted" => EditDrafted(EditDrafted),
        /// The user rated the conversation.
        "feedback_given" => FeedbackGiven(FeedbackGiven),
    }
}

/// The settings of a conversation, so that it can continue after a restart. Holds no secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationStarted {
    /// The agent's name.
    pub agent: String,
    /// The model's configured name.
    pub model: String,
    /// Where the model's name is from. `None` for the command line, and in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_source: Option<ModelSource>,
    /// Maximum number of steps.
    pub max_iterations: u32,
    /// Maximum cost of model calls, in US dollars. `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_budget: Option<f64>,
    /// Which actions need confirmation. Older logs lack it: none.
    #[serde(default, skip_serializing_if = "ConfirmationPolicy::is_never")]
    pub confirmation: ConfirmationPolicy,
    /// The runtime's name: `docker`, `local`, …
    pub runtime: String,
    /// The host of the runtime `ssh`, as the user named it. `None` for other runtimes, and in older
    /// logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The image, for runtimes that use one.
    pub image: Option<String>,
    /// The folder of the host that is the workspace. `None` for a new one.
    pub workspace: Option<String>,
    /// The network of its sandboxes: `none`, `host`, or the name of one of the container engine's.
    /// `None` in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// How the workspace of each new sandbox is set up before the agent's first step. `None` in
    /// older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<WorkspaceSetup>,
    /// Whether a step fails instead of truncating a history that exceeds the model's context
    /// window. Older logs lack it: no.
    #[serde(
        rename = "keeps_whole_history",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub history_truncation_disabled: bool,
    /// Whether an agent that repeats itself is not stopped. Older logs lack it: no.
    #[serde(
        rename = "lets_loops_be",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub stuck_detection_disabled: bool,
    /// The conversation that this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The user of a server who owns it. `None` if it is the operator's, as those of the command
    /// line are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserId>,
    /// Where the repository of the setup is hosted. `None` if the user did not choose it by its
    /// provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<GitProvider>,
    /// What created it. `None` for the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<ConversationTrigger>,
}

/// Where the name of a conversation's model is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSource {
    /// The server's configuration.
    Configuration,
    /// The settings of the user.
    User,
    /// The user's choice for this conversation.
    Conversation,
}

/// What created a conversation, with V0's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConversationTrigger {
    /// A resolver of issues.
    Resolver,
    /// A user of the web page.
    #[default]
    Gui,
    /// A suggested task.
    SuggestedTask,
    /// A client with an API key as a bearer token.
    #[serde(rename = "openhands_api")]
    Api,
    /// A message in Slack.
    Slack,
    /// A request to write a microagent.
    MicroagentManagement,
    /// An issue of Jira Cloud.
    Jira,
    /// An issue of Jira Data Center.
    JiraDc,
    /// An issue of Linear.
    Linear,
    /// A comment at Bitbucket.
    Bitbucket,
}

impl ConversationTrigger {
    /// Returns V0's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolver => "resolver",
            Self::Gui => "gui",
            Self::SuggestedTask => "suggested_task",
            Self::Api => "openhands_api",
            Self::Slack => "slack",
            Self::MicroagentManagement => "microagent_management",
            Self::Jira => "jira",
            Self::JiraDc => "jira_dc",
            Self::Linear => "linear",
            Self::Bitbucket => "bitbucket",
        }
    }
}

/// The point at which a conversation was forked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The original conversation.
    pub conversation: ConversationId,
    /// The last event that both logs share.
    pub event: EventId,
}

/// How a workspace is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum WorkspaceSetup {
    /// A repository is cloned into a folder of the workspace. Then its setup script runs and its
    /// commit hook is installed.
    Repository {
        /// The URL passed to git, without credentials.
        url: String,
        /// The branch. `None` for the repository's default branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
    },
    /// An empty repository is initialized in the workspace.
    EmptyRepository,
    /// The workspace exists. Its setup script runs and its commit hook is installed.
    Folder,
}

/// A sandbox's identity: enough to re-attach to it, or to remove it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxLeased {
    /// The runtime that created it.
    pub runtime: String,
    /// Its id within that runtime.
    pub sandbox_id: SandboxId,
    /// The boot id of its action server. If it has changed, everything that ran is lost.
    pub boot_id: BootId,
    /// The agent's working directory in it; absolute.
    pub working_dir: String,
}

/// The sandbox was removed, or no longer exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxReleased {
    /// Its id within its runtime.
    pub sandbox_id: SandboxId,
}

/// A quantity that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The number of steps.
    Iterations,
    /// The cost of model calls, in US dollars.
    Budget,
}

/// A limit stopped the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitReached {
    /// The limit that was reached.
    pub limit: Limit,
    /// The value at which it was reached.
    pub at: f64,
}

/// The user raised a limit so that the agent can continue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitExtended {
    /// The limit that was raised.
    pub limit: Limit,
    /// The new value.
    pub to: f64,
}

/// The user changed which actions need confirmation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmationChanged {
    /// The new policy.
    pub policy: ConfirmationPolicy,
}

/// The user chose another model, which answers from the next step on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChanged {
    /// The model's configured name.
    pub model: String,
}

/// The user approved an action and similar ones for the rest of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGranted {
    /// Which actions the approval covers.
    pub scope: ApprovalScope,
    /// The risk of the approved action. Actions of a higher risk need an approval of their own.
    pub risk: SecurityRisk,
}

/// The set of actions that an approval covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalScope {
    /// The same shell command.
    Command {
        /// The command, byte for byte.
        command: String,
    },
    /// The same Python cell.
    Cell {
        /// The code, byte for byte.
        code: String,
    },
    /// Every call of an MCP tool.
    McpTool {
        /// The name under which the tool is offered to the model.
        name: String,
    },
    /// Every action of a kind, such as `edit`.
    Action {
        /// The wire name of the kind.
        action: String,
    },
}

/// A call to the model failed and will be retried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRetried {
    /// The number of the next attempt, from 2.
    pub attempt: u32,
    /// Maximum number of attempts.
    pub attempts: u32,
    /// The backoff before the next attempt, in seconds.
    pub after: f64,
    /// The cause of the failure, in a sentence.
    pub reason: String,
}

/// The conversation got a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationTitled {
    /// The title: one short line.
    pub title: String,
}

/// The user's opinion of the conversation, with V0's fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FeedbackGiven {
    /// The version of the client.
    #[serde(default)]
    pub version: String,
    /// Address of the user; may be empty.
    #[serde(default)]
    pub email: String,
    /// Whether the user was satisfied.
    pub polarity: FeedbackPolarity,
    /// Who may read the conversation. This server shares it with no one.
    #[serde(default)]
    pub permissions: FeedbackPermissions,
}

/// Whether a user was satisfied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FeedbackPolarity {
    /// The user was.
    Positive,
    /// The user was not.
    Negative,
}

/// Who may read a conversation, according to its user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FeedbackPermissions {
    /// Everyone.
    Public,
    /// The developers of the agent.
    #[default]
    Private,
}

/// A model turned the draft that its agent wrote into an edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EditDrafted {
    /// The edit that the sandbox performs in place of the draft. `None` if the model's response was
    /// unusable; its cost still counts.
    pub edit: Option<EditAction>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn trigger_name_is_its_json() {
        use ConversationTrigger::*;
        let all = [
            Resolver,
            Gui,
            SuggestedTask,
            Api,
            Slack,
            MicroagentManagement,
            Jira,
            JiraDc,
            Linear,
            Bitbucket,
        ];
        for trigger in all {
            assert_eq!(json!(trigger), json!(trigger.as_str()));
            assert_eq!(
                serde_json::from_value::<ConversationTrigger>(json!(trigger.as_str())).unwrap(),
                trigger
            );
        }
    }
}
