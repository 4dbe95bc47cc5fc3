//! `glovebox resume`: resumes a conversation of an earlier process.

use std::path::Path;

use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::ArgValueCandidates;
use conversations::run_outcome;
use protocol::client_api::v2::ConversationStatus;
use protocol::command::LoopRecovery;
use protocol::{AgentState, ConversationId, UserCommand};

use super::confirm::TerminalPrompt;
use super::conversation_id::ConversationChoice;
use super::conversation_run::{self, ConversationRun};
use super::remote::{self, RemoteServer};
use super::run_options::RunOptions;
use super::runtime_change::RuntimeChange;
use super::{
    RuntimeOptions, StoreUse, candidates, load_trusted_config, open_state, print, trajectory_file,
    trusted_config,
};
use crate::compose::{self, StateDir, Stores};
use crate::config::{Overrides, Runtime};
use crate::exit::{Exit, UsageError};
use crate::terminal_input::PendingInputGuard;
use crate::workspace;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Attaches to an action that was running when the earlier process died, and never runs it again.
After a limit, the agent gets the same number of steps again, or -i N, and the same budget again, or -b DOLLARS.
--model and --runtime also apply to later calls of the command.
Example: glovebox resume --last --runtime local -t 'Run the tests again'")]
pub(super) struct ResumeArguments {
    #[command(flatten)]
    conversation: ConversationChoice,

    /// Message to the agent.
    #[arg(short = 't', long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    task: Option<String>,

    /// Recovery of an agent that was stopped in a loop. By default, `before`.
    #[arg(long, value_name = "HOW", value_enum)]
    from_loop: Option<FromLoop>,

    /// Approve the action that awaits confirmation.
    #[arg(long)]
    confirm: bool,

    /// Reject the action that awaits confirmation, with this reason for the agent.
    #[arg(long, value_name = "REASON", conflicts_with = "confirm", value_parser = NonEmptyStringValueParser::new())]
    reject: Option<String>,

    /// Continue in a new sandbox of this runtime: docker or local, which share the workspace. The
    /// sandbox so far is removed.
    #[arg(long, value_name = "RUNTIME", add = ArgValueCandidates::new(candidates::runtimes))]
    runtime: Option<Runtime>,

    #[command(flatten)]
    runtime_options: RuntimeOptions,

    #[command(flatten)]
    options: RunOptions,
}

/// V0's recoveries from a loop.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FromLoop {
    /// Forget the loop.
    Before,
    /// Forget the loop, and send the last message again.
    Message,
    /// Stop the agent.
    Stop,
}

impl From<FromLoop> for LoopRecovery {
    fn from(recovery: FromLoop) -> Self {
        match recovery {
            FromLoop::Before => Self::BeforeLoop,
            FromLoop::Message => Self::LastUserMessage,
            FromLoop::Stop => Self::Stop,
        }
    }
}

/// Resumes a conversation of a server.
pub(super) async fn run_on_server(
    arguments: ResumeArguments,
    url: &str,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let ResumeArguments {
        conversation,
        task,
        from_loop,
        confirm,
        reject,
        runtime,
        runtime_options,
        options,
    } = arguments;
    // The operator grants limits.
    let limits = RunOptions {
        max_iterations: None,
        max_budget: None,
        ..options.clone()
    };
    let runtime = runtime.map(|_| "--runtime");
    let given = runtime.or(runtime_options.first_given_option());
    if let Some(option) = given.or(limits.given_for_this_machine()) {
        return Err(UsageError(format!("{option} is chosen by the server")).into());
    }
    let server = RemoteServer::open(url, overrides)?;
    let item = server.find(&conversation).await?;
    let decision = match reject {
        Some(reason) => Some(UserCommand::Reject {
            action: None,
            reason,
        }),
        None => confirm.then(|| UserCommand::confirm(None)),
    };
    // An agent that works or asks needs no command: what it asks is shown.
    let is_active = match item.status {
        ConversationStatus::Agent(state) => {
            state.is_working()
                || state == AgentState::AwaitingUserInput
                || state == AgentState::AwaitingUserConfirmation
        }
        ConversationStatus::Interrupted | ConversationStatus::Damaged => false,
    };
    let resume = match from_loop {
        Some(recovery) => Some(UserCommand::RecoverFromLoop {
            recovery: recovery.into(),
        }),
        // A message and a decision let the agent continue.
        None if task.is_some() || decision.is_some() || is_active => None,
        None => Some(UserCommand::Resume {
            more_iterations: None,
            more_budget: None,
        }),
    };
    let has_limits = options.max_iterations.is_some() || options.max_budget.is_some();
    let limits = has_limits.then_some(UserCommand::Resume {
        more_iterations: options.max_iterations,
        more_budget: options.max_budget,
    });
    if item.agent_state == Some(AgentState::Finished) && task.is_none() {
        print_finished(&item.id);
        return Ok(Exit::Finished);
    }
    let is_answered = task.is_some() || decision.is_some();
    let message = task.map(UserCommand::message);
    // Before the message, which would meet the old limits.
    let resume = match (resume, limits) {
        (Some(UserCommand::Resume { .. }) | None, Some(limits)) => [None, Some(limits)],
        resume_and_limits => resume_and_limits.into(),
    };
    let model = options.model.clone();
    let model = model.map(|model| UserCommand::SetModel { model });
    let commands: Vec<_> = [model]
        .into_iter()
        .chain(resume)
        .chain([decision, message])
        .flatten()
        .collect();
    // What an agent asks is shown with its question.
    let event_count = match is_answered || !is_active {
        true => item.event_count,
        false => 0,
    };
    remote::resume(server, &item.id, event_count, commands, options.output()).await
}

pub(super) async fn run(arguments: ResumeArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let overrides = arguments
        .options
        .overrides(arguments.runtime_options.overrides(overrides));
    let overrides = Overrides {
        runtime: arguments.runtime,
        ..overrides
    };
    let config = trusted_config::load(&overrides)?;
    let state_dir = open_state(&config, &overrides, StoreUse::Show)?;
    let stores = Stores::open(&config, &state_dir).await?;
    let exit = resume_in(&stores, arguments, overrides, &state_dir).await;
    stores.close().await;
    exit
}

fn print_finished(id: &ConversationId) {
    print::note(&format!(
        "conversation {id} has finished; send another message with -t TEXT\n"
    ));
}

async fn resume_in(
    stores: &Stores,
    arguments: ResumeArguments,
    overrides: Overrides,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let ResumeArguments {
        conversation,
        task,
        from_loop,
        confirm,
        reject,
        options,
        ..
    } = arguments;
    let conversations = stores.conversations().await?;
    let id = conversations.find(&conversation.selector()).await?;
    let _input = PendingInputGuard;
    let mut stored = conversations.open(&id).await?;
    let mut started = stored.started.clone();
    if started.agent.starts_with('/') {
        workspace::check_not_replaced("agent", Path::new(&started.agent))?;
    }
    // The configuration depends on the agent, which is that of the log.
    let overrides = Overrides {
        agent: Some(started.agent.clone()),
        ..overrides
    };
    let mut config = load_trusted_config(&overrides)?;
    let has_message = task.is_some();
    let resume = match from_loop {
        Some(recovery) => UserCommand::RecoverFromLoop {
            recovery: recovery.into(),
        },
        None => UserCommand::Resume {
            more_iterations: options.max_iterations,
            more_budget: options.max_budget.or(stored.spent_budget()),
        },
    };
    let decision = match reject {
        Some(reason) => Some(UserCommand::Reject {
            action: None,
            reason,
        }),
        None => confirm.then(|| UserCommand::confirm(None)),
    };
    let message = task.map(UserCommand::message);
    let mut commands: Vec<_> = [Some(resume), decision, message]
        .into_iter()
        .flatten()
        .collect();
    for command in &commands {
        stored.check(command)?;
    }
    // At a terminal, the user is asked for the message.
    let asks = !has_message
        && stored.state.agent_state == AgentState::AwaitingUserInput
        && TerminalPrompt::at_terminal(options.output()).is_some();
    if stored.awaits_message() && !has_message && !asks {
        print_finished(&id);
        let outcome = run_outcome(&stored.state);
        return Ok(super::follow::exit_of(outcome, false));
    }
    if stored.state.last_user_message.is_none() && !has_message && !asks {
        let text = format!("conversation {id} has no task: send one with -t TEXT");
        return Err(UsageError(text).into());
    }
    compose::restore_settings(&mut config, &started, &overrides)?;
    if overrides.model.is_some() {
        started.model = compose::stored_model_name(&config.llm);
        let model = started.model.clone();
        commands.insert(0, UserCommand::SetModel { model });
    }
    compose::choose_runtime(&mut config, state_dir).await?;
    let changed = RuntimeChange::new(&id, &mut started, config.runtime)?;
    for name in stored
        .secrets
        .iter()
        .filter(|name| !config.secrets.contains_key(*name))
    {
        print::warning(&format!(
            "the conversation's secret {name} is missing: commands cannot use it, and its value is not redacted; add \
             --secret {name}"
        ));
    }
    workspace::locate_copied(&mut started, &config, state_dir, &id);
    // A folder of another machine cannot be checked.
    let folder = started
        .workspace
        .as_deref()
        .filter(|_| !config.runtime.is_on_other_machine());
    let folder = folder.map(Path::new);
    folder.map_or(Ok(()), |folder| {
        workspace::check_not_replaced("workspace", folder)
    })?;
    let trajectory = trajectory_file::prepare(&config, &id)?;
    let agent = compose::agent(&config)?;
    let models = options.models(&config, stored.state.iterations as usize, &id)?;
    options.reach_provider(&config).await?;
    // An empty workspace was removed.
    if state_dir
        .workspace_in_log(&id, started.workspace.as_deref())
        .is_some()
    {
        state_dir.workspace(&id)?;
    }
    if let Some(folder) = folder.filter(|folder| folder.exists()) {
        conversation_run::lock_folder(stored.claim(), folder)?;
    }
    super::warn_about_runtime(&config, &overrides);
    let run = ConversationRun {
        conversations: &conversations,
        id: &id,
        config: &config,
        state_dir,
        options: &options,
    };
    let max_budget = options.max_budget.or(stored.state.max_budget);
    let parts = run.compose_parts(&started, &models, agent, max_budget)?;
    let sweep = compose::sweep(&parts.provider, &config, stores);
    if let Some(changed) = changed {
        changed
            .remove_sandbox(&config, state_dir, stored.state.lease.as_ref())
            .await;
    }
    let from = stored
        .last_message
        .filter(|_| asks)
        .unwrap_or(stored.state.next_id);
    let confirmation = stored
        .is_held()
        .then(|| compose::confirmation_policy(&config.security));
    conversations.resume(stored, parts, confirmation).await?;
    // Together, so that the agent does not act between them.
    let mut applying = None;
    for command in commands {
        applying = Some(conversations.submit(&id, command)?);
    }
    if let Some(last) = applying {
        // An error means that the conversation has failed, and closing it returns the reason.
        drop(last.await);
    }
    run.finish(from, true, trajectory, sweep).await
}
