//! `glovebox resume`: a conversation of an earlier process goes on.

use engine::conversation::{Conversation, Parts, State};
use engine::events::{EventLog, EventStore};
use protocol::action::MessageAction;
use protocol::record::ConversationStarted;
use protocol::{AgentState, ConversationId};
use std::sync::Arc;

use super::follow::Output;
use super::run::{WorkArguments, finish, introduce, spec};
use super::{MachineArguments, load_config, print};
use crate::compose::{self, StateDir, Sweep};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An action that was running when the earlier process died is attached to, never run a second time.
After a limit the agent may take as many steps again, or -i N more.")]
pub(super) struct ResumeArguments {
    /// The conversation, as `glovebox conversations ls` shows it.
    id: ConversationId,

    /// Say this to the agent.
    #[arg(short = 't', long, value_name = "TEXT")]
    task: Option<String>,

    #[command(flatten)]
    machine: MachineArguments,

    #[command(flatten)]
    work: WorkArguments,
}

pub(super) async fn run(arguments: ResumeArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let ResumeArguments { id, task, machine, work } = arguments;
    let overrides = work.overrides(machine.overrides(overrides));
    let mut config = load_config(&overrides)?;
    let state_dir = StateDir::open(&config.state_dir)?;
    let store = state_dir.store().await?;
    // Before anything is decided by what it says: another process may be ending it.
    let _lock = state_dir.lock_existing(store.as_ref(), &id).await?;
    let state = read_state(store.clone(), &id).await?;
    let Some(started) = state.started.clone() else {
        return Err(UsageError(format!("there is no conversation {id}")).into());
    };
    if is_over(&state) && task.is_none() {
        print::note(&format!("conversation {id} has ended; say more with -t TEXT\n"));
        return Ok(super::follow::exit_of(&state, false));
    }
    as_it_began(&mut config, &started, overrides.model.is_some());
    let parts = Parts {
        store,
        llm: work.llm(&config.llm, state.iterations as usize)?,
        agent: compose::agent(&config)?,
        provider: compose::provider(&config, &state_dir)?,
        spec: spec(&config, &id, &started),
    };
    super::warn_of_runtime(&config);
    if work.output() == Output::Transcript {
        introduce(&id, &started);
    }
    let sweep = Sweep::begin(&parts.provider, &config, &state_dir);
    let from = state.next_id;
    let conversation = Conversation::recover(parts.clone(), id).await?;
    let is_told = needs_a_word(&state) || work.max_iterations.is_some() || task.is_some();
    if needs_a_word(&state) || work.max_iterations.is_some() {
        conversation.resume(new_limit(&state, &started, work.max_iterations))?;
    }
    if let Some(text) = task {
        conversation.say(MessageAction { content: text, ..Default::default() })?;
    }
    if is_told {
        // Until it is heard the conversation looks as much at rest as it was.
        conversation.wait_for(|now| now.next_id > from).await;
    }
    let exit = finish(conversation, &parts, &config, &work, from).await;
    sweep.end().await;
    exit
}

/// The state that the log folds to.
async fn read_state(store: Arc<dyn EventStore>, id: &ConversationId) -> anyhow::Result<State> {
    let (_, events) = EventLog::open(store, id.clone()).await?;
    Ok(State::fold(events.iter().map(Arc::as_ref)))
}

/// Agent, runtime and model of a conversation stay what they were unless the command line names another model.
fn as_it_began(config: &mut Config, started: &ConversationStarted, names_model: bool) {
    config.agent.clone_from(&started.agent);
    config.runtime.clone_from(&started.runtime);
    if !names_model {
        config.llm.model = Some(started.model.clone());
    }
}

/// Whether there is nothing to go on with but a new word of the user's.
fn is_over(state: &State) -> bool {
    let asks_or_done = matches!(
        state.agent_state,
        AgentState::Finished | AgentState::Rejected | AgentState::AwaitingUserInput
    );
    asks_or_done && state.pending.is_none()
}

/// Whether the agent rests until it is told to go on.
fn needs_a_word(state: &State) -> bool {
    matches!(state.agent_state, AgentState::Stopped | AgentState::Error | AgentState::Paused)
}

fn new_limit(state: &State, started: &ConversationStarted, more: Option<u32>) -> Option<u32> {
    match more {
        Some(more) => Some(state.iterations.saturating_add(more)),
        None if state.limit_reached.is_some() => {
            Some(state.iterations.saturating_add(started.max_iterations))
        }
        None => None,
    }
}
