//! Places the sandboxes of another provider, and has a browser in them when one is wanted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    ResourceUsage, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary, ServerAccess,
    Snapshot, SnapshotPurpose, StartProgress,
};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use tokio::time::timeout;

use crate::place::Place;
use crate::sandbox::BrowsingSandbox;

/// How long the end of a browser may take before its sandbox is removed: longer than its step, also on a busy machine.
const ENDING: Duration = Duration::from_secs(30);

/// The sandboxes in which a browser was wanted. Held for a look only.
#[derive(Clone, Default)]
pub(crate) struct Used(Arc<Mutex<HashMap<SandboxId, Weak<dyn Sandbox>>>>);

impl Used {
    pub(crate) fn insert(&self, sandbox: &Arc<dyn Sandbox>) {
        let id = sandbox.lease().sandbox_id.clone();
        self.with(|used| used.insert(id, Arc::downgrade(sandbox)));
    }

    fn with<T>(&self, look: impl FnOnce(&mut HashMap<SandboxId, Weak<dyn Sandbox>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Stands before a provider.
pub struct BrowsingProvider {
    provider: Arc<dyn SandboxProvider>,
    used: Used,
    has_marks: bool,
}

impl BrowsingProvider {
    /// Stands before this provider. Nothing is done in a sandbox before its first page.
    pub fn new(provider: Arc<dyn SandboxProvider>) -> Self {
        Self { provider, used: Used::default(), has_marks: false }
    }

    /// Whether each observation holds a second picture, on which each element that can be operated has a frame with its id
    /// (V0's set of marks).
    #[must_use]
    pub fn with_marks(self, has_marks: bool) -> Self {
        Self { has_marks, ..self }
    }

    fn with_browser(&self, sandbox: Box<dyn Sandbox>) -> Box<dyn Sandbox> {
        Box::new(BrowsingSandbox::new(sandbox, self.used.clone(), self.has_marks))
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

    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.provider.pause(sandbox).await
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.provider.resume(sandbox).await
    }

    async fn snapshot(
        &self,
        sandbox: &SandboxId,
        purpose: SnapshotPurpose<'_>,
    ) -> Result<String, SandboxError> {
        self.provider.snapshot(sandbox, purpose).await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, SandboxError> {
        self.provider.snapshots().await
    }

    async fn remove_snapshot(&self, image: &str) -> Result<(), SandboxError> {
        self.provider.remove_snapshot(image).await
    }

    async fn usage(&self, sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        self.provider.usage(sandbox).await
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        self.provider.logs(sandbox).await
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        self.provider.server_access(sandbox).await
    }

    /// Where the sandbox has its temporary files from the machine, the browser's would stay.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Some(used) = self.used.with(|used| used.remove(sandbox)).and_then(|used| used.upgrade()) {
            let ended = timeout(ENDING, Place { sandbox: used }.end()).await;
            tracing::debug!(%sandbox, ?ended, "ended the browser");
        }
        self.provider.destroy(sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.provider.wait_for_cleanup().await;
    }
}
