//! Decorator of a sandbox provider that adds a browser.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::decorator::{ConnectResult, ProviderDecorator};
use engine::sandbox::{Sandbox, SandboxError, SandboxProvider};
use protocol::SandboxId;
use tokio::time::timeout;

use crate::folder::BrowserFolder;
use crate::sandbox::BrowsingSandbox;

/// Time to terminate a browser before its sandbox is removed. Longer than the timeout of the
/// script's step.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Sandboxes in which a browser was used. The lock is never held across an await.
#[derive(Clone, Default)]
pub(crate) struct BrowsedSandboxes(Arc<Mutex<HashMap<SandboxId, Weak<dyn Sandbox>>>>);

impl BrowsedSandboxes {
    pub(crate) fn insert(&self, sandbox: &Arc<dyn Sandbox>) {
        let id = sandbox.lease().sandbox_id.clone();
        self.with(|used| {
            // Other providers may have destroyed them.
            used.retain(|_, sandbox| sandbox.strong_count() > 0);
            used.insert(id, Arc::downgrade(sandbox));
        });
    }

    fn with<T>(&self, update: impl FnOnce(&mut HashMap<SandboxId, Weak<dyn Sandbox>>) -> T) -> T {
        update(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Provider that adds a browser to the sandboxes of another provider.
pub struct BrowsingProvider {
    provider: Arc<dyn SandboxProvider>,
    used: BrowsedSandboxes,
    has_marks: bool,
}

impl BrowsingProvider {
    /// Wraps a provider. The browser of a sandbox is started by its first browser action.
    pub fn new(provider: Arc<dyn SandboxProvider>) -> Self {
        Self {
            provider,
            used: BrowsedSandboxes::default(),
            has_marks: false,
        }
    }

    /// Sets whether each observation has a second screenshot in which interactive elements are
    /// framed and numbered (V0's set-of-marks).
    #[must_use]
    pub fn with_marks(self, has_marks: bool) -> Self {
        Self { has_marks, ..self }
    }
}

#[async_trait]
impl ProviderDecorator for BrowsingProvider {
    fn inner(&self) -> &dyn SandboxProvider {
        &*self.provider
    }

    fn wrap(&self, result: ConnectResult) -> ConnectResult {
        Ok(Box::new(BrowsingSandbox::new(
            result?,
            self.used.clone(),
            self.has_marks,
        )))
    }

    /// Removes the browser's files, which would stay if the sandbox shares the host's folder for
    /// temporary files.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Some(used) = self
            .used
            .with(|used| used.remove(sandbox))
            .and_then(|used| used.upgrade())
        {
            let removed = timeout(
                TERMINATION_TIMEOUT,
                BrowserFolder { sandbox: used }.remove(),
            )
            .await;
            tracing::debug!(%sandbox, ?removed, "removed the browser");
        }
        self.provider.destroy(sandbox).await
    }
}

#[cfg(test)]
mod tests {
    use engine::sandbox::SandboxSpec;
    use engine::testing::{ScriptedProvider, ScriptedResult};
    use protocol::Observation;

    use super::*;

    #[tokio::test]
    async fn dropped_sandboxes_are_forgotten() {
        let scripted = ScriptedProvider::new(|_| {
            ScriptedResult::Observation(Observation::error("no action", ""))
        });
        let sandbox = async |conversation: &str| -> Arc<dyn Sandbox> {
            let spec = SandboxSpec::new(conversation.parse().unwrap());
            Arc::from(scripted.create(&spec, &|_| {}).await.unwrap())
        };
        let used = BrowsedSandboxes::default();
        used.insert(&sandbox("dropped").await);
        let in_use = sandbox("in-use").await;
        used.insert(&in_use);
        assert_eq!(
            used.with(|used| used.keys().cloned().collect::<Vec<_>>()),
            [in_use.lease().sandbox_id.clone()]
        );
    }
}
