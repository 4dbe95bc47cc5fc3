//! The sandbox provider of every backend: ids, readiness, the environment, and the removal of
//! unfinished starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use engine::errors::format_chain;
use engine::sandbox::{
    ProviderCapabilities, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary,
    ServerAccess, StartProgress,
};
use protocol::record::SandboxLeased;
use protocol::{BootId, SandboxId};
use tokio_util::task::TaskTracker;

use crate::action_client::ActionClient;
use crate::backend::{Backend, OnPaused, ProvisionRequest, Provisioned};
use crate::provisioning::sandbox_id_of;
use crate::unfinished_start::UnfinishedStart;

/// Provides the sandboxes of a backend.
pub struct Provider<B> {
    backend: Arc<B>,
    removals: TaskTracker,
}

impl<B: Backend> Provider<B> {
    /// Creates the provider of a backend, or of its configuration.
    pub fn new(backend: impl Into<B>) -> Self {
        let backend = backend.into();
        Self {
            removals: backend.tasks(),
            backend: Arc::new(backend),
        }
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    async fn start(&self, request: &ProvisionRequest<'_>) -> Result<ActionClient, SandboxError> {
        let (sandbox, environment) = (request.sandbox, &request.spec.environment);
        let server = match self.backend.provision(request).await? {
            Provisioned::Started(server) => server,
            Provisioned::Connected(client) => {
                client.set_initial_environment(environment).await?;
                return Ok(client);
            }
        };
        (request.on_progress)(StartProgress::Connecting);
        match server.connect(self.runtime(), sandbox, environment).await {
            Ok(client) => Ok(client),
            Err(error @ (SandboxError::Start { .. } | SandboxError::Refused { .. })) => {
                Err(self.backend.explain(sandbox, error).await)
            }
            Err(error) => Err(error),
        }
    }

    async fn reconnect(
        &self,
        sandbox: &SandboxId,
        boot_id: Option<&BootId>,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let location = self.backend.locate(sandbox, OnPaused::Resume).await?;
        let address = location.into_address(self.runtime(), sandbox);
        Ok(Box::new(ActionClient::reconnect(address, boot_id).await?))
    }
}

async fn remove_unfinished(
    backend: Arc<impl Backend>,
    sandbox: SandboxId,
    has_steps: Arc<AtomicBool>,
) {
    if has_steps.load(Ordering::Relaxed)
        && let Err(error) = backend.remove_unfinished(&sandbox).await
    {
        let error = format_chain(&error);
        tracing::warn!(%sandbox, error, "cannot clean up after a failed start");
    }
}

#[async_trait]
impl<B: Backend> SandboxProvider for Provider<B> {
    fn runtime(&self) -> &'static str {
        self.backend.runtime()
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox = sandbox_id_of(&spec.conversation)?;
        let has_steps = Arc::new(AtomicBool::new(false));
        let (backend, started) = (Arc::clone(&self.backend), Arc::clone(&has_steps));
        let removal = remove_unfinished(backend, sandbox.clone(), started);
        let unfinished = UnfinishedStart::new(&self.removals, removal);
        let request = ProvisionRequest {
            sandbox: &sandbox,
            spec,
            on_progress,
            steps: unfinished.steps(),
            has_steps,
        };
        let started = self.start(&request).await;
        Ok(Box::new(unfinished.finish(started).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.reconnect(&lease.sandbox_id, Some(&lease.boot_id))
            .await
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.reconnect(sandbox, None).await
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.backend.list().await
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        self.backend.capabilities()
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        if !self.backend.is_leasable() {
            return Err(SandboxError::Unsupported {
                runtime: self.runtime(),
                what: "lease a sandbox to clients",
            });
        }
        let location = self.backend.locate(sandbox, OnPaused::Keep).await?;
        Ok(location.into_address(self.runtime(), sandbox).into())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.backend.destroy(sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.removals.close();
        self.removals.wait().await;
    }

    async fn shut_down(&self) {
        self.backend.shut_down().await;
        self.wait_for_cleanup().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Mutex, MutexGuard};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::provisioning::start_error;
    use crate::server_location::ServerLocation;

    /// Never starts a server.
    #[derive(Default)]
    struct FailingBackend {
        has_steps: bool,
        is_stuck: bool,
        removed: Mutex<Vec<SandboxId>>,
    }

    impl FailingBackend {
        fn removed(&self) -> MutexGuard<'_, Vec<SandboxId>> {
            self.removed.lock().unwrap()
        }
    }

    #[async_trait]
    impl Backend for FailingBackend {
        fn runtime(&self) -> &'static str {
            "failing"
        }

        async fn provision(
            &self,
            request: &ProvisionRequest<'_>,
        ) -> Result<Provisioned, SandboxError> {
            if self.has_steps {
                drop(request.steps());
            }
            if self.is_stuck {
                pending::<()>().await;
            }
            Err(start_error("it is broken"))
        }

        async fn locate(&self, _: &SandboxId, _: OnPaused) -> Result<ServerLocation, SandboxError> {
            Err(start_error("it is broken"))
        }

        async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
            Ok(Vec::new())
        }

        async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
            self.removed().push(sandbox.clone());
            Ok(())
        }

        fn is_leasable(&self) -> bool {
            false
        }
    }

    fn spec() -> SandboxSpec {
        SandboxSpec::new("c".parse().unwrap())
    }

    #[tokio::test]
    async fn failed_start_is_removed_once_its_steps_were_taken() {
        for has_steps in [false, true] {
            let provider = Provider::<FailingBackend>::new(FailingBackend {
                has_steps,
                ..FailingBackend::default()
            });
            assert!(provider.create(&spec(), &|_| {}).await.is_err());
            assert_eq!(!provider.backend().removed().is_empty(), has_steps);
        }
    }

    #[tokio::test]
    async fn dropped_start_is_removed_before_the_cleanup_ends() {
        let provider = Provider::<FailingBackend>::new(FailingBackend {
            has_steps: true,
            is_stuck: true,
            ..FailingBackend::default()
        });
        assert!(provider.create(&spec(), &|_| {}).now_or_never().is_none());
        provider.wait_for_cleanup().await;
        let expected: SandboxId = "glovebox-c".parse().unwrap();
        assert_eq!(*provider.backend().removed(), [expected]);
    }

    #[tokio::test]
    async fn unsupported_operations_are_named() {
        let provider = Provider::<FailingBackend>::new(FailingBackend::default());
        let leased = provider
            .server_access(&"glovebox-c".parse().unwrap())
            .await
            .err()
            .unwrap();
        assert_eq!(
            leased.to_string(),
            "the runtime failing cannot lease a sandbox to clients"
        );
        let paused = provider.pausing().err().unwrap();
        assert_eq!(
            paused.to_string(),
            "the runtime failing cannot pause a sandbox"
        );
    }
}
