//! `glovebox conversations`: what the store holds.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use engine::conversation::State;
use engine::events::EventStore;
use protocol::{AgentState, Body, ConversationId, Event, EventId};
use serde_json::json;

use super::transcript::Transcript;
use super::{load_config, print};
use crate::compose::StateDir;
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};

/// How many events are read at once.
const PAGE: usize = 256;

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConversationsCommand {
    /// List conversations, the latest first.
    Ls {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show a conversation's transcript.
    Show {
        /// The conversation.
        id: ConversationId,
        /// Print one event a line as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) async fn run(command: ConversationsCommand, overrides: &Overrides) -> anyhow::Result<Exit> {
    let config = load_config(overrides)?;
    let store = StateDir::open(&config.state_dir)?.store().await?;
    match command {
        ConversationsCommand::Ls { json } => list(store.as_ref(), json).await,
        ConversationsCommand::Show { id, json } => show(store.as_ref(), &id, json).await,
    }
}

async fn list(store: &dyn EventStore, as_json: bool) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    for summary in store.conversations().await? {
        // One damaged log must not hide the others.
        let (agent_state, title) = match read_all(store, &summary.id).await {
            Ok(events) => (State::fold(&events).agent_state.as_str(), title(&events)),
            Err(error) => ("damaged", error.to_string()),
        };
        rows.push((summary, agent_state, title));
    }
    if as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(summary, agent_state, title)| {
                json!({
                    "conversation_id": summary.id,
                    "agent_state": agent_state,
                    "events": summary.events,
                    "created_at": summary.created_at,
                    "last_updated_at": summary.last_updated_at,
                    "title": title,
                })
            })
            .collect();
        print::line(&serde_json::to_string(&rows)?)?;
    } else {
        for (summary, agent_state, title) in rows {
            let updated = summary.last_updated_at.as_str().get(..16).unwrap_or_default().replace('T', " ");
            print::line(&format!("{}  {updated}  {agent_state:<19}  {title}", summary.id))?;
        }
    }
    Ok(Exit::Finished)
}

async fn show(store: &dyn EventStore, id: &ConversationId, as_json: bool) -> anyhow::Result<Exit> {
    let events = read_all(store, id).await?;
    if events.is_empty() {
        return Err(UsageError(format!("there is no conversation {id}")).into());
    }
    let mut transcript = Transcript::new();
    for event in &events {
        if as_json {
            print::line(&serde_json::to_string(event)?)?;
        } else {
            print::bytes(transcript.event(event).as_bytes())?;
        }
    }
    Ok(Exit::Finished)
}

/// Writes what V0 calls a trajectory: the log without the records that only we keep.
pub(super) async fn save_trajectory(
    store: &dyn EventStore,
    id: &ConversationId,
    path: &Path,
) -> anyhow::Result<()> {
    let mut events = read_all(store, id).await?;
    events.retain(|event| !matches!(event.body, Body::Record(_)));
    let path = if path.is_dir() { path.join(format!("{id}.json")) } else { PathBuf::from(path) };
    let saved = serde_json::to_vec_pretty(&events).map_err(anyhow::Error::from);
    saved
        .and_then(|text| Ok(std::fs::write(&path, text)?))
        .with_context(|| format!("saving the trajectory to {}", path.display()))
}

/// How a conversation ended, what it took, and how to go on.
pub(super) fn closing_words(id: &ConversationId, state: &State, exit: Exit) -> String {
    let usage = &state.metrics.accumulated_token_usage;
    let steps = if state.iterations == 1 { "step" } else { "steps" };
    let mut text = format!(
        "\n{}: {} {steps}, {} tokens in, {} out, ${:.4}\n",
        state.agent_state,
        state.iterations,
        usage.prompt_tokens,
        usage.completion_tokens,
        state.metrics.accumulated_cost
    );
    let word = match (exit, state.agent_state) {
        (Exit::Finished, _) => return text,
        (_, AgentState::AwaitingUserInput) => " -t ANSWER",
        (_, AgentState::AwaitingUserConfirmation) => " --confirm, or --reject REASON",
        _ => "",
    };
    text.push_str(&format!("go on with: glovebox resume {id}{word}\n"));
    text
}

async fn read_all(store: &dyn EventStore, id: &ConversationId) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let page = store.read(id, EventId(events.len() as u64), PAGE).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}

/// The first line that the user said.
fn title(events: &[Event]) -> String {
    const LONGEST: usize = 60;
    let said = events.iter().find_map(|event| match &event.body {
        Body::Action(protocol::Action::Message(message)) => Some(message.content.as_str()),
        _ => None,
    });
    let line = print::for_terminal(said.unwrap_or_default().trim());
    let line = line.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.to_owned(),
    }
}
