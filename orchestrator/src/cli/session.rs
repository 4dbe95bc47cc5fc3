//! Runs a conversation in this terminal: has its parts composed, follows it to its end and closes it.

use std::path::{Path, PathBuf};

use conversations::{
    Claim, CloseReason, ClosedConversation, ConversationParts, Conversations, FolderUse, InitialTask,
    NewConversation, Sweep,
};
use engine::conversation::State;
use engine::memory::Memory;
use engine::sandbox::SandboxSpec;
use protocol::record::{ConversationStarted, WorkspaceSetup};
use protocol::{AgentState, ConversationId, EventId};

use super::follow::{Follow, Followed};
use super::screen::Output;
use super::trajectory_file::{self, TrajectoryFile};
use super::work::WorkArguments;
use super::{decided_config, print, print_isolation};
use crate::compose::{self, Models, StateDir};
use crate::config::Config;
use crate::exit::Exit;
use crate::terminal_input::PendingInputGuard;
use crate::workspace::{self, WorkFolder};

/// A conversation to start, and how it is followed.
pub(super) struct NewSession {
    pub(super) id: ConversationId,
    /// The user's own. `None` if it is taken from the task.
    pub(super) title: Option<String>,
    pub(super) task: InitialTask,
    pub(super) workspace: WorkFolder,
    /// How the workspace is set up.
    pub(super) setup: Option<WorkspaceSetup>,
    pub(super) models: Models,
    /// The name that the conversation is resumed with.
    pub(super) model: String,
    pub(super) work: WorkArguments,
}

/// Starts a conversation and follows it to its end.
pub(super) async fn start(new: NewSession, config: &Config, state_dir: &StateDir) -> anyhow::Result<Exit> {
    let _input = PendingInputGuard;
    let conversations = compose::conversations(state_dir.store(config.durability).await?, state_dir);
    let mut claim = conversations.create(new.id).await?;
    if let WorkFolder::Here(path) = &new.workspace {
        mark_folder(&mut claim, path)?;
    }
    let id = claim.id().clone();
    let trajectory = trajectory_file::prepare(config, &id)?;
    let started = ConversationStarted {
        agent: config.agent.stored_name.clone(),
        model: new.model,
        max_iterations: config.max_iterations,
        max_budget: config.max_budget,
        confirmation: compose::confirmation_policy(&config.security),
        runtime: config.runtime.to_string(),
        image: config.sandbox.image.clone(),
        workspace: new.workspace.for_log()?,
        network: Some(config.sandbox.network.clone().unwrap_or_else(|| "none".to_owned())),
        setup: new.setup,
        forked_from: None,
        history_truncation_disabled: config.history_truncation_disabled,
        stuck_detection_disabled: config.stuck_detection_disabled,
    };
    let agent = new.task.agent(compose::agent(config)?);
    let spec = spec(config, &id, &started);
    decided_config::check_sandbox(config, &spec)?;
    let parts = compose::parts(config, state_dir, &new.models, agent, spec)?;
    warn_of_memory(&parts);
    warn_of_budget(&new.models, config, config.max_budget);
    if new.work.output() == Output::Transcript {
        introduce(&id, &started, config);
        print_isolation(config, state_dir).await?;
    }
    let sweep = compose::sweep(&parts.provider, config, state_dir);
    let has_answer = new.task.has_answer();
    let conversation = NewConversation { started, parts, title: new.title, task: new.task };
    conversations.start(claim, conversation).await?;
    let course = Course { from: EventId::FIRST, has_answer, trajectory };
    finish(&conversations, &id, config, &new.work, course, sweep).await
}

/// What is followed of a conversation.
pub(super) struct Course {
    /// The first event to show.
    pub(super) from: EventId,
    /// Whether what the agent says at the end is an answer to the user.
    pub(super) has_answer: bool,
    /// Where the conversation's events are saved at the end.
    pub(super) trajectory: Option<TrajectoryFile>,
}

/// Follows a running conversation to its end and closes it.
pub(super) async fn finish(
    conversations: &Conversations,
    id: &ConversationId,
    config: &Config,
    work: &WorkArguments,
    course: Course,
    sweep: Sweep,
) -> anyhow::Result<Exit> {
    let following = Follow {
        conversations,
        id,
        output: work.output(),
        from: course.from,
        auto_continue: !work.no_auto_continue,
        network: &compose::network(config),
    };
    let exit = following.follow().await.and_then(|Followed { exit, answer }| {
        let is_answered = course.has_answer && matches!(exit, Exit::Finished | Exit::Waiting);
        if is_answered && work.output() == Output::Transcript {
            print::answer(answer.as_deref().unwrap_or_default())?;
        }
        Ok(exit)
    });
    let reason = match &exit {
        Ok(Exit::Interrupted) => CloseReason::Interrupted,
        _ => CloseReason::AtRest,
    };
    let closed = conversations.close(id, reason).await;
    let exit = match (&closed, exit) {
        (Ok(closed), Ok(exit)) => {
            conclude(conversations, closed, config, work, course.trajectory, exit).await
        }
        (_, exit) => exit,
    };
    // The claim in `closed` keeps the sweep from the conversation's sandbox until here.
    sweep.finish().await;
    closed?;
    exit
}

/// Saves the trajectory of a closed conversation, and says how it ended.
async fn conclude(
    conversations: &Conversations,
    closed: &ClosedConversation,
    config: &Config,
    work: &WorkArguments,
    trajectory: Option<TrajectoryFile>,
    exit: Exit,
) -> anyhow::Result<Exit> {
    let id = closed.claim.id();
    if let Some(file) = trajectory {
        trajectory_file::save(conversations, id, file, config.saves_screenshots).await?;
    }
    if work.output() == Output::Transcript {
        print::note(&closing_words(id, &closed.state, exit));
    }
    Ok(exit)
}

/// Tells what of the user's own files could not be read as it was meant.
pub(super) fn warn_of_memory(parts: &ConversationParts) {
    for problem in parts.memory.iter().flat_map(Memory::problems) {
        print::warning(&problem.to_string());
    }
}

/// Tells of a limit of money that nothing will reach.
pub(super) fn warn_of_budget(models: &Models, config: &Config, budget: Option<f64>) {
    if let Some(most) = budget.filter(|_| !models.has_known_price(config)) {
        print::warning(&format!(
            "the limit of ${most} has no effect: no price is known of {}; `input_cost_per_token` and `output_cost_per_token` \
             under [llm] tell it",
            config.llm.model.as_deref().unwrap_or("the model")
        ));
    }
}

/// What the conversation's sandbox is to be. Its environment is the configuration's: the log holds no secrets.
pub(super) fn spec(config: &Config, id: &ConversationId, started: &ConversationStarted) -> SandboxSpec {
    SandboxSpec {
        image: started.image.clone(),
        environment: workspace::environment(&config.workspace, started.setup.as_ref()),
        workspace: started.workspace.as_ref().map(PathBuf::from),
        ..compose::spec(config, id.clone())
    }
}

pub(super) fn introduce(id: &ConversationId, started: &ConversationStarted, config: &Config) {
    let workspace = started.workspace.as_deref().unwrap_or("a fresh folder");
    let network = compose::network(config);
    let hint = if network == "none" { " (--network gives it one)" } else { "" };
    print::note(&format!(
        "conversation {id}: {} in {}, working in {workspace}\nnetwork of the sandbox: {network}{hint}\n",
        started.model, started.runtime
    ));
}

/// Marks a folder as one that this conversation works in, and warns where another one does too.
pub(super) fn mark_folder(claim: &mut Claim, folder: &Path) -> anyhow::Result<()> {
    if claim.lock_folder(folder)? == FolderUse::Shared {
        let folder = folder.display();
        print::warning(&format!("another run works in {folder}: both may change the same files"));
    }
    Ok(())
}

/// How a conversation ended, what it took, and how to go on.
fn closing_words(id: &ConversationId, state: &State, exit: Exit) -> String {
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
