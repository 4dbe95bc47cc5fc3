//! Wraps a provider so that its sandboxes inject and redact secrets.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::SandboxId;

use super::guarded_sandbox::{GuardedSandbox, redact_error};
use super::{Redactor, SecretRegistry};
use crate::sandbox::decorator::{ConnectResult, ProviderDecorator};
use crate::sandbox::{
    ProviderCapabilities, ResourceUsage, SandboxDetails, SandboxError, SandboxMonitoring,
    SandboxProvider,
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
}

#[async_trait]
impl ProviderDecorator for GuardedProvider {
    fn inner(&self) -> &dyn SandboxProvider {
        &*self.provider
    }

    fn wrap(&self, result: ConnectResult) -> ConnectResult {
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

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        let capabilities = self.provider.capabilities();
        ProviderCapabilities {
            monitoring: capabilities.monitoring.map(|_| self as _),
            ..capabilities
        }
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
