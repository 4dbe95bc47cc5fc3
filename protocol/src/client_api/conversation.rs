//! Conversations, as clients see them.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::git::{GitProvider, SuggestedTask};
use crate::record::{ConversationTrigger, FeedbackGiven};
use crate::{ConversationId, Event, Timestamp};

/// A request for a new conversation.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewConversation {
    /// Repository to clone into the workspace: its full name at the provider, or a URL.
    pub repository: Option<String>,
    /// The provider of the repository. `None` for the only one that the user has a token for, else
    /// GitHub.
    pub git_provider: Option<GitProvider>,
    /// The branch. `None` for the repository's default branch.
    pub selected_branch: Option<String>,
    /// The first message of the user. `None` to send it later.
    pub initial_user_msg: Option<String>,
    /// Images of the first message, as URLs or data URLs.
    pub image_urls: Option<Vec<String>>,
    /// A saved trajectory to replay, as JSON text.
    pub replay_json: Option<String>,
    /// A task of `/api/user/suggested-tasks`. It precedes the first message, and names the
    /// repository if `repository` does not.
    pub suggested_task: Option<SuggestedTask>,
    /// The repository that a microagent is to be written for. The first message says which.
    pub create_microagent: Option<CreateMicroagent>,
    /// Instructions for the agent that precede the first message.
    pub conversation_instructions: Option<String>,
    /// Tool servers for this conversation. Not supported.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub mcp_config: Option<Value>,
}

/// A request to write a microagent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateMicroagent {
    /// The repository, unless the request names another.
    pub repo: String,
    /// Its provider.
    #[serde(default)]
    pub git_provider: Option<GitProvider>,
    /// Title of the conversation. `None` to generate one.
    #[serde(default)]
    pub title: Option<String>,
}

/// The response to a request that starts or stops a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
        Self {
            status: "ok",
            conversation_id,
            message: None,
            conversation_status,
        }
    }
}

/// Whether a conversation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// The conversation failed, and has no sandbox.
    #[serde(rename = "STATUS$ERROR")]
    Error,
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConversationInfo {
    /// Its id.
    pub conversation_id: ConversationId,
    /// Its title, else `Conversation` and the start of its id.
    pub title: String,
    /// When its last event was appended, in UTC, with the zone `Z`.
    pub last_updated_at: Timestamp,
    /// Whether it runs.
    pub status: ConversationState,
    /// State of its sandbox. `None` if it does not run.
    pub runtime_status: Option<ConversationRuntimeStatus>,
    /// Repository in its workspace: its full name at a known provider, else its URL.
    pub selected_repository: Option<String>,
    /// Branch of the repository: the one that is checked out if this is known, else the one of the
    /// request.
    pub selected_branch: Option<String>,
    /// Provider of the repository.
    pub git_provider: Option<GitProvider>,
    /// What created it.
    pub trigger: Option<ConversationTrigger>,
    /// Number of open streams and sockets.
    pub num_connections: usize,
    /// URL of its own server. `None`: this server serves it.
    pub url: Option<String>,
    /// Key of its own server. `None`: that of this server.
    pub session_api_key: Option<String>,
    /// When it was created, in UTC, with the zone `Z`.
    pub created_at: Timestamp,
    /// Numbers of its pull requests. Always empty: V0's resolvers fill it.
    pub pr_number: Vec<u64>,
    /// Always `V0`.
    pub conversation_version: &'static str,
    /// Always empty.
    pub sub_conversation_ids: Vec<String>,
}

/// Some conversations, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConversationPage {
    /// The conversations.
    pub results: Vec<ConversationInfo>,
    /// The `page_id` of the next page. `None` if this is the last one.
    pub next_page_id: Option<String>,
}

/// A new title.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TitleChange {
    /// The title.
    pub title: String,
}

/// A request to run a stored conversation.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StartConversation {
    /// Git providers whose tokens the user has set. Ignored: the server knows them.
    pub providers_set: Option<Vec<String>>,
}

/// A message of the user.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentMessage {
    /// The text.
    pub message: String,
}

/// The response to a request that is done once it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Success {
    /// Always `true`.
    success: bool,
}

impl Success {
    /// The response.
    pub const REPLY: Self = Self { success: true };
}

/// The response to a change of settings or secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeReply {
    /// What was changed, for people.
    pub message: &'static str,
}

/// The response to `POST …/submit-feedback`: the feedback, and the fields of V0's service that its
/// page reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FeedbackReply {
    /// The stored feedback.
    #[serde(flatten)]
    feedback: FeedbackGiven,
    /// Always 200.
    #[serde(rename = "statusCode")]
    status_code: u16,
    /// What the page shows.
    body: FeedbackReceipt,
}

/// What V0's page shows after feedback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct FeedbackReceipt {
    /// Where the feedback is, for people.
    message: &'static str,
    /// Always empty: the feedback is not shared.
    feedback_id: &'static str,
    /// Always empty: the feedback is not shared.
    password: &'static str,
}

impl FeedbackReply {
    /// Creates the response to feedback that is stored.
    pub fn new(feedback: FeedbackGiven) -> Self {
        let message = "The feedback is stored in the log of the conversation. It is not shared: the link and the password are \
                       empty.";
        Self {
            feedback,
            status_code: 200,
            body: FeedbackReceipt {
                message,
                feedback_id: "",
                password: "",
            },
        }
    }
}

/// The response to `GET …/config`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConversationConfig {
    /// Id of the sandbox. `None` while there is none.
    pub runtime_id: Option<String>,
    /// The conversation.
    pub session_id: ConversationId,
}

/// The response to `GET …/web-hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebHosts {
    /// Port in the sandbox, by the URL that leads to it. V0's page shows the first that answers.
    #[serde(serialize_with = "serialize_in_order")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, u16>))]
    pub hosts: Vec<(String, u16)>,
}

fn serialize_in_order<S: Serializer>(
    hosts: &[(String, u16)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(hosts.iter().map(|(url, port)| (url, port)))
}

/// The response to `GET …/vscode-url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditorUrl {
    /// Always `None`: the images have no editor.
    pub vscode_url: Option<String>,
}

/// The response to `GET …/trajectory`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrajectoryExport {
    /// The events, without screenshots.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub trajectory: Vec<Event>,
}
