//! The engine: one client of its API, and what its refusals mean.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use engine::sandbox::{Lifetime, SandboxError, SandboxState, SandboxSummary};
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use protocol::SandboxId;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::labels::{KEY_LABEL, LIFETIME_LABEL, OWNER_LABEL, UNTIL_REMOVED};
use super::{RUNTIME, discovery};
use crate::placement::{KEPT_LOG_LENGTH, chain, conversation_of, start_error};

/// What to do where no engine answers.
const HINT: &str = "is Docker running? The runtime local works without it";

/// For one request to the engine; a pull streams and has a time of its own.
const REQUEST_SECONDS: u64 = 60;

/// For the logs of a container that failed: the error must come within a second of the start's timeout.
const LOGS_WAIT: Duration = Duration::from_millis(500);

/// An engine that has answered.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) docker: Docker,
    /// Its unix socket lies on this host, so it probably sees this host's files; a desktop's virtual machine may not.
    pub(super) is_local: bool,
    known: Arc<Known>,
}

/// What an engine was found to be: asked once, it stays so for as long as it runs.
#[derive(Debug, Default)]
struct Known {
    is_rootless: OnceCell<bool>,
    bounds_disk: OnceLock<bool>,
}

impl Engine {
    /// The engine at `host`, or the first that answers of those where one usually listens.
    pub(super) async fn find(host: Option<&str>, runtime_dir: Option<&Path>) -> Result<Self, SandboxError> {
        match host {
            Some(host) => Self::connect(host).await,
            None => discovery::first_that_answers(&discovery::usual_sockets(runtime_dir)).await,
        }
    }

    /// Connects, and agrees on the version of the API that both know.
    pub(super) async fn connect(host: &str) -> Result<Self, SandboxError> {
        let connected = match host.split_once("://") {
            Some(("unix", path)) => Docker::connect_with_unix(path, REQUEST_SECONDS, API_DEFAULT_VERSION),
            Some(("tcp" | "http", _)) => {
                Docker::connect_with_http(host, REQUEST_SECONDS, API_DEFAULT_VERSION)
            }
            _ => Err(Error::UnsupportedURISchemeError { uri: host.into() }),
        };
        let docker = match connected {
            Ok(docker) => docker.negotiate_version().await,
            Err(error) => Err(error),
        };
        let is_local = host.starts_with("unix://");
        match docker {
            Ok(docker) => Ok(Self { docker, is_local, known: Arc::default() }),
            Err(error) => Err(SandboxError::RuntimeUnavailable {
                runtime: RUNTIME,
                detail: format!("asking the engine at {host} for its version: {}; {HINT}", chain(&error)),
            }),
        }
    }

    /// Whether root of its containers is the user who runs it.
    pub(super) async fn is_rootless(&self) -> Result<bool, SandboxError> {
        let asked = self.known.is_rootless.get_or_try_init(async || {
            let info = self.docker.info().await;
            let info = info.map_err(|error| failed("asking the engine how it runs", &error))?;
            Ok(info.security_options.iter().flatten().any(|option| option == "name=rootless"))
        });
        asked.await.copied()
    }

    /// Whether its storage can bound a container's disk; nothing: not tried yet.
    pub(super) fn bounds_disk(&self) -> Option<bool> {
        self.known.bounds_disk.get().copied()
    }

    /// Keeps the answer. The first one stays.
    pub(super) fn remember_bounds_disk(&self, answer: bool) {
        let _ = self.known.bounds_disk.set(answer);
    }

    /// Removes a container with its volumes, running or not. One that is not there is no error.
    pub(super) async fn remove(&self, container: &str) -> Result<(), SandboxError> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.docker.remove_container(container, Some(options)).await {
            Ok(()) => Ok(()),
            // Gone, or somebody else is removing it this moment.
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(SandboxError::Host {
                doing: format!("removing the container {container}"),
                source: std::io::Error::other(error),
            }),
        }
    }

    /// Removes the container that was made with this name, whatever it is called now.
    pub(super) async fn remove_made_as(&self, name: &SandboxId) -> Result<(), SandboxError> {
        let filters = HashMap::from([("label", vec![format!("{KEY_LABEL}={name}")])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let containers = self.docker.list_containers(Some(options)).await;
        let containers =
            containers.map_err(|error| failed(&format!("looking for what was {name}"), &error))?;
        for id in containers.into_iter().filter_map(|container| container.id) {
            self.remove(&id).await?;
        }
        Ok(())
    }

    /// The containers that carry this owner's label.
    pub(super) async fn containers_of(&self, owner: &str) -> Result<Vec<SandboxSummary>, SandboxError> {
        let filters = HashMap::from([("label", vec![format!("{OWNER_LABEL}={owner}")])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let containers = self.docker.list_containers(Some(options)).await;
        let containers =
            containers.map_err(|error| failed(&format!("listing the containers of {owner}"), &error))?;
        Ok(containers.into_iter().filter_map(placed).collect())
    }

    /// The end of what a container wrote. Best effort: it goes into an error that has its own reason.
    pub(super) async fn log_tail(&self, container: &str) -> String {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail("all").build();
        let mut logs = self.docker.logs(container, Some(options)).map_ok(LogOutput::into_bytes);
        let mut tail: Vec<u8> = Vec::new();
        let read = async {
            while let Some(Ok(piece)) = logs.next().await {
                tail.extend_from_slice(&piece);
                let excess = tail.len().saturating_sub(KEPT_LOG_LENGTH);
                tail.drain(..excess);
            }
        };
        // What came until then is better than nothing.
        let _ = timeout(LOGS_WAIT, read).await;
        String::from_utf8_lossy(&tail).into_owned()
    }

    /// The end of what a container wrote, for who asks for it. [`SandboxError::Lost`] when it is not there.
    pub(super) async fn logs(&self, container: &str) -> Result<String, SandboxError> {
        self.look_at(container).await?;
        Ok(self.log_tail(container).await)
    }

    /// Why nothing can be run in a container any more; nothing when it runs, or the engine does not say.
    pub(super) async fn end_of(&self, container: &str) -> Option<String> {
        let found = match self.docker.inspect_container(container, None).await {
            Ok(found) => found.state.unwrap_or_default(),
            Err(error) if status(&error) == Some(404) => {
                return Some(format!("the container {container} is gone"));
            }
            Err(_) => return None,
        };
        // Podman does not count one that is frozen among those that run.
        if found.running == Some(true) || found.paused == Some(true) {
            return None;
        }
        let memory = if found.oom_killed == Some(true) { ", out of memory" } else { "" };
        let code = found.exit_code.unwrap_or_default();
        Some(format!("the container {container} has ended with code {code}{memory}"))
    }
}

fn placed(container: ContainerSummary) -> Option<SandboxSummary> {
    let labels = container.labels?;
    let sandbox: SandboxId = container.names?.into_iter().next()?.trim_start_matches('/').parse().ok()?;
    Some(SandboxSummary {
        conversation: conversation_of(sandbox.as_str()),
        sandbox,
        lifetime: match labels.get(LIFETIME_LABEL).map(String::as_str) {
            Some(UNTIL_REMOVED) => Lifetime::UntilRemoved,
            _ => Lifetime::Conversation,
        },
        image: container.image,
        condition: match container.state {
            Some(ContainerSummaryStateEnum::PAUSED) => SandboxState::Paused,
            Some(ContainerSummaryStateEnum::RUNNING) => SandboxState::Running,
            _ => SandboxState::Ended,
        },
        created_at: container.created.and_then(|seconds| Timestamp::from_second(seconds).ok()),
    })
}

/// The status of the engine's refusal; nothing when there was no answer.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// The engine's own sentence, or how asking it failed.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => chain(other),
    }
}

/// A request of a start that failed: refused by the engine, or the engine has gone.
pub(super) fn failed(doing: &str, error: &Error) -> SandboxError {
    match status(error) {
        Some(_) => start_error(format!("{doing}: {}", said(error))),
        None => SandboxError::RuntimeUnavailable {
            runtime: RUNTIME,
            detail: format!("{doing}: {}; {HINT}", said(error)),
        },
    }
}
