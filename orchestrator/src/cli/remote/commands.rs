//! Commands on conversations of a server.

use std::sync::Arc;

use conversations::ConversationService as _;
use protocol::client_api::v2::{ConversationItem, CreateConversation, ListConversations};
use protocol::{AgentState, ConversationId, EventId, UserCommand};

use super::server::{PAGE_SIZE, RemoteServer};
use super::shown::RemoteConversation;
use crate::cli::follow::{FollowResult, TerminalFollower};
use crate::cli::interrupts::Interrupts;
use crate::cli::print;
use crate::cli::screen::Output;
use crate::exit::Exit;
use crate::terminal_input::PendingInputGuard;

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
    let creating = server.conversations.create(run.request);
    let id = print::with_notice("the server", creating).await?;
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
        let mut conversation = RemoteConversation::follow(server, id, after).await?;
        follower.follow(&mut conversation, &mut interrupts).await
    };
    let url = &server.url;
    let FollowResult { exit, answer } = following.await.inspect_err(|_| {
        print::note(&format!(
            "the conversation may continue; follow it with: glovebox resume {id} --server {url}\n"
        ));
    })?;
    if output == Output::Transcript {
        if matches!(exit, Exit::Finished | Exit::Waiting) {
            print::answer(answer.as_deref().unwrap_or_default())?;
        }
        print::note(&describe_result(server, id, exit).await?);
    }
    Ok(exit)
}

/// Describes the result of a conversation, and how to resume it.
async fn describe_result(
    server: &RemoteServer,
    id: &ConversationId,
    exit: Exit,
) -> anyhow::Result<String> {
    let item = server.conversations.get(id).await?;
    let cost = Some(item.cost).filter(|cost| *cost > 0.0);
    let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let result = match exit {
        Exit::Limit => "stopped at the limit",
        _ => item.status.as_str(),
    };
    let text = format!("\n{result}{cost}\n");
    if exit == Exit::Finished {
        return Ok(text);
    }
    let hint = match item.agent_state {
        Some(AgentState::AwaitingUserInput) => " -t ANSWER",
        Some(AgentState::AwaitingUserConfirmation) => " --confirm, or --reject REASON",
        _ => "",
    };
    Ok(format!(
        "{text}resume with: glovebox resume {id} --server {}{hint}\n",
        server.url
    ))
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
