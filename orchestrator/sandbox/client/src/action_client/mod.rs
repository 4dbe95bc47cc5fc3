//! The one client of action servers, the same for every backend.
//!
//! Uses HTTP/2 over a byte stream of a [`Connector`], and opens another stream when that breaks.
//! Never runs an action twice: it attaches by the action's id and resumes after the last received
//! byte. Dropping the client does not stop what runs in the sandbox.

mod connection;
mod dialer;
mod execute;
mod link;
mod observation;
mod output_cursor;
mod process;
mod request;
mod resume_backoff;
mod running_actions;
#[cfg(test)]
mod tests;
mod transfer;
mod tunnel;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use engine::sandbox::{
    ByteSource, ByteStream, OnOutput, OnProgramOutput, OpenStream, Sandbox, SandboxError,
    SandboxFiles, SandboxProcesses, SandboxStreams, ServerAccess, StreamTarget, TransferKind,
};
use http::{HeaderValue, Method};
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{
    ActionRequest, ErrorCode, FileList, FileMode, FileStatus, ListeningPort, MakeFolderRequest,
    MoveRequest, PortState, ProcessExit, ProcessRequest,
};
use protocol::{ActionId, BootId, Observation, ProcessId, SandboxId};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::connect::{ConnectError, Connector};
use crate::provisioning::secret_header;
use dialer::{DialError, DialPolicy, Dialer};
use link::Link;
pub use running_actions::RunningActions;

/// Maximum number of concurrent actions in one sandbox. Far more than agents use, and less than the
/// streams of a connection: HTTP/2 would queue further requests silently.
const MAX_CONCURRENT_ACTIONS: usize = 128;

/// A healthy server responds in milliseconds.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time of one request that waits for a port. Must be less than the timeout of a response.
const MAX_PORT_WAIT: Duration = Duration::from_secs(30);

/// The parameters of a connection to a sandbox's server.
pub struct Address {
    /// The backend that created it.
    pub runtime: &'static str,
    /// Its id in that backend.
    pub sandbox: SandboxId,
    /// Sent with each request.
    pub key: SecretString,
    /// Opens the streams to the server.
    pub connector: Box<dyn Connector>,
}

impl From<Address> for ServerAccess {
    fn from(address: Address) -> Self {
        Self {
            key: address.key,
            streams: Box::new(ConnectorStreams(address.connector)),
        }
    }
}

/// Opens raw streams, for callers that do not use [`ActionClient`].
struct ConnectorStreams(Box<dyn Connector>);

#[async_trait]
impl OpenStream for ConnectorStreams {
    async fn open(&self) -> Result<Box<dyn ByteStream>, SandboxError> {
        self.0.connect().await.map_err(|error| match error {
            ConnectError::Gone(detail) => SandboxError::Lost { detail },
            ConnectError::Failed {
                operation,
                subject,
                source,
            } => SandboxError::Host {
                operation,
                subject,
                source,
            },
            ConnectError::Paused(detail) => SandboxError::Paused { detail },
            ConnectError::Unknown(detail) | ConnectError::Unreachable(detail) => {
                SandboxError::Unreachable { detail }
            }
        })
    }
}

/// A client of one action server. A restarted server, which has another boot id, counts as lost.
pub struct ActionClient {
    lease: SandboxLeased,
    link: Link,
    /// A second connection for large transfers, so that they do not delay actions.
    bulk: Link,
    key: HeaderValue,
    slots: Semaphore,
    running: RunningActions,
}

impl ActionClient {
    /// Connects to a server that was just started. Retries until `timeout`.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] if the server rejects the key, otherwise [`SandboxError::Start`]
    /// without logs.
    pub async fn connect(address: Address, timeout: Duration) -> Result<Self, SandboxError> {
        Self::dial(address, None, timeout, DialPolicy::Start)
            .await
            .map_err(|error| match error {
                DialError::Refused(detail) => SandboxError::Refused { detail },
                other => SandboxError::Start {
                    detail: other.to_string(),
                    logs: String::new(),
                },
            })
    }

    /// Connects to an existing server. Accepts any boot id if `boot_id` is `None`.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if the server is gone or has another boot id. See [`SandboxError`]
    /// for others.
    pub async fn reconnect(
        address: Address,
        boot_id: Option<&BootId>,
    ) -> Result<Self, SandboxError> {
        let timeout = address.connector.reconnect_timeout();
        Ok(Self::dial(address, boot_id, timeout, DialPolicy::Attach).await?)
    }

    /// Whether the server responds.
    pub async fn is_healthy(&self) -> bool {
        let response = async {
            let mut sender = self.link.sender().await.ok()?;
            request::send(&mut sender, request::info(&self.key))
                .await
                .ok()
        };
        let response = timeout(HEALTH_CHECK_TIMEOUT, response).await.ok().flatten();
        response.is_some_and(|response| response.status().is_success())
    }

    /// Returns the client with the new id of a renamed sandbox.
    pub fn with_sandbox_id(self, sandbox_id: SandboxId) -> Self {
        Self {
            lease: SandboxLeased {
                sandbox_id,
                ..self.lease
            },
            ..self
        }
    }

    async fn dial(
        address: Address,
        boot_id: Option<&BootId>,
        timeout: Duration,
        policy: DialPolicy,
    ) -> Result<Self, DialError> {
        let key = secret_header(&address.key)
            .ok_or_else(|| DialError::Refused("the key cannot be sent in a header".into()))?;
        let dialer = Arc::new(Dialer::new(address.connector, key.clone()));
        let (connection, info) = dialer.dial(boot_id, timeout, policy).await?;
        let lease = SandboxLeased {
            runtime: address.runtime.to_owned(),
            sandbox_id: address.sandbox,
            boot_id: info.boot_id.clone(),
            working_dir: info.working_dir,
        };
        let bulk = Link::new(Arc::clone(&dialer), None, info.boot_id.clone());
        let link = Link::new(dialer, Some(connection), info.boot_id);
        Ok(Self {
            lease,
            link,
            bulk,
            key,
            slots: Semaphore::new(MAX_CONCURRENT_ACTIONS),
            running: RunningActions::default(),
        })
    }

    /// Returns the client with a shared registry of its running actions.
    pub fn with_running_actions(self, running: RunningActions) -> Self {
        Self { running, ..self }
    }
}

#[async_trait]
impl Sandbox for ActionClient {
    fn lease(&self) -> &SandboxLeased {
        &self.lease
    }

    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError> {
        let _slot = self.slots.try_acquire().map_err(|_| SandboxError::Refused {
            detail: format!(
                "action {id} was not sent: {MAX_CONCURRENT_ACTIONS} actions are running in this sandbox"
            ),
        })?;
        self.running.insert(id);
        let result = execute::execute(&self.link, &self.key, id, request, on_output).await;
        // Also after an error: the sandbox is lost then, and the action cannot be cancelled.
        self.running.remove(id);
        result
    }

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        match request::send_with_retries(&self.link, || request::cancel(&self.key, id)).await? {
            Err(error) if !is_over(error.code) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn check_connection(&self) -> Result<(), SandboxError> {
        self.link.sender().await?;
        Ok(())
    }

    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
        Ok(self)
    }

    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
        Ok(self)
    }

    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
        Ok(self)
    }
}

#[async_trait]
impl SandboxProcesses for ActionClient {
    async fn set_environment(
        &self,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), SandboxError> {
        let body: Bytes = serde_json::to_vec(variables)
            .map_err(|error| SandboxError::Malformed {
                detail: format!("the environment: {error}"),
            })?
            .into();
        let request = || request::new(&self.key, Method::PUT, "/v1/environment", body.clone());
        request::send_with_retries(&self.link, request).await??;
        Ok(())
    }

    async fn exec(
        &self,
        id: &ProcessId,
        request: &ProcessRequest,
        stdin: Option<ByteSource>,
        on_output: &OnProgramOutput<'_>,
    ) -> Result<ProcessExit, SandboxError> {
        process::run(&self.link, &self.key, id, request, stdin, on_output).await
    }

    async fn kill_process(&self, id: &ProcessId) -> Result<(), SandboxError> {
        process::kill(&self.link, &self.key, id).await
    }
}

#[async_trait]
impl SandboxStreams for ActionClient {
    async fn open(&self, target: &StreamTarget) -> Result<Box<dyn ByteStream>, SandboxError> {
        // Keystrokes must not be delayed by transfers.
        let link = if matches!(target, StreamTarget::Terminal(_)) {
            &self.link
        } else {
            &self.bulk
        };
        tunnel::open(link, &self.key, target).await
    }

    async fn ports(&self) -> Result<Vec<ListeningPort>, SandboxError> {
        self.get("/v1/ports").await
    }

    async fn wait_for_port(&self, port: u16, timeout: Duration) -> Result<bool, SandboxError> {
        let deadline = Instant::now() + timeout;
        loop {
            let wait = deadline
                .saturating_duration_since(Instant::now())
                .min(MAX_PORT_WAIT);
            let state: PortState = self
                .get(&format!("/v1/ports/{port}?wait={}", wait.as_secs_f64()))
                .await?;
            if state.listening || Instant::now() >= deadline {
                return Ok(state.listening);
            }
        }
    }
}

#[async_trait]
impl SandboxFiles for ActionClient {
    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        self.inspect(path, true).await
    }

    async fn link_status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        self.inspect(path, false).await
    }

    async fn list(&self, folder: &str) -> Result<FileList, SandboxError> {
        let path = format!(
            "/v1/files/list?hidden=true&path={}",
            request::percent_encode(folder)
        );
        let request = || request::new(&self.key, Method::GET, &path, Bytes::new());
        Ok(request::read_list(request::send_with_retries(&self.link, request).await??).await?)
    }

    async fn download(&self, path: &str, kind: TransferKind) -> Result<ByteSource, SandboxError> {
        transfer::download(&self.bulk, &self.key, path, kind).await
    }

    async fn download_part(
        &self,
        path: &str,
        range: Range<u64>,
    ) -> Result<ByteSource, SandboxError> {
        transfer::download_part(&self.bulk, &self.key, path, range).await
    }

    async fn upload(
        &self,
        path: &str,
        kind: TransferKind,
        mode: Option<FileMode>,
        content: ByteSource,
    ) -> Result<(), SandboxError> {
        transfer::upload(
            &self.bulk,
            &self.key,
            transfer::UploadTarget { path, kind, mode },
            content,
        )
        .await
    }

    async fn make_folder(&self, path: &str) -> Result<(), SandboxError> {
        let folder = MakeFolderRequest {
            path: path.to_owned(),
            parents: true,
            mode: None,
        };
        let request = || request::json(&self.key, "/v1/files/mkdir", &folder);
        request::send_with_retries(&self.link, request).await??;
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str, overwrite: bool) -> Result<(), SandboxError> {
        let renaming = MoveRequest {
            from: from.to_owned(),
            to: to.to_owned(),
            overwrite,
        };
        let request = request::json(&self.key, "/v1/files/move", &renaming);
        // Once: the file is gone from its old path when the response is lost.
        let mut sender = self.link.sender().await?;
        match request::send(&mut sender, request).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(request::read_error(response).await.into()),
            Err(error) => Err(SandboxError::Unreachable {
                detail: error.to_string(),
            }),
        }
    }

    async fn remove(&self, path: &str, recursive: bool) -> Result<(), SandboxError> {
        let path = format!(
            "/v1/files?recursive={recursive}&path={}",
            request::percent_encode(path)
        );
        let request = || request::new(&self.key, Method::DELETE, &path, Bytes::new());
        match request::send_with_retries(&self.link, request).await? {
            Err(error) if error.code != ErrorCode::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl ActionClient {
    /// Sets the environment of a new sandbox, before anything runs in it.
    ///
    /// # Errors
    /// See [`SandboxError`].
    pub async fn set_initial_environment(
        &self,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), SandboxError> {
        if variables.is_empty() {
            Ok(())
        } else {
            self.set_environment(variables).await
        }
    }

    async fn inspect(&self, path: &str, follow: bool) -> Result<Option<FileStatus>, SandboxError> {
        let path = format!(
            "/v1/files/stat?follow={follow}&path={}",
            request::percent_encode(path)
        );
        let request = || request::new(&self.key, Method::GET, &path, Bytes::new());
        match request::send_with_retries(&self.link, request).await? {
            Ok(response) => Ok(Some(request::read_json(response).await?)),
            Err(error) if error.code == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, SandboxError> {
        let request = || request::new(&self.key, Method::GET, path, Bytes::new());
        Ok(request::read_json(request::send_with_retries(&self.link, request).await??).await?)
    }
}

/// Whether this error means that an action or a program does not run: it was never sent, or has
/// ended.
fn is_over(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotFound | ErrorCode::Gone)
}
