//! A running action server that somebody else placed, reached by its address and key.
//!
//! It is not ours: `create` only looks whether it answers and takes its lease, and `destroy` ends what actions of ours
//! may still run there, and nothing else. Files, shells and what runs in their background stay; the next conversation
//! finds them. Whoever wants a fresh sandbox each time runs `glovebox sandbox-host` there instead.
//!
//! What a host program that was killed had under way is known to nobody after its next start, unless its conversation is
//! resumed: it ends with its own time limit.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    Sandbox, SandboxError, SandboxMonitoring, SandboxPausing, SandboxProvider, SandboxSnapshots, SandboxSpec,
    SandboxSummary, ServerAccess, StartProgress,
};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use secrecy::SecretString;

use super::RUNTIME;
use super::direct::Direct;
use super::endpoint::Endpoint;
use super::refuse_what_stays_here;
use super::trust::{Protocol, Trust};
use crate::action_client::{ActionClient, Address, RunningActions};
use crate::connect::ServerUrl;
use crate::placement::sandbox_id_of;

/// The server runs already; this is for the first connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Where the server is.
#[derive(Debug)]
pub struct RemoteServerConfig {
    /// Its address. Over plain `http` the key and everything else can be read on the way.
    pub url: ServerUrl,
    /// The key that it was started with.
    pub key: SecretString,
    /// A file of PEM certificates that are believed beside the machine's own.
    pub additional_ca: Option<PathBuf>,
}

/// Takes one running action server as the sandbox of every conversation. See the module: it is not ours to remove.
pub struct RemoteServerProvider {
    endpoint: Endpoint,
    key: SecretString,
    /// What each conversation may have running. Locked for a moment, never across a wait.
    under_way: Mutex<HashMap<SandboxId, RunningActions>>,
}

impl RemoteServerProvider {
    /// Does not speak to the server yet.
    pub fn new(config: RemoteServerConfig) -> Self {
        let endpoint = Endpoint::new(config.url, Arc::new(Trust::new(config.additional_ca)));
        Self { endpoint, key: config.key, under_way: Mutex::default() }
    }

    fn address(&self, sandbox: &SandboxId) -> Address {
        Address {
            runtime: RUNTIME,
            sandbox: sandbox.clone(),
            key: self.key.clone(),
            connector: Box::new(Direct::to(self.endpoint.clone())),
        }
    }

    fn telling(&self, sandbox: &SandboxId, client: ActionClient) -> Box<dyn Sandbox> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        Box::new(client.with_running_actions(under_way.entry(sandbox.clone()).or_default().clone()))
    }

    /// Says of an error what this server is and what to do.
    fn explained(&self, error: SandboxError) -> SandboxError {
        let url = &self.endpoint.url;
        match error {
            SandboxError::Refused { detail } => SandboxError::Refused {
                detail: format!(
                    "{url} does not take our key ({detail}): give the one that it was started with"
                ),
            },
            SandboxError::Start { detail, .. } => SandboxError::RuntimeUnavailable {
                runtime: RUNTIME,
                detail: format!("no action server of ours answers at {url} ({detail}): check the address"),
            },
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
        refuse_what_stays_here(spec)?;
        on_progress(StartProgress::Connecting);
        // First without patience: an address, a name or a certificate that is wrong does not get better.
        drop(self.endpoint.open(Protocol::Http2).await?);
        let client = ActionClient::connect(self.address(&sandbox), CONNECT_PATIENCE).await;
        Ok(self.telling(&sandbox, client.map_err(|error| self.explained(error))?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let client = ActionClient::reconnect(self.address(&lease.sandbox_id), Some(&lease.boot_id)).await;
        Ok(self.telling(&lease.sandbox_id, client.map_err(|error| self.explained(error))?))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        let client = ActionClient::reconnect(self.address(sandbox), None).await;
        Ok(self.telling(sandbox, client.map_err(|error| self.explained(error))?))
    }

    /// None: nothing there was placed by us.
    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        Ok(Vec::new())
    }

    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        Err(SandboxError::Unsupported { runtime: RUNTIME, what: "pause a sandbox" })
    }

    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        Err(SandboxError::Unsupported { runtime: RUNTIME, what: "make snapshots" })
    }

    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        Err(SandboxError::Unsupported { runtime: RUNTIME, what: "monitor sandboxes" })
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Ok(self.address(sandbox).into())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let ours = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
        let ours = ours.map(|ours| ours.drain()).unwrap_or_default();
        if ours.is_empty() {
            return Ok(());
        }
        let client = match ActionClient::reconnect(self.address(sandbox), None).await {
            // It is gone, and what ran in it is gone too.
            Err(SandboxError::Lost { .. }) => return Ok(()),
            reached => reached.map_err(|error| self.explained(error))?,
        };
        for action in ours {
            client.cancel(&action).await?;
        }
        Ok(())
    }

    /// Nothing is placed, so that nothing is left.
    async fn wait_for_cleanup(&self) {}
}
