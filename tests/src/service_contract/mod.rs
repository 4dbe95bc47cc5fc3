//! The contract of conversation services, as cases that run in process and over HTTP.
//!
//! The agent asks for a name, and finishes at each message that follows. `service_contract!`
//! generates a test per case.

pub mod commands;
pub mod files;
pub mod follow;
pub mod git;
pub mod in_process;
pub mod lifecycle;
pub mod list;
pub mod profile;
pub mod remote;
pub mod sandbox;

use std::sync::Arc;

use async_trait::async_trait;
use conversations::{
    ConversationService, ProfileService, SandboxService, ServiceError, ServiceErrorKind, Updates,
    WorkspaceService,
};
use futures_util::StreamExt as _;
use protocol::action::MessageAction;
use protocol::client_api::v2::CreateConversation;
use protocol::update::{StreamMessage, WaitState};
use protocol::{
    AgentState, CommandRequest, ConversationId, ConversationUpdate, Event, UserCommand,
};
use tokio::time::timeout;

use crate::glovebox::TEST_TIMEOUT;

/// A kind of service under test, with its own empty data.
#[async_trait]
pub trait ServiceBackend: Send + Sync {
    /// Returns the service of a user: `ada` or `ben`. `None` for the operator.
    fn service(&self, user: Option<&str>) -> Arc<dyn ConversationService>;

    /// Returns the service of the same user for workspaces.
    fn workspaces(&self, user: Option<&str>) -> Arc<dyn WorkspaceService>;

    /// Returns the service of the same user for sandboxes.
    fn sandboxes(&self, user: Option<&str>) -> Arc<dyn SandboxService>;

    /// Returns the service of the same user for settings and secrets.
    fn profile(&self, user: Option<&str>) -> Arc<dyn ProfileService>;

    /// Disturbs the service, if it can be: cuts its connections.
    fn disturb(&self) {}
}

/// Generates a test for every case of the contract on `$backend`. No case can be skipped.
#[macro_export]
macro_rules! service_contract {
    ($backend:expr) => {
        $crate::service_contract!($backend;
            lifecycle::conversation_is_created_followed_and_deleted,
            lifecycle::creation_is_repeated_with_its_id,
            lifecycle::fork_has_the_events_up_to_its_last,
            lifecycle::conversations_of_others_are_like_none,
            list::pages_have_each_conversation_once,
            list::invalid_filters_are_rejected,
            commands::command_with_an_id_is_applied_once,
            commands::chosen_model_is_recorded_once,
            commands::commands_are_rejected_when_they_do_not_fit,
            commands::only_the_operator_grants_limits,
            follow::event_pages_and_streams_have_the_same_events,
            follow::readers_do_not_delay_each_other,
            follow::stream_continues_when_the_conversation_is_resumed,
            profile::settings_are_changed_one_by_one,
            profile::secrets_are_stored_by_name,
        );
    };
    ($backend:expr; $($module:ident::$case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let backend = $backend;
            $crate::service_contract::$module::$case(&backend).await;
        })*
    };
}

/// Generates a test for every case of the contract for workspaces, on a `$backend` whose sandboxes
/// have files.
#[macro_export]
macro_rules! workspace_contract {
    ($backend:expr) => {
        $crate::service_contract!($backend;
            files::files_are_written_read_and_listed,
            files::files_are_moved_and_removed,
            files::archive_has_the_files_of_a_folder,
            files::files_of_others_are_not_reached,
            git::changes_are_those_since_a_base,
            sandbox::sandbox_of_a_running_conversation_is_described,
        );
    };
}

/// Returns a request for a conversation with a first message.
pub fn greeting() -> CreateConversation {
    CreateConversation {
        message: Some(MessageAction {
            content: "Greet me.".to_owned(),
            ..MessageAction::default()
        }),
        ..CreateConversation::default()
    }
}

/// Creates a conversation, and waits until its agent has asked.
pub async fn asked(service: &dyn ConversationService) -> ConversationId {
    let id = service.create(greeting()).await.unwrap();
    let mut updates = service.follow(&id, None).await.unwrap();
    wait_for(&mut updates, AgentState::AwaitingUserInput).await;
    id
}

/// Returns a message with the id of its command.
pub fn message(id: &str, content: &str) -> CommandRequest {
    CommandRequest {
        id: Some(id.parse().unwrap()),
        command: UserCommand::message(content),
    }
}

/// Returns the next message of a stream. Panics if none arrives in time.
pub async fn next(
    updates: &mut Updates,
) -> Option<Result<StreamMessage<Arc<Event>>, ServiceError>> {
    let next = timeout(TEST_TIMEOUT, updates.next()).await;
    next.expect("the stream continues")
}

/// Reads a stream until the conversation waits in a state. Returns the events, and how it
/// waits.
pub async fn wait_for(updates: &mut Updates, state: AgentState) -> (Vec<Arc<Event>>, WaitState) {
    let mut events = Vec::new();
    loop {
        match next(updates).await.unwrap().unwrap().update {
            ConversationUpdate::Event(event) => events.push(event),
            ConversationUpdate::Waiting(waiting)
                if waiting.agent_state == state && waiting.is_idle =>
            {
                return (events, waiting);
            }
            _ => {}
        }
    }
}

/// Returns the kind of a result's error. Panics if it has none.
pub fn kind<T>(result: Result<T, ServiceError>) -> ServiceErrorKind {
    result.err().expect("an error").kind
}
