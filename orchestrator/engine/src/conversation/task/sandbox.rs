//! Work in the sandbox and at tool servers: connecting, and performing actions.

use std::sync::Arc;
use std::time::Duration;

use protocol::action::CallToolMcpAction;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::ActionRequest;
use protocol::{ActionId, EventId};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Task, WorkResult};
use crate::agent::tools::add_code_graph;
use crate::conversation::input::InputKind;
use crate::conversation::live::LiveUpdate;
use crate::conversation::parts::EngineParts;
use crate::conversation::terminal::interrupted;
use crate::errors::format_chain;
use crate::sandbox::{OutputChunk, Sandbox, SandboxError};

/// Interval at which a cancel request is repeated: one may be lost with its connection.
const CANCEL_INTERVAL: Duration = Duration::from_secs(1);

/// An action in flight.
pub(super) struct RunningAction {
    pub(super) cancel: CancellationToken,
    pub(super) performer: Performer,
    abort: AbortHandle,
}

/// What performs an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Performer {
    /// The sandbox, where it continues without this process.
    Sandbox,
    /// A model, for a file of the sandbox.
    DraftEditor,
    /// A tool server.
    ToolServer,
}

impl Task {
    pub(super) fn create_sandbox(&mut self) {
        let EngineParts { provider, spec, .. } = self.parts.clone();
        let live = self.live.clone();
        let creating = async move {
            let on_progress = move |progress| drop(live.send(LiveUpdate::Start(progress)));
            WorkResult::Sandbox(provider.create(&spec, &on_progress).await.map(Arc::from))
        };
        self.work
            .spawn(creating.instrument(tracing::info_span!("create_sandbox")));
    }

    pub(super) fn attach_sandbox(&mut self, lease: SandboxLeased) {
        let provider = Arc::clone(&self.parts.provider);
        let span = tracing::info_span!("attach_sandbox", sandbox = %lease.sandbox_id);
        let attaching = async move {
            // The sandbox may be paused. If it cannot be resumed, attaching fails.
            if let Ok(pausing) = provider.pausing()
                && let Err(error) = pausing.resume(&lease.sandbox_id).await
            {
                tracing::debug!(%error, "cannot resume the sandbox");
            }
            WorkResult::Sandbox(provider.attach(&lease).await.map(Arc::from))
        };
        self.work.spawn(attaching.instrument(span));
    }

    /// Drops the sandbox with all actions in it. Returns the input that reports why.
    pub(super) fn lose_sandbox(&mut self, error: &SandboxError) -> InputKind {
        self.sandbox.send_replace(None);
        for (_, running) in self
            .actions
            .extract_if(.., |_, running| running.performer != Performer::ToolServer)
        {
            running.abort.abort();
        }
        match error {
            SandboxError::Lost { detail } => InputKind::SandboxLost {
                detail: detail.clone(),
            },
            other => InputKind::SandboxFailed {
                reason: describe(other),
            },
        }
    }

    /// Starts work on an action with a token that cancels it.
    pub(super) fn start_action<F>(
        &mut self,
        action: EventId,
        performer: Performer,
        work: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = WorkResult> + Send + 'static,
    {
        let cancel = CancellationToken::new();
        let sandbox = self
            .connected_sandbox()
            .filter(|_| performer != Performer::ToolServer);
        let sandbox = sandbox
            .as_ref()
            .map(|sandbox| tracing::field::display(&sandbox.lease().sandbox_id));
        let span = tracing::info_span!("action", id = %action, sandbox);
        let abort = self.work.spawn(work(cancel.clone()).instrument(span));
        self.actions.insert(
            action,
            RunningAction {
                cancel,
                performer,
                abort,
            },
        );
    }

    /// Calls a tool of a tool server. A cancelled call is interrupted, because its result cannot be
    /// read later.
    pub(super) fn call_tool(&mut self, action: EventId, call: CallToolMcpAction) {
        let (runner, workspace) = (self.step_runner_for(action), self.current_workspace());
        self.start_action(action, Performer::ToolServer, |cancel| async move {
            let response = async {
                // Starts servers that an earlier process had started, or that have exited.
                drop(runner.offer(&workspace).await);
                runner
                    .tool_servers()
                    .call(&call.name, &call.arguments)
                    .await
            };
            let observation = tokio::select! {
                biased;
                () = cancel.cancelled() => interrupted("the user stopped the tool server's call"),
                observation = response => observation,
            };
            WorkResult::Action {
                action,
                result: Ok(observation),
            }
        });
    }

    pub(super) fn execute(
        &mut self,
        action: EventId,
        mut request: ActionRequest,
        time_left: Option<Duration>,
    ) {
        let Some(sandbox) = self.connected_sandbox() else {
            return tracing::error!(%action, "an action was started without a sandbox");
        };
        add_code_graph(&mut request);
        let cancelled_at = time_left.and_then(|left| Instant::now().checked_add(left));
        let id = ActionId::for_event(&self.id, action);
        let live = self.live.clone();
        self.start_action(action, Performer::Sandbox, |cancel| async move {
            tracing::debug!("performing an action");
            let on_output = move |chunk: OutputChunk<'_>| {
                drop(live.send(match chunk {
                    OutputChunk::Bytes { offset, bytes } => {
                        LiveUpdate::Output { action, offset, bytes: bytes.to_vec() }
                    }
                    OutputChunk::Gap { from, to } => LiveUpdate::OutputGap { action, from, to },
                }));
            };
            let result = tokio::select! {
                biased;
                result = sandbox.execute(&id, &request, &on_output) => result,
                never = cancel_on_request(sandbox.as_ref(), &id, &cancel, cancelled_at) => match never {},
            };
            if let Err(error) = &result
                && !error.ends_connection()
                && let Err(error) = sandbox.cancel(&id).await
            {
                tracing::warn!(action = %id, %error, "cannot cancel an action whose connection failed");
            }
            tracing::debug!(is_ok = result.is_ok(), "the action has ended");
            WorkResult::Action { action, result }
        });
    }
}

/// Cancels an action on request, or when its time is over, and repeats that until the action ends
/// and this future is dropped.
async fn cancel_on_request(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    cancel: &CancellationToken,
    cancelled_at: Option<Instant>,
) -> std::convert::Infallible {
    match cancelled_at {
        None => cancel.cancelled().await,
        // Both the request and the timeout cancel it.
        Some(at) => drop(tokio::time::timeout_at(at, cancel.cancelled()).await),
    }
    loop {
        if let Err(error) = sandbox.cancel(id).await {
            tracing::warn!(action = %id, %error, "cannot cancel an action");
        }
        tokio::time::sleep(CANCEL_INTERVAL).await;
    }
}

/// An error with its causes, and the end of the sandbox's logs if there are any.
fn describe(error: &SandboxError) -> String {
    let mut text = format_chain(error);
    if let SandboxError::Start { logs, .. } = error
        && !logs.trim().is_empty()
    {
        text.push_str(&format!("\nthe sandbox wrote:\n{}", logs.trim_end()));
    }
    text
}
