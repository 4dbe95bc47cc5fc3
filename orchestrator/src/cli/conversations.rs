//! `glovebox conversations`: what the store holds.

mod list;
mod overview;
mod remove;
mod trajectory_file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use engine::clock;
use engine::conversation::{self, State};
use engine::events::EventStore;
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
    Record,
};

pub(super) use trajectory_file::TrajectoryFile;

use super::conversation_id::ConversationChoice;
use super::transcript::Transcript;
use super::{load_config_to_read, print};
use crate::compose::StateDir;
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};
use crate::workspace;

/// How many events are read at once.
const PAGE: usize = 256;

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConversationsCommand {
    /// List conversations, the latest first.
    Ls(list::ListArguments),
    /// Begin a conversation that shares the beginning of another one, and rests there.
    #[command(after_help = "\
The new one has no sandbox yet, and a workspace of its own where the old one had: a copy of it as it is now. A folder
that you chose with -d is shared. Prints the new id; go on with `glovebox resume ID -t TEXT`.")]
    Fork {
        #[command(flatten)]
        conversation: ConversationChoice,
        /// The last event that both have, as `show --json` numbers them; the latest, if not given.
        #[arg(long, value_name = "EVENT")]
        at: Option<u64>,
    },
    /// Show a conversation's transcript.
    Show {
        #[command(flatten)]
        conversation: ConversationChoice,
        /// Print one event a line as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a conversation's trajectory, as `run --save-trajectory` does: V0's events in one JSON array.
    #[command(after_help = "\
On standard output control characters are JSON escapes, which are harmless for a terminal and mean the same.")]
    Export {
        #[command(flatten)]
        conversation: ConversationChoice,
        /// Write it to this file, or into this folder by the conversation's id, instead of standard output.
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove conversations with their sandboxes.
    Rm(remove::RemoveArguments),
}

pub(super) async fn run(command: ConversationsCommand, overrides: &Overrides) -> anyhow::Result<Exit> {
    let ssh_host = match &command {
        ConversationsCommand::Rm(arguments) => arguments.host.clone(),
        _ => None,
    };
    let config = load_config_to_read(&Overrides { ssh_host, ..overrides.clone() })?;
    let state_dir = StateDir::open(&config.state_dir)?;
    let store = match &command {
        ConversationsCommand::Fork { .. } | ConversationsCommand::Rm(_) => {
            state_dir.store(config.durability).await?
        }
        _ => state_dir.store_to_read(config.durability).await?,
    };
    let store = store.as_ref();
    match command {
        ConversationsCommand::Fork { conversation, at } => {
            fork(store, &state_dir, &conversation.find(store).await?, at.map(EventId)).await
        }
        ConversationsCommand::Ls(arguments) => list::run(arguments, store, &state_dir).await,
        ConversationsCommand::Show { conversation, json } => {
            show(store, &conversation.find(store).await?, json).await
        }
        ConversationsCommand::Export { conversation, output } => {
            let id = conversation.find(store).await?;
            match output.filter(|path| path != Path::new("-")) {
                Some(path) => {
                    let file = open_trajectory(&path, &id)?;
                    save_trajectory(store, &id, file, config.saves_screenshots).await?;
                }
                None => print::line(&trajectory(store, &id, config.saves_screenshots).await?)?,
            }
            Ok(Exit::Finished)
        }
        ConversationsCommand::Rm(arguments) => remove::run(arguments, &config, store, &state_dir).await,
    }
}

async fn fork(
    store: &dyn EventStore,
    state_dir: &StateDir,
    from: &ConversationId,
    last: Option<EventId>,
) -> anyhow::Result<Exit> {
    let log = read_all(store, from).await?;
    let Some(end) = log.last() else {
        return Err(UsageError(format!("there is no conversation {from}")).into());
    };
    let last = last.unwrap_or(end.id);
    let Some(mut events) = conversation::fork(&log, from, last, &clock::now()) else {
        let text = format!("conversation {from} has no event {last}; its last one is {}", end.id);
        return Err(UsageError(text).into());
    };
    let id = super::run::new_conversation_id()?;
    if let Some(EventBody::Record(Record::ConversationStarted(started))) =
        events.first_mut().map(|event| &mut event.body)
        && let Some(own) = state_dir.workspace_in_log(from, started.workspace.as_deref())
    {
        workspace::check_not_replaced("workspace", &own)?;
        let copy = state_dir.workspace(&id)?;
        if own.exists() {
            copy_tree(&own, &copy).await?;
        }
        started.workspace = Some(copy.to_string_lossy().into_owned());
    }
    store.append(&id, &events).await?;
    print::line(id.as_str())?;
    Ok(Exit::Finished)
}

/// With owners, modes and links, as only the system's own program copies them.
async fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copying = || format!("copying the workspace {} to {}", from.display(), to.display());
    let mut copy = tokio::process::Command::new("cp");
    copy.arg("-a").arg("--").arg(from.join(".")).arg(to).kill_on_drop(true);
    let copied = copy.output().await.with_context(copying)?;
    if !copied.status.success() {
        anyhow::bail!("{}: {}", copying(), String::from_utf8_lossy(&copied.stderr).trim_end());
    }
    Ok(())
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
            print::text(&transcript.event(event))?;
        }
    }
    Ok(Exit::Finished)
}

/// What V0 calls a trajectory, as its file: the log without the records that only we keep, and without pictures of pages
/// unless they are wanted.
async fn trajectory(
    store: &dyn EventStore,
    id: &ConversationId,
    with_screenshots: bool,
) -> anyhow::Result<String> {
    let mut events = read_all(store, id).await?;
    events.retain(|event| !matches!(event.body, EventBody::Record(_)));
    merge_system_actions(&mut events);
    for event in &mut events {
        if let EventBody::Observation(Observation { kind: ObservationKind::Browse(page), .. }) =
            &mut event.body
            && !with_screenshots
        {
            (page.screenshot, page.set_of_marks) = (String::new(), String::new());
        }
    }
    Ok(serde_json::to_string_pretty(&events)?)
}

/// V0 writes one `system` action an agent, with all of its tools. Ours writes another whenever tool servers offer other
/// tools: the latest offer joins the agent's own tools.
fn merge_system_actions(events: &mut Vec<Event>) {
    let mut offers = BTreeMap::new();
    events.retain(|event| match &event.body {
        EventBody::Action(Action::System(system)) if event.source == EventSource::Environment => {
            offers.insert(event.delegation, system.tools.clone().unwrap_or_default());
            false
        }
        _ => true,
    });
    for event in events {
        if let EventBody::Action(Action::System(system)) = &mut event.body
            && let Some(tools) = offers.remove(&event.delegation)
        {
            system.tools.get_or_insert_default().extend(tools);
        }
    }
}

/// The configured file for the trajectory. Fails where it could not be saved at the end.
pub(super) fn prepare_trajectory(
    config: &Config,
    id: &ConversationId,
) -> anyhow::Result<Option<TrajectoryFile>> {
    config.save_trajectory.as_deref().map(|path| open_trajectory(path, id)).transpose()
}

fn open_trajectory(path: &Path, id: &ConversationId) -> anyhow::Result<TrajectoryFile> {
    TrajectoryFile::open(path, id)
        .map_err(|error| UsageError(format!("saving the trajectory to {}: {error}", path.display())).into())
}

/// Writes a trajectory to its file.
pub(super) async fn save_trajectory(
    store: &dyn EventStore,
    id: &ConversationId,
    file: TrajectoryFile,
    with_screenshots: bool,
) -> anyhow::Result<()> {
    let text = trajectory(store, id, with_screenshots).await? + "\n";
    let failed = format!("saving the trajectory to {}", file.path().display());
    file.write(&text).context(failed)
}

/// Leaves no empty workspace behind, once the conversation has no sandbox. For whoever holds its lock.
pub(super) async fn remove_empty_workspace(
    state_dir: &StateDir,
    store: &dyn EventStore,
    id: &ConversationId,
) {
    if !state_dir.has_empty_workspace(id) {
        return;
    }
    let has_sandbox = read_all(store, id).await.map(|log| State::fold(&log).lease.is_some());
    if has_sandbox.is_ok_and(|has_sandbox| !has_sandbox) {
        state_dir.remove_empty_workspace(id);
    }
}

/// How a conversation ended, what it took, and how to go on.
pub(super) fn closing_words(id: &ConversationId, state: &State, exit: Exit) -> String {
    let usage = &state.metrics.accumulated_token_usage;
    let steps = if state.iterations == 1 { "step" } else { "steps" };
    let ended = match (exit, state.agent_state) {
        // It was left before it could stop: `running` would read as if it were.
        (Exit::Interrupted, agent_state) if agent_state != AgentState::Stopped => "interrupted",
        (_, agent_state) => agent_state.as_str(),
    };
    // Nothing is what a model without a known price has cost.
    let cost = Some(state.metrics.accumulated_cost).filter(|cost| *cost > 0.0);
    let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let mut text = format!(
        "\n{ended}: {} {steps}, {} tokens in, {} out{cost}\n",
        state.iterations, usage.prompt_tokens, usage.completion_tokens
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

pub(super) async fn read_all(store: &dyn EventStore, id: &ConversationId) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let page = store.read(id, EventId(events.len() as u64), PAGE).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_holds_one_system_action_an_agent() {
        let at = protocol::Timestamp::try_from("2025-10-03T12:34:56".to_owned()).unwrap();
        let system = |id, source, delegation, tools: &[&str]| {
            let tools = tools.iter().map(|tool| serde_json::json!(tool)).collect();
            let system = protocol::action::SystemAction {
                content: String::new(),
                tools: Some(tools),
                openhands_version: None,
                agent_class: None,
            };
            let mut event = Event::new(EventId(id), at.clone(), source, Action::from(system));
            event.delegation = delegation;
            event
        };
        let delegation = Some(EventId(3));
        let mut events = vec![
            system(0, EventSource::Agent, None, &["own"]),
            system(1, EventSource::Environment, None, &["first"]),
            system(2, EventSource::Environment, None, &["latest"]),
            system(4, EventSource::Agent, delegation, &["delegate's"]),
            system(5, EventSource::Environment, delegation, &["other"]),
        ];
        merge_system_actions(&mut events);
        let expected = [
            system(0, EventSource::Agent, None, &["own", "latest"]),
            system(4, EventSource::Agent, delegation, &["delegate's", "other"]),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn what_was_left_before_it_could_stop_is_not_called_running() {
        let id: ConversationId = "one".parse().unwrap();
        let said = |agent_state, exit| {
            let state = State { agent_state, ..State::default() };
            closing_words(&id, &state, exit).trim_start().replace(": 0 steps, 0 tokens in, 0 out\n", "; ")
        };
        let go_on = "go on with: glovebox resume one";
        assert_eq!(said(AgentState::Running, Exit::Interrupted), format!("interrupted; {go_on}\n"));
        assert_eq!(said(AgentState::Stopped, Exit::Interrupted), format!("stopped; {go_on}\n"));
        assert_eq!(said(AgentState::Finished, Exit::Finished), "finished; ");
        let asks = said(AgentState::AwaitingUserInput, Exit::Waiting);
        assert_eq!(asks, format!("awaiting_user_input; {go_on} -t ANSWER\n"));
    }
}
