//! `glovebox resume`: a conversation of an earlier process goes on.

use std::path::Path;

use clap::builder::NonEmptyStringValueParser;
use conversations::{ResumeRequest, UserDecision};
use engine::conversation::LoopRecovery;
use protocol::AgentState;

use super::confirm::Questions;
use super::conversation_id::ConversationChoice;
use super::screen::Output;
use super::session::{self, Course};
use super::work::WorkArguments;
use super::{MachineArguments, decided_config, load_decided_config, print, trajectory_file};
use crate::compose::{self, StateDir};
use crate::config::Overrides;
use crate::exit::Exit;
use crate::terminal_input::PendingInputGuard;
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

impl From<FromLoop> for LoopRecovery {
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
    let config = decided_config::load(&overrides)?;
    let state_dir = StateDir::open(&config.state_dir)?;
    let conversations = compose::conversations(state_dir.store(config.durability).await?, &state_dir);
    let id = conversations.find(&conversation.selector()).await?;
    let _input = PendingInputGuard;
    let mut stored = conversations.open(&id).await?;
    let started = stored.started.clone();
    if started.agent.starts_with('/') {
        workspace::check_not_replaced("agent", Path::new(&started.agent))?;
    }
    // Its agent is what it was, and with it what is configured for that agent.
    let overrides = Overrides { agent: Some(started.agent.clone()), ..overrides };
    let mut config = load_decided_config(&overrides)?;
    let request = ResumeRequest {
        message: task,
        decision: if confirm { Some(UserDecision::Approve) } else { reject.map(UserDecision::Reject) },
        loop_recovery: from_loop.map(LoopRecovery::from),
        more_iterations: work.max_iterations,
        more_budget: work.max_budget,
    };
    stored.check(&request)?;
    // A person at the terminal is asked.
    let asks = request.message.is_none()
        && stored.state.agent_state == AgentState::AwaitingUserInput
        && Questions::at_terminal(work.output()).is_some();
    if stored.awaits_message() && request.message.is_none() && !asks {
        print::note(&format!("conversation {id} has ended; say more with -t TEXT\n"));
        return Ok(super::follow::exit_of(&stored.state, false));
    }
    compose::restore_settings(&mut config, &started, &overrides)?;
    for name in stored.secrets.iter().filter(|name| !config.secrets.contains_key(*name)) {
        print::warning(&format!(
            "the conversation had the secret {name}, which is not given now: it cannot be used, and is not hidden where it \
             shows up; give it with --secret {name}"
        ));
    }
    // Over SSH, and elsewhere, it is a folder of another machine.
    let folder = started.workspace.as_deref().filter(|_| !config.runtime.is_on_other_machine());
    let folder = folder.map(Path::new);
    folder.map_or(Ok(()), |folder| workspace::check_not_replaced("workspace", folder))?;
    let trajectory = trajectory_file::prepare(&config, &id)?;
    let agent = compose::agent(&config)?;
    let models = work.models(&config, stored.state.iterations as usize, &id)?;
    work.reach_provider(&config).await?;
    // It may have been removed while it was empty.
    if state_dir.workspace_in_log(&id, started.workspace.as_deref()).is_some() {
        state_dir.workspace(&id)?;
    }
    if let Some(folder) = folder.filter(|folder| folder.exists()) {
        session::mark_folder(stored.claim(), folder)?;
    }
    let spec = session::spec(&config, &id, &started);
    decided_config::check_sandbox(&config, &spec)?;
    let parts = compose::parts(&config, &state_dir, &models, agent, spec)?;
    session::warn_of_memory(&parts);
    session::warn_of_budget(&models, &config, stored.max_budget(&request));
    super::warn_of_runtime(&config, &overrides);
    if work.output() == Output::Transcript {
        session::introduce(&id, &started, &config);
    }
    let sweep = compose::sweep(&parts.provider, &config, &state_dir);
    let from = stored.last_message.filter(|_| asks).unwrap_or(stored.state.next_id);
    conversations.resume(stored, parts, request, compose::confirmation_policy(&config.security)).await?;
    let course = Course { from, has_answer: true, trajectory };
    session::finish(&conversations, &id, &config, &work, course, sweep).await
}
