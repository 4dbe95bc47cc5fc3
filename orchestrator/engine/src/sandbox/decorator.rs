//! Providers that change some operations of another provider.

use async_trait::async_trait;
use protocol::SandboxId;
use protocol::record::SandboxLeased;

use super::{
    ProviderCapabilities, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary,
    ServerAccess, StartProgress,
};

/// The result of creating a sandbox or attaching to one.
pub type ConnectResult = Result<Box<dyn Sandbox>, SandboxError>;

/// A [`SandboxProvider`] that decorates another one. Forwards everything that it does not change,
/// so that a decorator never hides a capability.
#[async_trait]
pub trait ProviderDecorator: Send + Sync {
    /// Returns the decorated provider.
    fn inner(&self) -> &dyn SandboxProvider;

    /// Wraps the sandboxes that are created or attached to.
    fn wrap(&self, result: ConnectResult) -> ConnectResult {
        result
    }

    /// See [`SandboxProvider::create`]. The result is wrapped afterwards.
    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> ConnectResult {
        self.inner().create(spec, on_progress).await
    }

    /// See [`SandboxProvider::capabilities`].
    fn capabilities(&self) -> ProviderCapabilities<'_> {
        self.inner().capabilities()
    }

    /// See [`SandboxProvider::destroy`].
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.inner().destroy(sandbox).await
    }
}

#[async_trait]
impl<D: ProviderDecorator> SandboxProvider for D {
    fn runtime(&self) -> &'static str {
        self.inner().runtime()
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> ConnectResult {
        self.wrap(ProviderDecorator::create(self, spec, on_progress).await)
    }

    async fn attach(&self, lease: &SandboxLeased) -> ConnectResult {
        self.wrap(self.inner().attach(lease).await)
    }

    async fn find(&self, sandbox: &SandboxId) -> ConnectResult {
        self.wrap(self.inner().find(sandbox).await)
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.inner().list().await
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderDecorator::capabilities(self)
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        self.inner().server_access(sandbox).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        ProviderDecorator::destroy(self, sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.inner().wait_for_cleanup().await;
    }

    async fn shut_down(&self) {
        self.inner().shut_down().await;
    }
}
