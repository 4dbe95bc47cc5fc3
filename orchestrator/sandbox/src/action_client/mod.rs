//! The one client of action servers, the same for every backend.
//!
//! It is given a way to open byte streams, speaks HTTP/2 over one at a time, and opens another when that breaks. It
//! never runs an action twice: it asks again by the action's id, from the byte it has heard last. It ends when it is
//! dropped; what runs in the sandbox goes on.

mod connection;
mod dialer;
mod heard;
mod link;
mod perform;
mod request;
#[cfg(test)]
mod tests;
mod under_way;

use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{ByteStream, OnOutput, OpenStream, Sandbox, SandboxError, ServerAccess};
use http::{HeaderValue, StatusCode};
use protocol::record::SandboxLeased;
use protocol::sandbox_api::ActionRequest;
use protocol::{ActionId, BootId, Observation, SandboxId};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::connect::{ConnectError, Connector};
use dialer::{DialError, Dialer, Trust};
use link::Link;
pub(crate) use under_way::ActionsUnderWay;

/// How many actions may be under way in one sandbox. Far above what agents do, and below the streams that a server
/// takes: a request above those would wait in silence.
const ACTIONS_AT_ONCE: usize = 128;

/// A server that lives answers in milliseconds.
const ALIVE_WAIT: Duration = Duration::from_secs(1);

/// How often a cancel is sent when the connection breaks under it.
const CANCEL_ATTEMPTS: u32 = 3;

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
            ConnectError::Paused(detail) | ConnectError::Unknown(detail) => {
                SandboxError::Host { doing: detail, source: std::io::ErrorKind::NotConnected.into() }
            }
        })
    }
}

/// Speaks with one life of one action server.
pub(crate) struct ActionClient {
    lease: SandboxLeased,
    link: Link,
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
        let dialer = Dialer::new(address.connector, key.clone());
        let (connection, info) = dialer.dial(boot_id, patience, Trust::None).await?;
        let lease = SandboxLeased {
            runtime: address.runtime.to_owned(),
            sandbox_id: address.sandbox,
            boot_id: info.boot_id.clone(),
            working_dir: info.working_dir,
        };
        let link = Link::keep(dialer, connection, info.boot_id);
        Ok(Self {
            lease,
            link,
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
        let mut broken = String::new();
        for _ in 0..CANCEL_ATTEMPTS {
            let mut requests = self.link.requests().await?;
            match request::send(&mut requests, request::cancel(&self.key, id)).await {
                Ok(response) if is_cancelled(response.status()) => return Ok(()),
                Ok(response) => return Err(request::refusal(response).await.into()),
                Err(error) => broken = error.to_string(),
            }
        }
        Err(SandboxError::Lost { detail: format!("cancelling action {id}: {broken}") })
    }
}

/// Whether nothing of the action runs now or soon: it is being ended, was never sent, or is long over.
fn is_cancelled(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_FOUND || status == StatusCode::GONE
}
