//! A sandbox provider that fails at times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    ProviderCapabilities, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary,
    ServerAccess, StartProgress,
};
use engine::testing::ScriptedProvider;
use protocol::SandboxId;
use protocol::record::SandboxLeased;

use super::model::SandboxMonitor;

/// The provider of one process.
pub(crate) struct Provider {
    pub(crate) scripted: ScriptedProvider,
    pub(crate) refuses: Arc<AtomicBool>,
    pub(crate) sandbox: Arc<SandboxMonitor>,
}

impl Provider {
    async fn connect(
        &self,
        sandbox: impl Future<Output = Result<Box<dyn Sandbox>, SandboxError>>,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if self.refuses.load(Ordering::Relaxed) {
            return Err(SandboxError::Start {
                detail: "the engine does not answer".into(),
                logs: String::new(),
            });
        }
        let sandbox = sandbox.await?;
        self.sandbox.is_connected.store(true, Ordering::Relaxed);
        Ok(sandbox)
    }
}

#[async_trait]
impl SandboxProvider for Provider {
    fn runtime(&self) -> &'static str {
        self.scripted.runtime()
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.connect(self.scripted.create(spec, on_progress)).await
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.connect(self.scripted.attach(lease)).await
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.scripted.find(sandbox).await
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.scripted.list().await
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        self.scripted.capabilities()
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        self.scripted.server_access(sandbox).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.scripted.destroy(sandbox).await
    }

    async fn wait_for_cleanup(&self) {}
}
