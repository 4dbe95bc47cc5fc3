//! A sandbox with a browser alongside its action server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use engine::browsing::{self, BrowserCall};
use engine::sandbox::{
    OnOutput, Sandbox, SandboxError, SandboxFiles, SandboxProcesses, SandboxStreams,
};
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, Observation};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::folder::BrowserFolder;
use crate::owner::{self, BrowserTask};
use crate::provider::BrowsedSandboxes;

/// Maximum timeout of an action: one day.
const MAX_TIMEOUT_SECS: f64 = 86_400.0;

/// Maximum length of an action's text in its observation, in characters.
const MAX_ACTION_CHARS: usize = 4_000;

/// Sandbox that performs browser actions itself, and forwards all others.
pub(crate) struct BrowsingSandbox {
    sandbox: Arc<dyn Sandbox>,
    tasks: mpsc::Sender<BrowserTask>,
    used: BrowsedSandboxes,
    /// Tokens of the actions that run or that a caller waits for. The lock is never held across an
    /// await.
    running: Mutex<HashMap<ActionId, Weak<CancellationToken>>>,
}

impl BrowsingSandbox {
    pub(crate) fn new(sandbox: Box<dyn Sandbox>, used: BrowsedSandboxes, has_marks: bool) -> Self {
        let sandbox: Arc<dyn Sandbox> = Arc::from(sandbox);
        let tasks = owner::start(
            BrowserFolder {
                sandbox: Arc::clone(&sandbox),
            },
            has_marks,
        );
        Self {
            sandbox,
            tasks,
            used,
            running: Mutex::default(),
        }
    }

    /// Returns the token of an action. Callers with the same id share it, because their action is
    /// performed only once.
    fn cancellation_token(&self, id: &ActionId) -> Arc<CancellationToken> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, cancel| cancel.strong_count() > 0);
        let shared = running.get(id).and_then(Weak::upgrade);
        let cancel = shared.unwrap_or_default();
        running.insert(id.clone(), Arc::downgrade(&cancel));
        cancel
    }

    async fn browse(
        &self,
        id: &ActionId,
        trigger: &'static str,
        source: &str,
        calls: Result<Vec<BrowserCall>, String>,
        timeout: Option<f64>,
    ) -> Result<Observation, SandboxError> {
        self.used.insert(&self.sandbox);
        let cancel = self.cancellation_token(id);
        let (reply, replied) = oneshot::channel();
        let timeout = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds.min(MAX_TIMEOUT_SECS)).ok());
        let source = source.chars().take(MAX_ACTION_CHARS).collect();
        // The action continues even if the caller is cancelled.
        let task = BrowserTask {
            id: id.clone(),
            trigger,
            source,
            calls,
            timeout,
            cancel,
            reply,
        };
        let refused = |detail: &str| SandboxError::Refused {
            detail: detail.to_owned(),
        };
        match self.tasks.try_send(task) {
            Ok(()) => replied
                .await
                .unwrap_or_else(|_| Err(refused("the browser's task has ended"))),
            Err(TrySendError::Full(_)) => Err(refused("too many actions wait for the browser")),
            Err(TrySendError::Closed(_)) => Err(refused("the browser's task has ended")),
        }
    }
}

#[async_trait]
impl Sandbox for BrowsingSandbox {
    fn lease(&self) -> &SandboxLeased {
        self.sandbox.lease()
    }

    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError> {
        match &request.action {
            SandboxAction::Browse(browse) => {
                let address =
                    browsing::normalize_address(&browse.url).map_err(|error| error.to_string());
                let source = format!("goto({:?})", browse.url);
                let calls = address.map(|url| vec![BrowserCall::Goto(url)]);
                self.browse(id, "browse", &source, calls, request.timeout)
                    .await
            }
            SandboxAction::BrowseInteractive(browse) => {
                let calls =
                    browsing::parse(&browse.browser_actions).map_err(|error| error.to_string());
                self.browse(
                    id,
                    "browse_interactive",
                    &browse.browser_actions,
                    calls,
                    request.timeout,
                )
                .await
            }
            SandboxAction::Run(_)
            | SandboxAction::RunIpython(_)
            | SandboxAction::Read(_)
            | SandboxAction::Write(_)
            | SandboxAction::Edit(_) => self.sandbox.execute(id, request, on_output).await,
        }
    }

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .and_then(Weak::upgrade);
        match running {
            Some(cancel) => {
                cancel.cancel();
                Ok(())
            }
            None => self.sandbox.cancel(id).await,
        }
    }

    async fn check_connection(&self) -> Result<(), SandboxError> {
        self.sandbox.check_connection().await
    }

    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
        self.sandbox.processes()
    }

    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
        self.sandbox.streams()
    }

    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
        self.sandbox.files()
    }
}
