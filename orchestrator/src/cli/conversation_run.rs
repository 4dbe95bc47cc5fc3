//! Runs a conversation in this terminal: composes its parts, shows it to its end, and closes it.

use std::path::Path;
use std::sync::Arc;

use conversations::{
    Claim, CloseReason, ConversationParts, Conversations, FolderUse, InitialTask, NewConversation,
    Sweep,
};
use engine::agent::Agent;
use engine::conversation::State;
use engine::memory::Memory;
use protocol::record::{ConversationStarted, WorkspaceSetup};
use protocol::{AgentState, ConversationId, EventId};

use super::confirm::TerminalPrompt;
use super::follow::{FollowResult, LocalConversation, TerminalFollower};
use super::interrupts::Interrupts;
use super::run_options::RunOptions;
use super::screen::Output;
use super::trajectory_file::{self, TrajectoryFile};
use super::{changed_files, print, print_isolation, trusted_config};
use crate::compose::{self, Models, StateDir, Stores};
use crate::config::{Config, Runtime};
use crate::exit::Exit;
use crate::terminal_input::PendingInputGuard;
use crate::workspace::WorkspaceFolder;

/// A conversation to start.
pub(super) struct NewRun {
    pub(super) id: ConversationId,
    /// Title that the user chose. `None` to generate one from the task.
    pub(super) title: Option<String>,
    pub(super) task: InitialTask,
    pub(super) workspace: WorkspaceFolder,
    /// How the workspace is set up.
    pub(super) setup: Option<WorkspaceSetup>,
    pub(super) models: Models,
    /// Name of the model in the log, which a resumed conversation uses.
    pub(super) model: String,
    pub(super) options: RunOptions,
}

/// Starts a conversation and runs it to its end.
pub(super) async fn start(
    new: NewRun,
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let stores = Stores::open(config, state_dir).await?;
    let exit = start_in(&stores, new, config, state_dir).await;
    stores.close().await;
    exit
}

async fn start_in(
    stores: &Stores,
    new: NewRun,
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let _input = PendingInputGuard;
    let conversations = stores.conversations().await?;
    let mut claim = conversations.create(new.id).await?;
    if let WorkspaceFolder::Local(path) = &new.workspace {
        lock_folder(&mut claim, path)?;
    }
    let id = claim.id().clone();
    let trajectory = trajectory_file::prepare(config, &id)?;
    let started = compose::started(config, &new.workspace, new.setup, new.model)?;
    let agent = new.task.agent(compose::agent(config)?);
    let run = ConversationRun {
        conversations: &conversations,
        id: &id,
        config,
        state_dir,
        options: &new.options,
    };
    let parts = run.compose_parts(&started, &new.models, agent, config.max_budget)?;
    if new.options.output() == Output::Transcript {
        print_isolation(config, state_dir).await?;
    }
    let sweep = compose::sweep(&parts.provider, config, stores);
    let has_answer = new.task.has_answer();
    let conversation = NewConversation {
        started,
        parts,
        title: new.title,
        task: new.task,
    };
    conversations.start(claim, conversation).await?;
    run.finish(EventId::FIRST, has_answer, trajectory, sweep)
        .await
}

/// A conversation that this process runs.
pub(super) struct ConversationRun<'a> {
    pub(super) conversations: &'a Conversations,
    pub(super) id: &'a ConversationId,
    pub(super) config: &'a Config,
    pub(super) state_dir: &'a StateDir,
    pub(super) options: &'a RunOptions,
}

impl ConversationRun<'_> {
    /// Composes the parts of the conversation. Prints warnings about them, and a description of the
    /// conversation.
    pub(super) fn compose_parts(
        &self,
        started: &ConversationStarted,
        models: &Models,
        agent: Arc<dyn Agent>,
        max_budget: Option<f64>,
    ) -> anyhow::Result<ConversationParts> {
        let Self { id, config, .. } = *self;
        let spec = compose::conversation_spec(config, id, started);
        trusted_config::check_sandbox(config, &spec)?;
        let parts = compose::parts(
            config,
            self.state_dir,
            models,
            agent,
            spec,
            compose::redactor(config)?,
        )?;
        for problem in parts.memory.iter().flat_map(Memory::problems) {
            print::warning(&problem.to_string());
        }
        if let Some(warning) = models.budget_warning(config, max_budget) {
            print::warning(&warning);
        }
        let output = self.options.output();
        if output == Output::Transcript {
            print_description(id, started, config);
        }
        let has_user = TerminalPrompt::at_terminal(output).is_some();
        Ok(ConversationParts {
            is_unattended: !self.options.no_auto_continue && !has_user,
            ..parts
        })
    }

    /// Shows the running conversation from an event to its end, and closes it. If `has_answer`, the
    /// agent's last message is an answer to the user.
    pub(super) async fn finish(
        &self,
        from: EventId,
        has_answer: bool,
        trajectory: Option<TrajectoryFile>,
        sweep: Sweep,
    ) -> anyhow::Result<Exit> {
        let Self {
            conversations,
            id,
            config,
            ..
        } = *self;
        let output = self.options.output();
        let network = compose::network(config.runtime, &config.sandbox);
        let follower = TerminalFollower {
            id,
            output,
            network: Some(&network),
        };
        // Until the end, so that no interrupt is lost or counted twice.
        let mut interrupts = Interrupts::listen()?;
        let following = async {
            let mut conversation = LocalConversation::follow(conversations, id, from).await?;
            follower.follow(&mut conversation, &mut interrupts).await
        };
        let exit = following.await.and_then(|FollowResult { exit, answer }| {
            let is_answered = has_answer && matches!(exit, Exit::Finished | Exit::Waiting);
            if is_answered && output == Output::Transcript {
                print::answer(answer.as_deref().unwrap_or_default())?;
            }
            Ok(exit)
        });
        let changes = match exit {
            Ok(Exit::Interrupted) | Err(_) => String::new(),
            Ok(_) if output == Output::Transcript => {
                let described = changed_files::describe(conversations, id);
                interrupts
                    .unless_interrupted(described)
                    .await
                    .unwrap_or_default()
            }
            Ok(_) => String::new(),
        };
        let reason = match &exit {
            Ok(Exit::Interrupted) => CloseReason::Interrupted,
            _ => CloseReason::Idle,
        };
        let is_interrupted = reason == CloseReason::Interrupted;
        let closed = conversations.close(id, reason).await;
        let exit = match (&closed, exit) {
            (Ok(closed), Ok(exit)) => {
                print::note(&changes);
                self.report_close(&closed.state, trajectory, exit).await
            }
            (_, exit) => exit,
        };
        // The claim in `closed` keeps the sweep from the conversation's sandbox until here.
        match is_interrupted {
            true => sweep.abort().await,
            false => sweep.finish().await,
        }
        if let (Err(_), _) | (_, Err(_)) = (&closed, &exit) {
            print::note(&format!("resume with: glovebox resume {id}\n"));
        }
        closed?;
        exit
    }

    /// Saves the trajectory of the closed conversation, and prints its result.
    async fn report_close(
        &self,
        state: &State,
        trajectory: Option<TrajectoryFile>,
        exit: Exit,
    ) -> anyhow::Result<Exit> {
        if let Some(file) = trajectory {
            let with_screenshots = self.config.saves_screenshots;
            let exporting = self.conversations.export(self.id, with_screenshots);
            trajectory_file::save(&exporting.await?, file)?;
        }
        if self.options.output() == Output::Transcript {
            let host = self.config.sandbox.ssh.target.as_deref();
            let host = host.filter(|_| self.config.runtime == Runtime::Ssh);
            print::note(&describe_result(self.id, state, exit, host));
        }
        Ok(exit)
    }
}

/// Prints the model, the runtime, the workspace and the network.
fn print_description(id: &ConversationId, started: &ConversationStarted, config: &Config) {
    let new_folder = match config.runtime {
        Runtime::Ssh => {
            "a new folder, which is removed at the end (-d FOLDER names one that is kept)"
        }
        Runtime::Remote => "a new folder, which is removed at the end",
        Runtime::Auto | Runtime::Docker | Runtime::Local => "a new folder",
    };
    let workspace = started.workspace.as_deref().unwrap_or(new_folder);
    let network = compose::network(config.runtime, &config.sandbox);
    let hint = if network == "none" {
        " (--network gives it one)"
    } else {
        ""
    };
    print::note(&format!(
        "conversation {id}: {} in {}, working in {workspace}\nnetwork of the sandbox: {network}{hint}\n",
        started.model, started.runtime
    ));
}

/// Marks a folder as used by this conversation. Warns if another conversation uses it too.
pub(super) fn lock_folder(claim: &mut Claim, folder: &Path) -> anyhow::Result<()> {
    if claim.lock_folder(folder)? == FolderUse::Shared {
        let folder = folder.display();
        print::warning(&format!(
            "another run uses {folder}: both may change the same files"
        ));
    }
    Ok(())
}

/// Describes the result and the usage of a conversation, and how to resume it.
fn describe_result(id: &ConversationId, state: &State, exit: Exit, host: Option<&str>) -> String {
    let usage = &state.metrics.accumulated_token_usage;
    let steps = if state.iterations == 1 {
        "step"
    } else {
        "steps"
    };
    let result = match (exit, state.agent_state) {
        // The grace period ended before the conversation stopped, so `running` would be misleading.
        (Exit::Interrupted, agent_state) if agent_state != AgentState::Stopped => "interrupted",
        (Exit::Limit, _) => "stopped at the limit",
        (_, AgentState::Error) => "failed",
        (_, agent_state) => agent_state.as_str(),
    };
    // 0 is the cost of a model without a known price.
    let cost = Some(state.metrics.accumulated_cost).filter(|cost| *cost > 0.0);
    let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let mut text = format!(
        "\n{result} after {} {steps}: {} tokens in, {} out{cost}\n",
        state.iterations, usage.prompt_tokens, usage.completion_tokens
    );
    let hint = match (exit, state.agent_state) {
        (Exit::Finished, _) => return text,
        (_, AgentState::AwaitingUserInput) => " -t ANSWER",
        (_, AgentState::AwaitingUserConfirmation) => " --confirm, or --reject REASON",
        _ => "",
    };
    let host = host
        .map(|host| format!(" --host {host}"))
        .unwrap_or_default();
    text.push_str(&format!("resume with: glovebox resume {id}{host}{hint}\n"));
    if exit == Exit::Failed {
        text.push_str("check the model and the runtime with: glovebox doctor\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversation_is_interrupted_when_it_was_not_stopped() {
        let id: ConversationId = "one".parse().unwrap();
        let describe = |agent_state, exit| {
            let state = State {
                agent_state,
                ..State::default()
            };
            describe_result(&id, &state, exit, None)
                .trim_start()
                .replace(" after 0 steps: 0 tokens in, 0 out\n", "; ")
        };
        let hint = "resume with: glovebox resume one";
        assert_eq!(
            describe(AgentState::Running, Exit::Interrupted),
            format!("interrupted; {hint}\n")
        );
        assert_eq!(
            describe(AgentState::Stopped, Exit::Interrupted),
            format!("stopped; {hint}\n")
        );
        assert_eq!(describe(AgentState::Finished, Exit::Finished), "finished; ");
        assert_eq!(
            describe(AgentState::Error, Exit::Limit),
            format!("stopped at the limit; {hint}\n")
        );
        assert_eq!(
            describe(AgentState::Error, Exit::Failed),
            format!("failed; {hint}\ncheck the model and the runtime with: glovebox doctor\n")
        );
        let asks = describe(AgentState::AwaitingUserInput, Exit::Waiting);
        assert_eq!(asks, format!("awaiting_user_input; {hint} -t ANSWER\n"));
        let remote = describe_result(&id, &State::default(), Exit::Failed, Some("me@box"));
        assert!(
            remote.contains("glovebox resume one --host me@box\n"),
            "{remote}"
        );
    }
}
