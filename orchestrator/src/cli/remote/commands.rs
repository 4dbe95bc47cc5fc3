//! Commands on conversations of a server.

use std::sync::Arc;
use std::time::Duration;

use conversations::{ConversationService as _, Conversations, ServiceErrorKind};
use protocol::client_api::v2::{ConversationItem, CreateConversation, ListConversations};
use protocol::{AgentState, ConversationId, EventId, UserCommand};
use tokio::time::timeout;

use super::followed_conversation::RemoteConversation;
use super::server::{PAGE_SIZE, RemoteServer};
use crate::cli::follow::{FollowResult, TerminalFollower};
use crate::cli::interrupts::Interrupts;
use crate::cli::print;
use crate::cli::screen::Output;
use crate::exit::Exit;
use crate::terminal_input::PendingInputGuard;

/// Time for the server to describe the result.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A task for a server.
pub(in crate::cli) struct RemoteRun {
    pub(in crate::cli) request: CreateConversation,
    pub(in crate::cli) output: Output,
    /// Whether the command ends once the task is stored.
    pub(in crate::cli) is_detached: bool,
}

/// Starts a conversation, and follows it to its end.
pub(in crate::cli) async fn run(run: RemoteRun, server: RemoteServer) -> anyhow::Result<Exit> {
    let server = Arc::new(server);
    let id = Conversations::new_id();
    let request = CreateConversation {
        id: Some(id.clone()),
        ..run.request
    };
    let creating = server.conversations.create(request);
    let created = print::with_notice("the server", creating).await;
    created.inspect_err(|error| {
        let was_reached = server.conversations.was_reached();
        if was_reached && error.kind == ServiceErrorKind::Unavailable {
            print::note(&format!(
                "the task may have been stored: {}\n",
                follow_hint(&server, &id)
            ));
        }
    })?;
    if run.is_detached {
        print::line(id.as_str())?;
        return Ok(Exit::Finished);
    }
    if run.output == Output::Transcript {
        print::note(&format!("conversation {id} at {}\n", server.url));
    }
    follow(&server, &id, None, run.output).await
}

/// Applies commands to a conversation, and follows it to its end.
pub(in crate::cli) async fn resume(
    server: RemoteServer,
    id: &ConversationId,
    event_count: u64,
    commands: Vec<UserCommand>,
    output: Output,
) -> anyhow::Result<Exit> {
    let server = Arc::new(server);
    for command in commands {
        let applying = server.conversations.apply(id, command.into());
        print::with_notice("the server", applying).await?;
    }
    let after = event_count.checked_sub(1).map(EventId);
    follow(&server, id, after, output).await
}

async fn follow(
    server: &Arc<RemoteServer>,
    id: &ConversationId,
    after: Option<EventId>,
    output: Output,
) -> anyhow::Result<Exit> {
    let _input = PendingInputGuard;
    let mut interrupts = Interrupts::listen()?;
    let follower = TerminalFollower {
        id,
        output,
        network: None,
    };
    let following = async {
        let mut conversation = tokio::select! {
            conversation = RemoteConversation::follow(server, id, after) => conversation?,
            () = interrupts.next() => {
                return Ok(FollowResult { exit: Exit::Interrupted, answer: None });
            }
        };
        follower.follow(&mut conversation, &mut interrupts).await
    };
    let FollowResult { exit, answer } = following
        .await
        .inspect_err(|_| note_continuation(server, id))?;
    if output == Output::Transcript {
        if matches!(exit, Exit::Finished | Exit::Waiting) {
            print::answer(answer.as_deref().unwrap_or_default())?;
        }
        // The exit code is known, and the user may have interrupted because of the connection.
        match timeout(DESCRIBE_TIMEOUT, server.conversations.get(id)).await {
            Ok(Ok(item)) => print::note(&describe_result(&item, &server.url, exit)),
            _ => note_continuation(server, id),
        }
    }
    Ok(exit)
}

fn note_continuation(server: &RemoteServer, id: &ConversationId) {
    let hint = follow_hint(server, id);
    print::note(&format!("the conversation may continue: {hint}\n"));
}

fn follow_hint(server: &RemoteServer, id: &ConversationId) -> String {
    format!(
        "follow it with: glovebox resume {id} --server {}",
        server.url
    )
}

/// Describes the result of a conversation, and how to resume it.
fn describe_result(item: &ConversationItem, url: &str, exit: Exit) -> String {
    let cost = Some(item.cost).filter(|cost| *cost > 0.0);
    let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let result = match exit {
        Exit::Limit => "stopped at the limit",
        _ => item.status.as_str(),
    };
    let text = format!("\n{result}{cost}\n");
    if exit == Exit::Finished {
        return text;
    }
    let hint = match item.agent_state {
        Some(AgentState::AwaitingUserInput) => " -t ANSWER",
        Some(AgentState::AwaitingUserConfirmation) => " --confirm, or --reject REASON",
        _ => "",
    };
    format!(
        "{text}resume with: glovebox resume {} --server {url}{hint}\n",
        item.id
    )
}

/// Lists the conversations that a request selects, in several pages if `limit` is larger than one.
pub(in crate::cli) async fn list(
    server: &RemoteServer,
    mut request: ListConversations,
    limit: Option<usize>,
) -> anyhow::Result<Vec<ConversationItem>> {
    let mut items = Vec::new();
    while limit.is_none_or(|limit| items.len() < limit) {
        let rest = limit.map_or(PAGE_SIZE, |limit| limit - items.len());
        request.limit = rest.clamp(1, PAGE_SIZE);
        let page = server.conversations.list(request.clone()).await?;
        items.extend(page.conversations);
        request.before = page.next;
        if request.before.is_none() {
            break;
        }
    }
    Ok(items)
}
