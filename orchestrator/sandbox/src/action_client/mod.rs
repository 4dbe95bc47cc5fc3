//! The one client of action servers, the same for every backend.
//!
//! It is given a way to open byte streams, speaks HTTP/2 over one at a time, and opens another when that breaks. It
//! never runs an action twice: it asks again by the action's id, from the byte it has heard last. It ends when it is
//! dropped; what runs in the sandbox goes on.

mod answer;
mod connection;
mod dialer;
mod door;
mod heard;
mod link;
mod perform;
mod program;
mod request;
#[cfg(test)]
mod tests;
mod transfer;
mod under_way;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use engine::sandbox::{
    ByteSource, ByteStream, OnOutput, OnProgramOutput, OpenStream, Sandbox, SandboxError, SandboxFiles,
    SandboxProcesses, SandboxStreams, ServerAccess, StreamTarget, TransferKind,
};
use http::{HeaderValue, Method};
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{
    ActionRequest, ErrorCode, FileMode, FileStatus, ListeningPort, PortState, ProcessExit, ProcessRequest,
};
use protocol::{ActionId, BootId, Observation, ProcessId, SandboxId};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::connect::{ConnectError, Connector};
use dialer::{DialError, Dialer, Trust};
use link::Link;
pub(crate) use under_way::ActionsUnderWay;

/// How many actions may be under way in one sandbox. Far above what agents do, and below the streams that a server
/// takes: a request above those would wait in silence.
const ACTIONS_AT_ONCE: usize = 128;

/// A server that lives answers in milliseconds.
const ALIVE_WAIT: Duration = Duration::from_secs(1);

/// How long one look at a port waits: below the wait for an answer's head.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// Where a sandbox's server is and what it asks for.
pub(crate) struct Address {
    /// The backend that placed it.
    pub(crate) runtime: &'static str,
    pub(crate) sandbox: SandboxId,
    pub(crate) key: SecretString,
    pub(crate) connector: Box<dyn Connector>,
}

impl From<Address> for ServerAccess {
    fn from(address: Address) -> Self {
        Self { key: address.key, streams: Box::new(Streams(address.connector)) }
    }
}

/// Streams to a server for somebody else than our client.
struct Streams(Box<dyn Connector>);

#[async_trait]
impl OpenStream for Streams {
    async fn open(&self) -> Result<Box<dyn ByteStream>, SandboxError> {
        self.0.connect().await.map_err(|error| match error {
            ConnectError::Gone(detail) => SandboxError::Lost { detail },
            ConnectError::Failed { doing, source } => SandboxError::Host { doing, source },
            ConnectError::Paused(detail) => SandboxError::Paused { detail },
            ConnectError::Unknown(detail) => {
                SandboxError::Host { doing: detail, source: std::io::ErrorKind::NotConnected.into() }
            }
        })
    }
}

/// Speaks with one life of one action server.
pub(crate) struct ActionClient {
    lease: SandboxLeased,
    link: Link,
    /// A second connection, for what carries much: actions do not wait behind it.
    bulk: Link,
    key: HeaderValue,
    slots: Semaphore,
    under_way: ActionsUnderWay,
}

impl ActionClient {
    /// Speaks with a server that was just started, and takes its lease.
    pub(crate) async fn first(address: Address, patience: Duration) -> Result<Self, SandboxError> {
        Self::speak(address, None, patience).await.map_err(|error| match error {
            DialError::Refused(detail) => SandboxError::Refused { detail },
            other => SandboxError::Start { detail: other.to_string(), logs: String::new() },
        })
    }

    /// Speaks again with the life of the server that the lease names, or without one with whichever it lives.
    pub(crate) async fn again(address: Address, boot_id: Option<&BootId>) -> Result<Self, SandboxError> {
        let patience = address.connector.patience();
        Self::speak(address, boot_id, patience).await.map_err(|error| match error {
            DialError::Refused(detail) => SandboxError::Refused { detail },
            other => SandboxError::Lost { detail: other.to_string() },
        })
    }

    /// Whether its server answers now.
    pub(crate) async fn answers(&self) -> bool {
        let asked = async {
            let mut requests = self.link.requests().await.ok()?;
            request::send(&mut requests, request::info(&self.key)).await.ok()
        };
        let answer = timeout(ALIVE_WAIT, asked).await.ok().flatten();
        answer.is_some_and(|answer| answer.status().is_success())
    }

    /// The same server, whose sandbox has got another name.
    pub(crate) fn known_as(self, sandbox_id: SandboxId) -> Self {
        Self { lease: SandboxLeased { sandbox_id, ..self.lease }, ..self }
    }

    async fn speak(
        address: Address,
        boot_id: Option<&BootId>,
        patience: Duration,
    ) -> Result<Self, DialError> {
        let key = request::key_header(&address.key)?;
        let dialer = Arc::new(Dialer::new(address.connector, key.clone()));
        let (connection, info) = dialer.dial(boot_id, patience, Trust::None).await?;
        let lease = SandboxLeased {
            runtime: address.runtime.to_owned(),
            sandbox_id: address.sandbox,
            boot_id: info.boot_id.clone(),
            working_dir: info.working_dir,
        };
        let bulk = Link::keep(Arc::clone(&dialer), None, info.boot_id.clone());
        let link = Link::keep(dialer, Some(connection), info.boot_id);
        Ok(Self {
            lease,
            link,
            bulk,
            key,
            slots: Semaphore::new(ACTIONS_AT_ONCE),
            under_way: ActionsUnderWay::default(),
        })
    }

    /// Tells `under_way` which actions it sends and which have ended.
    pub(crate) fn telling(mut self, under_way: ActionsUnderWay) -> Self {
        self.under_way = under_way;
        self
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
                "{ACTIONS_AT_ONCE} actions are under way in this sandbox, action {id} is not sent"
            ),
        })?;
        self.under_way.began(id);
        let ended = perform::perform(&self.link, &self.key, id, request, on_output).await;
        // Also after an error: what became of it is unknown then, and the lost sandbox has nobody to ask.
        self.under_way.ended(id);
        ended
    }

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        match request::ask(&self.link, || request::cancel(&self.key, id)).await? {
            Err(refusal) if !is_over(refusal.code) => Err(refusal.into()),
            _ => Ok(()),
        }
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
    async fn set_environment(&self, variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
        let body: Bytes = serde_json::to_vec(variables)
            .map_err(|error| SandboxError::Malformed { detail: format!("the environment: {error}") })?
            .into();
        let request = || request::request(&self.key, Method::PUT, "/v1/environment", body.clone());
        request::ask(&self.link, request).await??;
        Ok(())
    }

    async fn exec(
        &self,
        id: &ProcessId,
        request: &ProcessRequest,
        stdin: Option<ByteSource>,
        on_output: &OnProgramOutput<'_>,
    ) -> Result<ProcessExit, SandboxError> {
        program::run(&self.link, &self.key, id, request, stdin, on_output).await
    }

    async fn kill_process(&self, id: &ProcessId) -> Result<(), SandboxError> {
        program::end(&self.link, &self.key, id).await
    }
}

#[async_trait]
impl SandboxStreams for ActionClient {
    async fn open(&self, door: &StreamTarget) -> Result<Box<dyn ByteStream>, SandboxError> {
        // Keys must not wait behind what is downloaded.
        let link = if matches!(door, StreamTarget::Terminal(_)) { &self.link } else { &self.bulk };
        door::open(link, &self.key, door).await
    }

    async fn ports(&self) -> Result<Vec<ListeningPort>, SandboxError> {
        self.get("/v1/ports").await
    }

    async fn wait_for_port(&self, port: u16, patience: Duration) -> Result<bool, SandboxError> {
        let deadline = Instant::now() + patience;
        loop {
            let wait = deadline.saturating_duration_since(Instant::now()).min(LONGEST_LOOK);
            let state: PortState = self.get(&format!("/v1/ports/{port}?wait={}", wait.as_secs_f64())).await?;
            if state.listening || Instant::now() >= deadline {
                return Ok(state.listening);
            }
        }
    }
}

#[async_trait]
impl SandboxFiles for ActionClient {
    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        let path = format!("/v1/files/stat?follow=true&path={}", request::escaped(path));
        let request = || request::request(&self.key, Method::GET, &path, Bytes::new());
        match request::ask(&self.link, request).await? {
            Ok(response) => Ok(Some(request::read_json(response).await?)),
            Err(refusal) if refusal.code == ErrorCode::NotFound => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    async fn download(&self, path: &str, shape: TransferKind) -> Result<ByteSource, SandboxError> {
        transfer::download(&self.bulk, &self.key, path, shape).await
    }

    async fn upload(
        &self,
        path: &str,
        shape: TransferKind,
        mode: Option<FileMode>,
        content: ByteSource,
    ) -> Result<(), SandboxError> {
        transfer::upload(&self.bulk, &self.key, transfer::Target { path, shape, mode }, content).await
    }
}

impl ActionClient {
    /// Hands over what a sandbox was asked to have in its environment, before anything runs in it.
    pub(crate) async fn begin_with(&self, variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
        if variables.is_empty() { Ok(()) } else { self.set_environment(variables).await }
    }

    /// An answer that is one JSON value.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, SandboxError> {
        let request = || request::request(&self.key, Method::GET, path, Bytes::new());
        Ok(request::read_json(request::ask(&self.link, request).await??).await?)
    }
}

/// Whether nothing of an action or a program runs now or soon: it was never sent, or is long over.
fn is_over(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotFound | ErrorCode::Gone)
}
