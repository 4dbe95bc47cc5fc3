//! Shapes of the REST API and the sockets, which V0's clients use too.

pub mod git;
pub mod v2;

mod command;
mod conversation;
mod error;
mod event_page;
mod settings;
mod workspace;

pub use command::CommandReply;
pub use conversation::{
    AgentMessage, ChangeReply, ConversationConfig, ConversationInfo, ConversationPage,
    ConversationReply, ConversationRuntimeStatus, ConversationState, CreateMicroagent, EditorUrl,
    FeedbackReply, NewConversation, StartConversation, Success, TitleChange, TrajectoryExport,
    WebHosts,
};
pub use error::{ErrorBody, ErrorDetail, RequestProblem};
pub use event_page::{EventPage, EventPageQuery};
pub use settings::{
    EmptySecretsStore, GitTokenRequest, GitTokensRequest, NewSecret, SecretInfo, SecretList,
    SecretUpdate, UserSettings, UserSettingsInfo,
};
pub use workspace::{
    ExperimentConfig, FileChangeInfo, FileContent, FileDiff, MicroagentInfo, MicroagentInput,
    MicroagentKind, MicroagentList, RememberPrompt, SkippedFile, UploadReply,
};
