//! `glovebox resume`: a conversation of an earlier process goes on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use engine::conversation::{Conversation, Recovery, State, Terms};
use engine::events::{EventLog, EventStore};
use protocol::action::MessageAction;
use protocol::record::{ConversationStarted, Limit};
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
};

use super::confirm::Questions;
use super::conversation_id::ConversationChoice;
use super::follow::Output;
use super::run::{
    Course, WorkArguments, finish, introduce, note_folder, spec, warn_of_budget, warn_of_memory,
};
use super::{MachineArguments, conversations, load_decided_config, print, trust};
use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};
use crate::terminal_input::InputKeptFromShell;
use crate::workspace;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An action that was running when the earlier process died is attached to, never run a second time.
After a limit the agent may take as many steps again, or -i N more; and spend as much again, or -b DOLLARS more.")]
pub(super) struct ResumeArguments {
    #[command(flatten)]
    conversation: ConversationChoice,

    /// Say this to the agent.
    #[arg(short = 't', long, value_name = "TEXT")]
    task: Option<String>,

    /// How an agent that went in circles goes on, instead of only forgetting the loop.
    #[arg(long, value_name = "HOW", value_enum)]
    from_loop: Option<FromLoop>,

    /// Approve the action that waits for it.
    #[arg(long)]
    confirm: bool,

    /// Reject it; the agent is told this reason and continues.
    #[arg(long, value_name = "REASON", conflicts_with = "confirm", value_parser = NonEmptyStringValueParser::new())]
    reject: Option<String>,

    #[command(flatten)]
    machine: MachineArguments,

    #[command(flatten)]
    work: WorkArguments,
}

/// V0's ways out of a loop.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FromLoop {
    /// It forgets the loop.
    Before,
    /// It forgets the loop and hears the last message again.
    Message,
    /// It ends here.
    Stop,
}

impl From<FromLoop> for Recovery {
    fn from(way: FromLoop) -> Self {
        match way {
            FromLoop::Before => Self::BeforeLoop,
            FromLoop::Message => Self::LastUserMessage,
            FromLoop::Stop => Self::Stop,
        }
    }
}

pub(super) async fn run(arguments: ResumeArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let ResumeArguments { conversation, task, from_loop, confirm, reject, machine, work } = arguments;
    let overrides = work.overrides(machine.overrides(overrides));
    let config = trust::load(&overrides)?;
    let state_dir = StateDir::open(&config.state_dir)?;
    let store = state_dir.store(config.durability).await?;
    let id = compose::conversations(store.clone(), &state_dir).find(&conversation.selector()).await?;
    let _input = InputKeptFromShell;
    // Before anything is decided by what it says: another process may be ending it.
    let _lock = state_dir.lock_existing(store.as_ref(), &id).await?;
    let Read { state, secrets, question } = read(store.clone(), &id).await?;
    let Some(started) = state.started.clone() else {
        return Err(UsageError(format!("there is no conversation {id}")).into());
    };
    if started.agent.starts_with('/') {
        workspace::check_not_replaced("agent", Path::new(&started.agent))?;
    }
    // Its agent is what it was, and with it what is configured for that agent.
    let overrides = Overrides { agent: Some(started.agent.clone()), ..overrides };
    let mut config = load_decided_config(&overrides)?;
    let is_asked = state.agent_state == AgentState::AwaitingUserConfirmation;
    if (confirm || reject.is_some()) && !is_asked {
        return Err(UsageError(format!("no action of conversation {id} waits for your approval")).into());
    }
    if from_loop.is_some() && state.own.stuck.found().is_none() {
        return Err(UsageError(format!("the agent of conversation {id} was not stopped in a loop")).into());
    }
    // A person at the terminal is asked.
    let asks = task.is_none()
        && state.agent_state == AgentState::AwaitingUserInput
        && Questions::at_terminal(work.output()).is_some();
    if is_over(&state) && task.is_none() && !asks {
        print::note(&format!("conversation {id} has ended; say more with -t TEXT\n"));
        return Ok(super::follow::exit_of(&state, false));
    }
    as_it_began(&mut config, &started, &overrides);
    for name in secrets.iter().filter(|name| !config.secrets.contains_key(*name)) {
        print::warning(&format!(
            "the conversation had the secret {name}, which is not given now: it cannot be used, and is not hidden where it \
             shows up; give it with --secret {name}"
        ));
    }
    // Over SSH, and elsewhere, it is a folder of another machine.
    let folder =
        started.workspace.as_deref().filter(|_| matches!(config.runtime.as_str(), "docker" | "local"));
    let folder = folder.map(Path::new);
    folder.map_or(Ok(()), |folder| workspace::check_not_replaced("workspace", folder))?;
    let trajectory = conversations::prepare_trajectory(&config, &id)?;
    let agent = compose::agent(&config)?;
    let models = work.models(&config, state.iterations as usize, &id)?;
    work.reach_provider(&config).await?;
    // It may have been removed while it was empty.
    if state_dir.workspace_in_log(&id, started.workspace.as_deref()).is_some() {
        state_dir.workspace(&id)?;
    }
    let _folder = match folder.filter(|folder| folder.exists()) {
        Some(folder) => note_folder(&state_dir, folder)?,
        None => None,
    };
    let spec = spec(&config, &id, &started);
    trust::check_sandbox(&config, &spec)?;
    let parts = compose::parts(&config, &state_dir, store, &models, agent, spec)?;
    warn_of_memory(&parts);
    let max_budget = more_money(&state, &started, work.max_budget);
    warn_of_budget(&models, &config, max_budget.or(state.max_budget));
    super::warn_of_runtime(&config, &overrides);
    if work.output() == Output::Transcript {
        introduce(&id, &started, &config);
    }
    let sweep = compose::sweep(&parts.provider, &config, &state_dir);
    let from = state.next_id;
    let conversation = Conversation::recover(parts.clone(), id.clone()).await?;
    let terms = Terms {
        max_iterations: more_steps(&state, &started, work.max_iterations),
        max_budget,
        confirmation: Some(compose::security(&config)?.0),
    };
    let is_resumed = needs_a_word(&state) || work.max_iterations.is_some() || work.max_budget.is_some();
    let is_told = is_resumed || from_loop.is_some() || confirm || reject.is_some() || task.is_some();
    match from_loop {
        Some(way) => conversation.recover_from_loop(way.into())?,
        None if is_resumed => conversation.resume(terms)?,
        None => {}
    }
    if confirm {
        conversation.confirm(None)?;
    }
    let redactor = compose::redactor(&config)?;
    if let Some(reason) = reject {
        conversation.reject(None, redactor.text(&reason))?;
    }
    if let Some(text) = task {
        let content = redactor.text(&text).into_owned();
        conversation.say(MessageAction { content, ..Default::default() })?;
    }
    if is_told {
        // Until it is heard the conversation looks as much at rest as it was.
        conversation.wait_for(|now| now.next_id > from).await;
    }
    let from = question.filter(|_| asks).unwrap_or(from);
    let course = Course { from, replayed: None, has_answer: true, trajectory };
    let exit = finish(conversation, &parts, &config, &state_dir, &work, course, &models).await;
    sweep.finish().await;
    compose::conversations(parts.store, &state_dir).remove_empty_workspace(&id).await;
    exit
}

/// What a log says.
struct Read {
    /// What it folds to.
    state: State,
    /// The names of the secrets that its agent was told of.
    secrets: BTreeSet<String>,
    /// What the agent said last.
    question: Option<EventId>,
}

async fn read(store: Arc<dyn EventStore>, id: &ConversationId) -> anyhow::Result<Read> {
    let (_, events) = EventLog::open(store, id.clone()).await?;
    let told = events.iter().filter_map(|event| match &event.body {
        EventBody::Observation(Observation { kind: ObservationKind::Recall(recall), .. }) => {
            Some(recall.custom_secrets_descriptions.keys().cloned())
        }
        _ => None,
    });
    let is_question = |event: &&Arc<Event>| {
        let is_message = matches!(&event.body, EventBody::Action(Action::Message(_)));
        is_message && event.source == EventSource::Agent && event.delegation.is_none()
    };
    Ok(Read {
        state: State::fold(events.iter().map(Arc::as_ref)),
        secrets: told.flatten().collect(),
        question: events.iter().rev().find(is_question).map(|event| event.id),
    })
}

/// Runtime, model and network of a conversation stay what they were unless the command line names others.
fn as_it_began(config: &mut Config, started: &ConversationStarted, overrides: &Overrides) {
    config.runtime.clone_from(&started.runtime);
    config.sandbox.set_network(overrides.network.clone().or_else(|| started.network.clone()));
    if overrides.model.is_none() {
        config.llm.model = Some(started.model.clone());
    }
}

/// Whether there is nothing to go on with but a new word of the user's.
fn is_over(state: &State) -> bool {
    let asks_or_done = matches!(
        state.agent_state,
        AgentState::Finished | AgentState::Rejected | AgentState::AwaitingUserInput
    );
    asks_or_done && !state.is_underway()
}

/// Whether the agent rests until it is told to go on.
fn needs_a_word(state: &State) -> bool {
    matches!(state.agent_state, AgentState::Stopped | AgentState::Error | AgentState::Paused)
}

/// After a limit of steps as many again, unless another number is given.
fn more_steps(state: &State, started: &ConversationStarted, more: Option<u32>) -> Option<u32> {
    let again = (state.limit_reached == Some(Limit::Iterations)).then_some(started.max_iterations);
    more.or(again).map(|more| state.iterations.saturating_add(more))
}

/// After a limit of money as much again, unless another sum is given.
fn more_money(state: &State, started: &ConversationStarted, more: Option<f64>) -> Option<f64> {
    let again = started.max_budget.filter(|_| state.limit_reached == Some(Limit::Budget));
    more.or(again).map(|more| state.metrics.accumulated_cost + more)
}
