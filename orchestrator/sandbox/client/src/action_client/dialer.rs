//! Opens connections to a server and verifies its boot id.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::sandbox::SandboxError;
use http::HeaderValue;
use protocol::BootId;
use protocol::sandbox_api::ServerInfo;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::Connection;
use super::request::{self, ErrorResponse, TransportError};
use crate::connect::{ConnectError, Connector};

/// The delay between attempts. Doubles each time.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// How long the state of a server may be unknown: an engine with many containers needs half a
/// minute to restart.
const UNKNOWN_STATE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an attempt lasts that has stalled. A shorter one at the deadline says nothing.
const MIN_STALL: Duration = Duration::from_secs(1);

/// Maximum time of an attempt. One to an engine that has restarted since would last for ever.
const MAX_ATTEMPT: Duration = Duration::from_secs(20);

/// Whether a server that is paused, or whose state is unknown, is awaited beyond the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialPolicy {
    /// It is not: the server was just started.
    Start,
    /// For [`UNKNOWN_STATE_TIMEOUT`] while its state is unknown.
    Attach,
    /// Also without a limit while the server is paused.
    Reconnect,
}

/// Opens connections to one server.
pub(super) struct Dialer {
    connector: Box<dyn Connector>,
    key: HeaderValue,
    pauses: PauseTracker,
    /// Why the last attempt has failed, for people.
    last_failure: Mutex<String>,
}

/// Records when a server was last seen paused. The lock is never held across an await.
#[derive(Debug, Clone, Default)]
pub(super) struct PauseTracker(Arc<Mutex<Option<Instant>>>);

impl PauseTracker {
    /// `None` if the server was never seen paused.
    pub(super) fn last_paused_at(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_pause(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Why no connection was opened.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum DialError {
    /// The server is certainly gone.
    #[error("{0}")]
    Gone(String),
    /// The server may run, and a retry cannot succeed.
    #[error("{0}")]
    Unreachable(String),
    /// The server has restarted.
    #[error("its server has restarted: its boot id is {found}, that of the lease {expected}")]
    Restarted { expected: BootId, found: BootId },
    /// The server rejects the key.
    #[error("{0}")]
    Refused(String),
    /// No attempt succeeded in time.
    #[error("no connection within {:.1} s, {attempts} attempts: {last}", .waited.as_secs_f32())]
    Timeout {
        waited: Duration,
        attempts: u32,
        last: String,
        /// Whether the server may still run: it is paused, its state is unknown, or the last
        /// attempt stalled.
        may_run: bool,
    },
}

impl Dialer {
    pub(super) fn new(connector: Box<dyn Connector>, key: HeaderValue) -> Self {
        Self {
            connector,
            key,
            pauses: PauseTracker::default(),
            last_failure: Mutex::default(),
        }
    }

    pub(super) fn pauses(&self) -> PauseTracker {
        self.pauses.clone()
    }

    /// Why the last attempt of the current [`dial`](Self::dial) has failed, in parentheses. Empty
    /// if none has.
    pub(super) fn last_failure(&self) -> String {
        match self.failure().as_str() {
            "" => String::new(),
            reason => format!(" ({reason})"),
        }
    }

    fn failure(&self) -> MutexGuard<'_, String> {
        self.last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the server may be unreachable.
    pub(super) fn reconnect_timeout(&self) -> Duration {
        self.connector.reconnect_timeout()
    }

    /// Retries with backoff until the timeout, or longer if the policy says so. Accepts any boot id
    /// if `expected` is `None`.
    pub(super) async fn dial(
        &self,
        expected: Option<&BootId>,
        timeout: Duration,
        policy: DialPolicy,
    ) -> Result<(Connection, ServerInfo), DialError> {
        let started = Instant::now();
        let (mut awaited_since, mut deadline) = (started, started + timeout);
        let mut backoff = MIN_BACKOFF;
        let mut last = String::from("the server does not respond");
        let (mut attempts, mut may_run) = (0, false);
        self.failure().clear();
        loop {
            attempts += 1;
            let attempted = Instant::now();
            let limit = deadline.min(attempted + MAX_ATTEMPT);
            match timeout_at(limit, self.attempt(expected)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(Failure::Permanent(error))) => return Err(error),
                Ok(Err(Failure::Transient(reason))) => {
                    if may_run {
                        deadline = deadline.min(Instant::now() + timeout);
                    }
                    (last, may_run) = (reason, false);
                }
                Ok(Err(Failure::Paused(reason))) => {
                    if policy != DialPolicy::Reconnect {
                        return Err(DialError::Unreachable(reason));
                    }
                    self.pauses.record_pause();
                    awaited_since = Instant::now();
                    deadline = awaited_since + timeout;
                    (last, may_run) = (reason, true);
                }
                Ok(Err(Failure::Unknown(reason))) => (last, may_run) = (reason, true),
                Err(_elapsed) => may_run |= attempted.elapsed() >= MIN_STALL,
            }
            if may_run && policy != DialPolicy::Start {
                deadline = deadline.max(awaited_since + UNKNOWN_STATE_TIMEOUT);
            }
            if Instant::now() + backoff >= deadline {
                return Err(DialError::Timeout {
                    waited: started.elapsed(),
                    attempts,
                    last,
                    may_run,
                });
            }
            self.failure().clone_from(&last);
            sleep(backoff).await;
            backoff = MAX_BACKOFF.min(backoff * 2);
        }
    }

    async fn attempt(
        &self,
        expected: Option<&BootId>,
    ) -> Result<(Connection, ServerInfo), Failure> {
        let stream = self.connector.connect().await?;
        let connection = Connection::handshake(stream, self.connector.url())
            .await
            .map_err(Failure::unknown)?;
        let mut sender = connection
            .sender()
            .ok_or_else(|| Failure::unknown("the stream ended immediately"))?;
        let response = request::send(&mut sender, request::info(&self.key)).await?;
        if !response.status().is_success() {
            return Err(request::read_error(response).await.into());
        }
        let info: ServerInfo = request::read_json(response).await?;
        match expected {
            Some(expected) if *expected != info.boot_id => {
                Err(Failure::Permanent(DialError::Restarted {
                    expected: expected.clone(),
                    found: info.boot_id,
                }))
            }
            _ => Ok((connection, info)),
        }
    }
}

enum Failure {
    Permanent(DialError),
    /// The server does not respond, according to its host or engine.
    Transient(String),
    Paused(String),
    Unknown(String),
}

impl Failure {
    fn unknown(reason: impl fmt::Display) -> Self {
        Self::Unknown(reason.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Gone(detail) => Self::Permanent(DialError::Gone(detail)),
            ConnectError::Unreachable(detail) => Self::Permanent(DialError::Unreachable(detail)),
            ConnectError::Paused(detail) => Self::Paused(detail),
            ConnectError::Unknown(detail) => Self::Unknown(detail),
            failed @ ConnectError::Failed { .. } => Self::Transient(failed.to_string()),
        }
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self::unknown(error)
    }
}

impl From<ErrorResponse> for Failure {
    fn from(error: ErrorResponse) -> Self {
        if error.is_unauthorized() {
            Self::Permanent(DialError::Refused(error.to_string()))
        } else {
            Self::unknown(error)
        }
    }
}

impl From<DialError> for SandboxError {
    fn from(error: DialError) -> Self {
        let detail = error.to_string();
        match error {
            DialError::Refused(_) => Self::Refused { detail },
            DialError::Unreachable(_) | DialError::Timeout { may_run: true, .. } => {
                Self::Unreachable { detail }
            }
            DialError::Gone(_) | DialError::Restarted { .. } | DialError::Timeout { .. } => {
                Self::Lost { detail }
            }
        }
    }
}
