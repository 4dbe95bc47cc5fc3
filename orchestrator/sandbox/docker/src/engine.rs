//! Client of the engine's API, with the mapping of its errors.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use engine::errors::format_chain;
use engine::sandbox::{Lifetime, SandboxError, SandboxState, SandboxSummary};
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use protocol::SandboxId;
use sandbox_client::provisioning::{MAX_LOG_BYTES, conversation_of, start_error};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::labels::{KEY_LABEL, LIFETIME_LABEL, OWNER_LABEL};
use super::{RUNTIME, discovery};

/// Advice in the errors if no engine responds.
pub(super) const USE_LOCAL: &str =
    "add `--runtime local` (for always: `runtime = \"local\"` in `[core]`)";

/// Advice in the errors of one engine that does not respond.
pub(super) const NOT_RUNNING: &str = "is Docker running? Without it, add `--runtime local` (for always: `runtime = \"local\"` in `[core]`)";

/// Timeout of one request. A pull is a stream with its own timeout.
const REQUEST_TIMEOUT_SECS: u64 = 60;

/// Time to negotiate the API version, which needs nothing of the engine but that it responds.
const VERSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Time to read the logs of a failed container. The error is due within a second after the start
/// timeout.
const LOGS_TIMEOUT: Duration = Duration::from_millis(500);

/// A connected engine.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) docker: Docker,
    /// Whether it listens on a unix socket. It then probably sees this host's files, unless it runs
    /// in a desktop VM.
    pub(super) is_local: bool,
    known: Arc<EngineInfo>,
}

/// Cached properties of an engine, which are constant while it runs.
#[derive(Debug, Default)]
struct EngineInfo {
    is_rootless: OnceCell<bool>,
    supports_disk_quota: OnceLock<bool>,
}

impl Engine {
    /// Connects to the engine at `host`, or to the first default socket that responds.
    pub(super) async fn find(
        host: Option<&str>,
        runtime_dir: Option<&Path>,
    ) -> Result<Self, SandboxError> {
        match host {
            Some(host) => Self::connect(host).await,
            None => discovery::first_responding(&discovery::usual_sockets(runtime_dir)).await,
        }
    }

    /// Connects and negotiates the API version.
    pub(super) async fn connect(host: &str) -> Result<Self, SandboxError> {
        let connected = match host.split_once("://") {
            Some(("unix", path)) => {
                Docker::connect_with_unix(path, REQUEST_TIMEOUT_SECS, API_DEFAULT_VERSION)
            }
            Some(("tcp" | "http", _)) => {
                Docker::connect_with_http(host, REQUEST_TIMEOUT_SECS, API_DEFAULT_VERSION)
            }
            _ => Err(Error::UnsupportedURISchemeError { uri: host.into() }),
        };
        let negotiated = async { connected?.negotiate_version().await };
        let unavailable = |problem: String, next: &str| SandboxError::RuntimeUnavailable {
            runtime: RUNTIME,
            detail: format!("{problem}; {next}"),
        };
        let docker = timeout(VERSION_TIMEOUT, negotiated)
            .await
            .map_err(|_| {
                let limit = VERSION_TIMEOUT.as_secs();
                let problem = format!("the engine at {host} does not answer within {limit} s");
                unavailable(problem, NOT_RUNNING)
            })?
            .map_err(|error| {
                let cause = format_chain(&error);
                let problem = format!("cannot query the version of the engine at {host}: {cause}");
                unavailable(problem, next_step(&error))
            })?;
        Ok(Self {
            docker,
            is_local: host.starts_with("unix://"),
            known: Arc::default(),
        })
    }

    /// Whether root in a container is the unprivileged user who runs the engine.
    pub(super) async fn is_rootless(&self) -> Result<bool, SandboxError> {
        let asked = self.known.is_rootless.get_or_try_init(async || {
            let info = self.docker.info().await;
            let info =
                info.map_err(|error| start_failed("query the settings of the engine", &error))?;
            Ok(info
                .security_options
                .iter()
                .flatten()
                .any(|option| option == "name=rootless"))
        });
        asked.await.copied()
    }

    /// Whether the storage driver supports a disk quota. `None` if it was not tried yet.
    pub(super) fn supports_disk_quota(&self) -> Option<bool> {
        self.known.supports_disk_quota.get().copied()
    }

    /// Caches the support of disk quotas. The first value wins.
    pub(super) fn remember_disk_quota_support(&self, answer: bool) {
        let _ = self.known.supports_disk_quota.set(answer);
    }

    /// Removes the container of this name if it is the owner's: another installation on the engine
    /// may have given a sandbox the same name. Returns whether the name is free.
    pub(super) async fn remove_of(
        &self,
        owner: &str,
        container: &str,
    ) -> Result<bool, SandboxError> {
        let found = match self.docker.inspect_container(container, None).await {
            Ok(found) => found,
            Err(error) if status(&error) == Some(404) => return Ok(true),
            Err(error) => {
                return Err(failed(
                    "inspect",
                    format_args!("the container {container}"),
                    &error,
                ));
            }
        };
        let labels = found.config.and_then(|config| config.labels);
        let is_ours = labels
            .unwrap_or_default()
            .get(OWNER_LABEL)
            .is_some_and(|found| found == owner);
        match found.id.filter(|_| is_ours) {
            Some(id) => self.remove(&id).await.map(|()| true),
            None => {
                tracing::debug!(container, "the container belongs to another installation");
                Ok(false)
            }
        }
    }

    /// Removes a container and its volumes, even if it runs. Succeeds if the container does not
    /// exist.
    async fn remove(&self, container: &str) -> Result<(), SandboxError> {
        let options = RemoveContainerOptionsBuilder::default()
            .force(true)
            .v(true)
            .build();
        match self.docker.remove_container(container, Some(options)).await {
            Ok(()) => Ok(()),
            // It does not exist, or another client is removing it.
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(SandboxError::host(
                "remove",
                format_args!("the container {container}"),
                io::Error::other(error),
            )),
        }
    }

    /// Removes the container that was created under this name, even if it was renamed.
    pub(super) async fn remove_created_as(&self, name: &SandboxId) -> Result<(), SandboxError> {
        let filters = HashMap::from([("label", vec![format!("{KEY_LABEL}={name}")])]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filters)
            .build();
        let containers = self.docker.list_containers(Some(options)).await;
        let containers = containers.map_err(|error| {
            failed(
                "find",
                format_args!("the container created as {name}"),
                &error,
            )
        })?;
        for id in containers.into_iter().filter_map(|container| container.id) {
            self.remove(&id).await?;
        }
        Ok(())
    }

    /// Lists the containers with this owner's label.
    pub(super) async fn containers_of(
        &self,
        owner: &str,
    ) -> Result<Vec<SandboxSummary>, SandboxError> {
        let filters = HashMap::from([("label", vec![format!("{OWNER_LABEL}={owner}")])]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filters)
            .build();
        let containers = self.docker.list_containers(Some(options)).await;
        let containers = containers
            .map_err(|error| failed("list", format_args!("the containers of {owner}"), &error))?;
        Ok(containers.into_iter().filter_map(parse_summary).collect())
    }

    /// Returns the end of a container's log for an error message. Best effort, empty on failure.
    pub(super) async fn log_tail(&self, container: &str) -> String {
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .tail("all")
            .build();
        let mut logs = self
            .docker
            .logs(container, Some(options))
            .map_ok(LogOutput::into_bytes);
        let mut tail: Vec<u8> = Vec::new();
        let read = async {
            while let Some(Ok(piece)) = logs.next().await {
                tail.extend_from_slice(&piece);
                let excess = tail.len().saturating_sub(MAX_LOG_BYTES);
                tail.drain(..excess);
            }
        };
        // On timeout, the part that has arrived is used.
        let _ = timeout(LOGS_TIMEOUT, read).await;
        String::from_utf8_lossy(&tail).into_owned()
    }

    /// Returns the end of a container's log. [`SandboxError::Lost`] if the container does not
    /// exist.
    pub(super) async fn logs(&self, container: &str) -> Result<String, SandboxError> {
        self.inspect_container(container).await?;
        Ok(self.log_tail(container).await)
    }

    /// Returns why a container has stopped. `None` if it runs, or if the engine does not respond.
    pub(super) async fn termination_reason(&self, container: &str) -> Option<String> {
        let found = match self.docker.inspect_container(container, None).await {
            Ok(found) => found.state.unwrap_or_default(),
            Err(error) if status(&error) == Some(404) => {
                return Some(format!("the container {container} is gone"));
            }
            Err(_) => return None,
        };
        // Podman does not report a paused container as running.
        if found.running == Some(true) || found.paused == Some(true) {
            return None;
        }
        let memory = if found.oom_killed == Some(true) {
            ", out of memory"
        } else {
            ""
        };
        let code = found.exit_code.unwrap_or_default();
        Some(format!(
            "the container {container} has ended with code {code}{memory}"
        ))
    }
}

fn parse_summary(container: ContainerSummary) -> Option<SandboxSummary> {
    let labels = container.labels?;
    let sandbox: SandboxId = container
        .names?
        .into_iter()
        .next()?
        .trim_start_matches('/')
        .parse()
        .ok()?;
    Some(SandboxSummary {
        conversation: conversation_of(sandbox.as_str()),
        sandbox,
        lifetime: labels
            .get(LIFETIME_LABEL)
            .map_or(Lifetime::Conversation, |text| {
                // A later version may know more of them. Sweeps keep what they do not understand.
                text.parse().unwrap_or(Lifetime::UntilRemoved)
            }),
        image: container.image,
        condition: match container.state {
            Some(ContainerSummaryStateEnum::PAUSED) => SandboxState::Paused,
            Some(ContainerSummaryStateEnum::RUNNING) => SandboxState::Running,
            _ => SandboxState::Ended,
        },
        created_at: container
            .created
            .and_then(|seconds| Timestamp::from_second(seconds).ok()),
    })
}

/// Returns the HTTP status of an error. `None` if the engine did not respond.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Returns the engine's error message, or the transport error.
pub(super) fn error_message(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => format_chain(other),
    }
}

/// Maps the error of a request: refused by the engine, or engine unavailable.
pub(super) fn failed(
    operation: &'static str,
    subject: impl fmt::Display,
    error: &Error,
) -> SandboxError {
    match status(error) {
        Some(_) => SandboxError::host(operation, subject, io::Error::other(error_message(error))),
        None => unavailable(format_args!("{operation} {subject}"), error),
    }
}

/// Maps the error of a request during a start: refused by the engine, or engine unavailable.
pub(super) fn start_failed(operation: impl fmt::Display, error: &Error) -> SandboxError {
    match status(error) {
        Some(_) => start_error(format!("cannot {operation}: {}", error_message(error))),
        None => unavailable(operation, error),
    }
}

fn unavailable(operation: impl fmt::Display, error: &Error) -> SandboxError {
    SandboxError::RuntimeUnavailable {
        runtime: RUNTIME,
        detail: format!(
            "cannot {operation}: {}; {}",
            error_message(error),
            next_step(error)
        ),
    }
}

/// What the user can do about an engine that cannot be used.
fn next_step(error: &Error) -> &'static str {
    if matches!(error, Error::UnsupportedURISchemeError { .. }) {
        return "DOCKER_HOST must be unix://PATH or tcp://HOST:PORT";
    }
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    let mut kinds = causes.filter_map(|cause| cause.downcast_ref().map(std::io::Error::kind));
    if kinds.any(|kind| kind == ErrorKind::PermissionDenied) {
        "add your user to the group of the socket, usually docker, and log in again"
    } else {
        NOT_RUNNING
    }
}
