//! Wraps a provider so that its sandboxes inject and redact secrets.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::SandboxId;
use protocol::record::SandboxLeased;

use super::guarded_sandbox::{GuardedSandbox, redact_error};
use super::{Redactor, SecretRegistry};
use crate::sandbox::{
    ResourceUsage, Sandbox, SandboxDetails, SandboxError, SandboxMonitoring, SandboxPausing,
    SandboxProvider, SandboxSnapshots, SandboxSpec, SandboxSummary, ServerAccess, StartProgress,
};

/// Wraps the sandbox provider of a conversation.
pub struct GuardedProvider {
    provider: Arc<dyn SandboxProvider>,
    redactor: Redactor,
    registry: SecretRegistry,
}

impl GuardedProvider {
    /// Wraps a provider. Commands get the secrets of `registry` that they name; `redactor` redacts
    /// all output.
    pub fn new(
        provider: Arc<dyn SandboxProvider>,
        redactor: Redactor,
        registry: SecretRegistry,
    ) -> Self {
        Self {
            provider,
            redactor,
            registry,
        }
    }

    fn guard(
        &self,
        result: Result<Box<dyn Sandbox>, SandboxError>,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        match result {
            Ok(sandbox) => {
                let (redactor, registry) = (self.redactor.clone(), self.registry.clone());
                Ok(Box::new(GuardedSandbox {
                    sandbox,
                    redactor,
                    registry,
                }))
            }
            Err(error) => Err(redact_error(&self.redactor, error)),
        }
    }
}

#[async_trait]
impl SandboxProvider for GuardedProvider {
    fn runtime(&self) -> &'static str {
        self.provider.runtime()
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.guard(self.provider.create(spec, on_progress).await)
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.guard(self.provider.attach(lease).await)
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.guard(self.provider.find(sandbox).await)
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
        Ok(self)
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        self.provider.server_access(sandbox).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.provider.destroy(sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.provider.wait_for_cleanup().await;
    }

    async fn shut_down(&self) {
        self.provider.shut_down().await;
    }
}

#[async_trait]
impl SandboxMonitoring for GuardedProvider {
    async fn details(&self, sandbox: &SandboxId) -> Result<SandboxDetails, SandboxError> {
        self.provider.monitoring()?.details(sandbox).await
    }

    async fn usage(&self, sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        self.provider.monitoring()?.usage(sandbox).await
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        let logs = self.provider.monitoring()?.logs(sandbox).await?;
        Ok(self.redactor.text(&logs).into_owned())
    }
}
