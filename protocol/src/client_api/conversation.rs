//! Conversations, as clients see them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ConversationId, Timestamp};

/// A request for a new conversation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewConversation {
    /// Repository to clone into the workspace: `OWNER/NAME`.
    pub repository: Option<String>,
    /// The provider of the repository.
    pub git_provider: Option<String>,
    /// The branch. `None` for the repository's default branch.
    pub selected_branch: Option<String>,
    /// The first message of the user. `None` to send it later.
    pub initial_user_msg: Option<String>,
    /// Images of the first message, as URLs or data URLs.
    pub image_urls: Option<Vec<String>>,
    /// A saved trajectory to replay, as JSON text.
    pub replay_json: Option<String>,
    /// A task that V0 suggests for a repository. Not supported.
    pub suggested_task: Option<Value>,
    /// A request to write a microagent. Not supported.
    pub create_microagent: Option<Value>,
    /// Instructions for the agent that precede the first message.
    pub conversation_instructions: Option<String>,
    /// Tool servers for this conversation. Not supported.
    pub mcp_config: Option<Value>,
}

/// The response to a request that starts or stops a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConversationReply {
    /// Always `ok`.
    status: &'static str,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Always `None`.
    message: Option<String>,
    /// Its state after the request.
    pub conversation_status: ConversationState,
}

impl ConversationReply {
    /// Creates the response of a request that succeeded.
    pub fn new(conversation_id: ConversationId, conversation_status: ConversationState) -> Self {
        Self { status: "ok", conversation_id, message: None, conversation_status }
    }
}

/// Whether a conversation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ConversationState {
    /// It runs, and has no sandbox yet.
    Starting,
    /// It runs.
    Running,
    /// It does not run.
    Stopped,
    /// It cannot be resumed.
    Archived,
    /// Its agent failed.
    Error,
}

/// State of a conversation's sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConversationRuntimeStatus {
    /// The sandbox is being created.
    #[serde(rename = "STATUS$STARTING_RUNTIME")]
    StartingRuntime,
    /// The workspace is being set up.
    #[serde(rename = "STATUS$SETTING_UP_WORKSPACE")]
    SettingUpWorkspace,
    /// The sandbox is ready.
    #[serde(rename = "STATUS$READY")]
    Ready,
    /// The conversation failed.
    #[serde(rename = "STATUS$ERROR")]
    Error,
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConversationInfo {
    /// Its id.
    pub conversation_id: ConversationId,
    /// Its title; empty if it has none.
    pub title: String,
    /// When its last event was appended, in UTC.
    pub last_updated_at: Timestamp,
    /// Whether it runs.
    pub status: ConversationState,
    /// State of its sandbox. `None` if it does not run.
    pub runtime_status: Option<ConversationRuntimeStatus>,
    /// Repository in its workspace.
    pub selected_repository: Option<String>,
    /// Branch of the repository.
    pub selected_branch: Option<String>,
    /// Provider of the repository.
    pub git_provider: Option<String>,
    /// What created it.
    pub trigger: Option<String>,
    /// Number of open streams and sockets.
    pub num_connections: usize,
    /// URL of its own server. `None`: this server serves it.
    pub url: Option<String>,
    /// Key of its own server. `None`: that of this server.
    pub session_api_key: Option<String>,
    /// When it was created, in UTC.
    pub created_at: Timestamp,
    /// Numbers of its pull requests.
    pub pr_number: Vec<u64>,
    /// Always `V0`.
    pub conversation_version: &'static str,
    /// Always empty.
    pub sub_conversation_ids: Vec<String>,
}

/// Some conversations, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConversationPage {
    /// The conversations.
    pub results: Vec<ConversationInfo>,
    /// The `page_id` of the next page. `None` if this is the last one.
    pub next_page_id: Option<String>,
}

/// A new title.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TitleChange {
    /// The title.
    pub title: String,
}

/// A request to run a stored conversation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StartConversation {
    /// Git providers whose tokens the user has set. Ignored: the server knows them.
    pub providers_set: Option<Vec<String>>,
}

/// A message of the user.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentMessage {
    /// The text.
    pub message: String,
}
