//! Runs commands in a sandbox that is removed afterwards.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use engine::sandbox::{Sandbox, SandboxProvider, SandboxSpec, StartProgress};
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, EventId, Observation};

use super::interrupts::{Interrupts, STOP_GRACE_PERIOD};
use super::print;
use super::screen::{Output, Screen};
use crate::compose::{self, StateDir, Stores};
use crate::config::Config;

/// Result of a command.
pub(super) enum CommandResult {
    /// The command completed.
    Done(Observation),
    /// The user interrupted it. `None` if no observation was received within the grace period.
    Interrupted(Option<Observation>),
}

/// Runs one script in a sandbox that is removed afterwards, also after ^C. `timeout` is in seconds.
/// `None`: unlimited.
pub(super) async fn in_fresh_sandbox(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    script: String,
    timeout: Option<f64>,
) -> anyhow::Result<CommandResult> {
    let id = ActionId::for_event(&spec.conversation, EventId::FIRST);
    // Hidden, because the output of other commands is truncated to 30,000 characters for agents.
    let run = RunAction {
        command: script,
        blocking: true,
        hidden: true,
        ..Default::default()
    };
    let request = ActionRequest::new(SandboxAction::Run(run), timeout);
    let result = with_fresh_sandbox(
        config,
        state_dir,
        spec,
        Output::Silent,
        async |sandbox, interrupts| execute_or_cancel(sandbox, &id, &request, interrupts).await,
    );
    Ok(result.await?.unwrap_or(CommandResult::Interrupted(None)))
}

/// Runs `work` in a sandbox that is removed afterwards, also after ^C. `None` if it was interrupted
/// before the sandbox was created.
pub(super) async fn with_fresh_sandbox<T>(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    output: Output,
    work: impl AsyncFnOnce(&dyn Sandbox, &mut Interrupts) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let mut interrupts = Interrupts::listen()?;
    let _lock = state_dir.lock(&spec.conversation)?;
    let provider = compose::guarded_provider(config, state_dir)?;
    let opening = interrupts
        .unless_interrupted(Stores::open(config, state_dir))
        .await;
    let Some(stores) = opening.transpose()? else {
        return Ok(None);
    };
    let sweep = compose::sweep(&provider, config, &stores);
    let created = create_unless_interrupted(provider.as_ref(), &spec, output, &mut interrupts);
    let Some(sandbox) = created.await? else {
        return Ok(None);
    };
    let result = work(sandbox.as_ref(), &mut interrupts).await;
    let sandbox_id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    if let Err(error) = provider.destroy(&sandbox_id).await {
        print::warning(&format!("cannot remove the sandbox {sandbox_id}: {error}"));
    }
    sweep.finish().await;
    stores.close().await;
    result.map(Some)
}

/// Creates a sandbox and shows the progress. `None` if it was interrupted, after which nothing of
/// the sandbox remains.
pub(super) async fn create_unless_interrupted(
    provider: &dyn SandboxProvider,
    spec: &SandboxSpec,
    output: Output,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Option<Box<dyn Sandbox>>> {
    let screen = Mutex::new(Screen::new(output));
    let on_progress = |progress: StartProgress| {
        screen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .show_start(&progress.into());
    };
    let creating = provider.create(spec, &on_progress);
    tokio::select! {
        created = print::with_notice("the sandbox", creating) => Ok(Some(created?)),
        () = interrupts.next() => {
            provider.wait_for_cleanup().await;
            Ok(None)
        }
    }
}

/// Executes a command. The first interrupt cancels it and waits for its observation. The second
/// returns immediately, because the removal of the sandbox kills the command.
async fn execute_or_cancel(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    request: &ActionRequest,
    interrupts: &mut Interrupts,
) -> anyhow::Result<CommandResult> {
    let mut executing = pin!(sandbox.execute(id, request, &|_| ()));
    tokio::select! {
        observation = &mut executing => return Ok(CommandResult::Done(observation?)),
        () = interrupts.next() => {}
    }
    let cancelling = async {
        tokio::try_join!(sandbox.cancel(id), executing).map(|((), observation)| observation)
    };
    let result = tokio::select! {
        result = tokio::time::timeout(STOP_GRACE_PERIOD, cancelling) => result,
        () = interrupts.next() => return Ok(CommandResult::Interrupted(None)),
    };
    Ok(CommandResult::Interrupted(match result {
        Ok(Ok(observation)) => Some(observation),
        // The removal of the sandbox kills the command.
        Ok(Err(error)) => {
            print::warning(&format!("cannot cancel the command: {error:#}"));
            None
        }
        Err(_) => None,
    }))
}
