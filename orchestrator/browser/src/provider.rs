//! Decorator of a sandbox provider that adds a browser.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    Sandbox, SandboxError, SandboxMonitoring, SandboxPausing, SandboxProvider, SandboxSnapshots,
    SandboxSpec, SandboxSummary, ServerAccess, StartProgress,
};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
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

    fn with_browser(&self, sandbox: Box<dyn Sandbox>) -> Box<dyn Sandbox> {
        Box::new(BrowsingSandbox::new(
            sandbox,
            self.used.clone(),
            self.has_marks,
        ))
    }
}

#[async_trait]
impl SandboxProvider for BrowsingProvider {
    fn runtime(&self) -> &'static str {
        self.provider.runtime()
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(self.with_browser(self.provider.create(spec, on_progress).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(self.with_browser(self.provider.attach(lease).await?))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(self.with_browser(self.provider.find(sandbox).await?))
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.provider.list().await
    }

    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        self.provider.pausing()
    }

    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        self.provider.snapshots()
    }

    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        self.provider.monitoring()
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        self.provider.server_access(sandbox).await
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

    async fn wait_for_cleanup(&self) {
        self.provider.wait_for_cleanup().await;
    }

    async fn shut_down(&self) {
        self.provider.shut_down().await;
    }
}

#[cfg(test)]
mod tests {
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
