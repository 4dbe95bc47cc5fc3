//! A server that was just started, and the time in which it must respond.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use engine::sandbox::SandboxError;
use protocol::SandboxId;
use tokio::time::{Instant, timeout_at};

use crate::action_client::ActionClient;
use crate::provisioning::start_error;
use crate::server_location::ServerLocation;

/// A server that was started and may not respond yet.
pub struct StartedServer {
    /// How to reach it.
    pub location: ServerLocation,
    /// Time for its first response.
    pub connect_timeout: Duration,
    /// The time of the whole start. `None` if each part has a timeout of its own.
    pub start_timeout: Option<StartTimeout>,
    /// Whether the runtime has set the environment of the spec.
    pub has_environment: bool,
}

impl StartedServer {
    /// Connects, and sets the environment of all processes unless the runtime has set it.
    ///
    /// # Errors
    /// See [`ActionClient::connect`] and [`SandboxError`].
    pub async fn connect(
        self,
        runtime: &'static str,
        sandbox: &SandboxId,
        environment: &BTreeMap<String, String>,
    ) -> Result<ActionClient, SandboxError> {
        let Self {
            location,
            connect_timeout,
            start_timeout,
            has_environment,
        } = self;
        let ready = async {
            let address = location.into_address(runtime, sandbox);
            let client = ActionClient::connect(address, connect_timeout).await?;
            if !has_environment {
                client.set_initial_environment(environment).await?;
            }
            Ok(client)
        };
        match start_timeout {
            Some(timeout) => timeout.bound(ready).await,
            None => ready.await,
        }
    }
}

/// The time in which a sandbox must be ready. It starts when this is created.
#[derive(Debug, Clone)]
pub struct StartTimeout {
    subject: String,
    limit: Duration,
    deadline: Instant,
}

impl StartTimeout {
    /// Starts the time. The error names `subject`, such as `the container c1`.
    pub fn new(subject: impl fmt::Display, limit: Duration) -> Self {
        Self {
            subject: subject.to_string(),
            limit,
            deadline: Instant::now() + limit,
        }
    }

    /// Completes a part of the start.
    ///
    /// # Errors
    /// It fails, or the time is over: [`SandboxError::Start`].
    pub async fn bound<T>(
        &self,
        part: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        timeout_at(self.deadline, part).await.unwrap_or_else(|_| {
            Err(start_error(format!(
                "{} was not ready within {} s",
                self.subject,
                self.limit.as_secs()
            )))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use engine::sandbox::SandboxError;
    use tokio::time::{Instant, sleep};

    use super::StartTimeout;

    #[tokio::test(start_paused = true)]
    async fn parts_of_a_start_share_its_timeout() {
        let timeout = StartTimeout::new("the container c1", Duration::from_secs(5));
        let first = async {
            sleep(Duration::from_secs(4)).await;
            Ok(())
        };
        timeout.bound(first).await.unwrap();
        let second = timeout.bound(pending::<Result<(), SandboxError>>());
        let waited = Instant::now();
        assert_eq!(
            second.await.unwrap_err().to_string(),
            "cannot start the sandbox: the container c1 was not ready within 5 s"
        );
        assert_eq!(waited.elapsed(), Duration::from_secs(1));
    }
}
