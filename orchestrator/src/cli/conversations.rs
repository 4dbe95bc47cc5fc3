//! `glovebox conversations`: what the store holds.

mod list;
mod remove;
mod trajectory_file;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use conversations::Conversations;
use engine::conversation::State;
use protocol::{AgentState, ConversationId, EventId};

pub(super) use trajectory_file::TrajectoryFile;

use super::conversation_id::ConversationChoice;
use super::transcript::Transcript;
use super::{load_config_to_read, print};
use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};

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
    let conversations = compose::conversations(store, &state_dir);
    match command {
        ConversationsCommand::Fork { conversation, at } => {
            let id = conversations.find(&conversation.selector()).await?;
            print::line(conversations.fork(&id, at.map(EventId)).await?.as_str())?;
            Ok(Exit::Finished)
        }
        ConversationsCommand::Ls(arguments) => list::run(arguments, &conversations).await,
        ConversationsCommand::Show { conversation, json } => {
            show(&conversations, &conversations.find(&conversation.selector()).await?, json).await
        }
        ConversationsCommand::Export { conversation, output } => {
            let id = conversations.find(&conversation.selector()).await?;
            match output.filter(|path| path != Path::new("-")) {
                Some(path) => {
                    let file = open_trajectory(&path, &id)?;
                    save_trajectory(&conversations, &id, file, config.saves_screenshots).await?;
                }
                None => print::line(&trajectory(&conversations, &id, config.saves_screenshots).await?)?,
            }
            Ok(Exit::Finished)
        }
        ConversationsCommand::Rm(arguments) => {
            remove::run(arguments, &config, &conversations, &state_dir).await
        }
    }
}

async fn show(conversations: &Conversations, id: &ConversationId, as_json: bool) -> anyhow::Result<Exit> {
    let mut transcript = Transcript::new();
    for event in conversations.events(id).await? {
        if as_json {
            print::line(&serde_json::to_string(&event)?)?;
        } else {
            print::text(&transcript.event(&event))?;
        }
    }
    Ok(Exit::Finished)
}

/// A trajectory as its file holds it.
async fn trajectory(
    conversations: &Conversations,
    id: &ConversationId,
    with_screenshots: bool,
) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&conversations.export(id, with_screenshots).await?)?)
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
    conversations: &Conversations,
    id: &ConversationId,
    file: TrajectoryFile,
    with_screenshots: bool,
) -> anyhow::Result<()> {
    let text = trajectory(conversations, id, with_screenshots).await? + "\n";
    let failed = format!("saving the trajectory to {}", file.path().display());
    file.write(&text).context(failed)
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

#[cfg(test)]
mod tests {
    use super::*;

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
