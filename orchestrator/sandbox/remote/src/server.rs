//! An existing action server, configured by its address and key.
//!
//! The provider does not own it: `create` only connects, and `destroy` cancels only the actions
//! that were started here and may still run. Files, shells and their background processes remain
//! for the next conversation. For a new sandbox per conversation, run `glovebox sandbox-host` on
//! that machine instead.
//!
//! It does not implement [`Backend`](sandbox_client::Backend), whose sandboxes are created, listed
//! and removed, and have environments of their own.
//!
//! If this program is killed, its actions continue until their timeout, unless the conversation is
//! resumed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    ProviderCapabilities, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary,
    ServerAccess, StartProgress,
};
use protocol::record::SandboxLeased;
use protocol::{BootId, SandboxId};
use sandbox_client::provisioning::sandbox_id_of;
use sandbox_client::{ActionClient, Address, RunningActions, ServerUrl};
use secrecy::SecretString;

use super::direct::DirectConnector;
use super::endpoint::Endpoint;
use super::trust::{Protocol, TrustStore};
use super::{RUNTIME, reject_host_folders, unavailable};

/// Timeout of the first connection. The server already runs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of [`RemoteServerProvider`].
#[derive(Debug)]
pub struct RemoteServerConfig {
    /// The address of the server. With plain `http`, the key and all data can be intercepted.
    pub url: ServerUrl,
    /// The key that the server was started with.
    pub key: SecretString,
    /// A PEM file of certificate authorities that are trusted in addition to those of the machine.
    pub additional_ca: Option<PathBuf>,
}

/// Uses one existing action server as the sandbox of every conversation, and never removes it.
pub struct RemoteServerProvider {
    endpoint: Endpoint,
    key: SecretString,
    /// The actions that may run in each sandbox. The lock is never held across an await.
    running: Mutex<HashMap<SandboxId, RunningActions>>,
}

impl RemoteServerProvider {
    /// Creates a provider. Does not connect yet.
    pub fn new(config: RemoteServerConfig) -> Self {
        let endpoint = Endpoint::new(config.url, Arc::new(TrustStore::new(config.additional_ca)));
        Self {
            endpoint,
            key: config.key,
            running: Mutex::default(),
        }
    }

    fn address(&self, sandbox: &SandboxId) -> Address {
        Address {
            runtime: RUNTIME,
            sandbox: sandbox.clone(),
            key: self.key.clone(),
            connector: Box::new(DirectConnector::new(self.endpoint.clone())),
        }
    }

    async fn reconnect(
        &self,
        sandbox: &SandboxId,
        boot_id: Option<&BootId>,
    ) -> Result<ActionClient, SandboxError> {
        let connected = ActionClient::reconnect(self.address(sandbox), boot_id).await;
        connected.map_err(|error| self.explain(error))
    }

    fn track_actions(&self, sandbox: &SandboxId, client: ActionClient) -> Box<dyn Sandbox> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        Box::new(client.with_running_actions(running.entry(sandbox.clone()).or_default().clone()))
    }

    /// Adds the address and a remedy to an error.
    fn explain(&self, error: SandboxError) -> SandboxError {
        let url = &self.endpoint.url;
        match error {
            SandboxError::Refused { detail } => SandboxError::Refused {
                detail: format!(
                    "{url} rejects the key ({detail}): configure the key that the server was started with"
                ),
            },
            SandboxError::Start { detail, .. } => unavailable(format!(
                "no action server responds at {url} ({detail}): check the address"
            )),
            other => other,
        }
    }
}

#[async_trait]
impl SandboxProvider for RemoteServerProvider {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox = sandbox_id_of(&spec.conversation)?;
        reject_host_folders(spec)?;
        on_progress(StartProgress::Connecting);
        // First without retries, which do not help against a wrong address, name or certificate.
        drop(self.endpoint.open(Protocol::Http2).await?);
        let client = ActionClient::connect(self.address(&sandbox), CONNECT_TIMEOUT).await;
        Ok(self.track_actions(&sandbox, client.map_err(|error| self.explain(error))?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let client = self
            .reconnect(&lease.sandbox_id, Some(&lease.boot_id))
            .await?;
        Ok(self.track_actions(&lease.sandbox_id, client))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(self.track_actions(sandbox, self.reconnect(sandbox, None).await?))
    }

    /// Empty: the server is not managed by this provider.
    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        Ok(Vec::new())
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities::default()
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Ok(self.address(sandbox).into())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let actions = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(sandbox);
        let actions = actions.map(|actions| actions.drain()).unwrap_or_default();
        if actions.is_empty() {
            return Ok(());
        }
        let client = match self.reconnect(sandbox, None).await {
            // Its processes are gone too.
            Err(SandboxError::Lost { .. }) => return Ok(()),
            connected => connected?,
        };
        for action in actions {
            client.cancel(&action).await?;
        }
        Ok(())
    }

    /// Does nothing: the provider creates nothing.
    async fn wait_for_cleanup(&self) {}
}
