//! Opens connections and makes sure who is at the other end: the same life of the same server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use protocol::BootId;
use protocol::sandbox_api::ServerInfo;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::Connection;
use super::request::{self, Broken, Refusal};
use crate::connect::{ConnectError, Connector};
use engine::sandbox::SandboxError;

/// The first pause between attempts; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long whoever must be asked for a server may be away: an engine takes half a minute to start again with many
/// containers.
const ENGINE_PATIENCE: Duration = Duration::from_secs(60);

/// Whether a server that is known to have been there is waited for while nobody can tell that it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// It may be anything: the patience is all there is.
    None,
    /// It was spoken with. While it is paused it is waited for until whoever asks gives up, and for an engine that is away.
    Known,
}

/// Opens connections to one server.
pub(super) struct Dialer {
    connector: Box<dyn Connector>,
    key: HeaderValue,
    frozen: Frozen,
}

/// When a server was last seen frozen on purpose. Locked only to copy, never across a wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Frozen(Arc<Mutex<Option<Instant>>>);

impl Frozen {
    /// When that was; nothing: never.
    pub(super) fn last_seen(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Why there is no connection to the server that was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum DialError {
    /// The server is certainly gone.
    #[error("{0}")]
    Gone(String),
    /// There is a server, and it lives another life.
    #[error("its server was started again: boot id {found} where {expected} was leased")]
    AnotherLife { expected: BootId, found: BootId },
    /// The server does not want us: another key.
    #[error("{0}")]
    Refused(String),
    /// No attempt succeeded in time.
    #[error("no connection within {} s, {attempts} attempts: {last}", .patience.as_secs_f32())]
    OutOfPatience { patience: Duration, attempts: u32, last: String },
}

impl Dialer {
    pub(super) fn new(connector: Box<dyn Connector>, key: HeaderValue) -> Self {
        Self { connector, key, frozen: Frozen::default() }
    }

    pub(super) fn frozen(&self) -> Frozen {
        self.frozen.clone()
    }

    /// How long its server may be out of reach before it counts as lost.
    pub(super) fn patience(&self) -> Duration {
        self.connector.patience()
    }

    /// Tries for as long as `patience`, with growing pauses, and longer by `trust`. Takes a server of any life when
    /// `expected` is nothing.
    pub(super) async fn dial(
        &self,
        expected: Option<&BootId>,
        patience: Duration,
        trust: Trust,
    ) -> Result<(Connection, ServerInfo), DialError> {
        let begun = Instant::now();
        let mut deadline = begun + patience;
        let mut pause = FIRST_PAUSE;
        let mut last = String::from("the server does not answer");
        let (mut attempts, mut is_unknown) = (0, false);
        let may_be_unknown = || trust == Trust::Known && begun.elapsed() < ENGINE_PATIENCE;
        loop {
            attempts += 1;
            match timeout_at(deadline, self.attempt(expected)).await {
                Ok(Ok(reached)) => return Ok(reached),
                Ok(Err(Failure::Final(error))) => return Err(error),
                Ok(Err(Failure::Passing(reason))) => (last, is_unknown) = (reason, false),
                Ok(Err(Failure::Paused(reason))) => {
                    (last, is_unknown) = (reason, false);
                    if trust == Trust::Known {
                        self.frozen.see();
                        deadline = Instant::now() + patience;
                    }
                }
                Ok(Err(Failure::Unknown(reason))) => {
                    (last, is_unknown) = (reason, true);
                    if may_be_unknown() {
                        deadline = Instant::now() + patience;
                    }
                }
                // An engine that comes back takes connections before it answers.
                Err(_elapsed) if is_unknown && may_be_unknown() => deadline = Instant::now() + patience,
                Err(_elapsed) => return Err(DialError::OutOfPatience { patience, attempts, last }),
            }
            if Instant::now() + pause >= deadline {
                return Err(DialError::OutOfPatience { patience, attempts, last });
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn attempt(&self, expected: Option<&BootId>) -> Result<(Connection, ServerInfo), Failure> {
        let stream = self.connector.connect().await?;
        let connection = Connection::over(stream, self.connector.url()).await.map_err(Failure::passing)?;
        let mut requests = connection.requests().ok_or(Failure::passing("the stream ended at once"))?;
        let response = request::send(&mut requests, request::info(&self.key)).await?;
        if !response.status().is_success() {
            return Err(request::refusal(response).await.into());
        }
        let info: ServerInfo = request::read_json(response).await?;
        match expected {
            Some(expected) if *expected != info.boot_id => Err(Failure::Final(DialError::AnotherLife {
                expected: expected.clone(),
                found: info.boot_id,
            })),
            _ => Ok((connection, info)),
        }
    }
}

enum Failure {
    Final(DialError),
    Passing(String),
    Paused(String),
    Unknown(String),
}

impl Failure {
    fn passing(reason: impl fmt::Display) -> Self {
        Self::Passing(reason.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Gone(detail) => Self::Final(DialError::Gone(detail)),
            ConnectError::Paused(detail) => Self::Paused(detail),
            ConnectError::Unknown(detail) => Self::Unknown(detail),
            failed @ ConnectError::Failed { .. } => Self::passing(failed),
        }
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Self::passing(broken)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        if refusal.is_for_the_key() {
            Self::Final(DialError::Refused(refusal.to_string()))
        } else {
            Self::passing(refusal)
        }
    }
}

impl From<DialError> for SandboxError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Refused(detail) => Self::Refused { detail },
            other => Self::Lost { detail: other.to_string() },
        }
    }
}
