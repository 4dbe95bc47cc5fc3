//! Operations on an existing container: inspect, pause, resume, rename.

use bollard::errors::Error;
use bollard::models::ContainerStateStatusEnum;
use bollard::query_parameters::RenameContainerOptionsBuilder;
use engine::sandbox::SandboxError;
use protocol::SandboxId;

use super::engine::{Engine, error_message, failed, status};
use super::labels::{FORK_LABEL, KEY_LABEL};

/// Properties of a container that a connection needs.
#[derive(Debug)]
pub(super) struct ContainerInfo {
    /// The id that its server's key is derived from. `None` if that is the container's name.
    pub(super) key_of: Option<SandboxId>,
    pub(super) is_paused: bool,
    /// Image id.
    pub(super) image: String,
    /// Whether its image is the temporary snapshot of a fork, whose label it inherits.
    pub(super) is_fork: bool,
}

impl Engine {
    /// Inspects a container. [`SandboxError::Lost`] if it does not exist.
    pub(super) async fn inspect_container(
        &self,
        container: &str,
    ) -> Result<ContainerInfo, SandboxError> {
        let found = self.docker.inspect_container(container, None).await;
        let found = found.map_err(|error| refused("inspect", container, &error))?;
        let config = found.config.unwrap_or_default();
        let labels = config.labels.unwrap_or_default();
        let status = found.state.and_then(|state| state.status);
        Ok(ContainerInfo {
            key_of: labels.get(KEY_LABEL).and_then(|name| name.parse().ok()),
            is_fork: labels.get(FORK_LABEL).is_some_and(|fork| !fork.is_empty()),
            is_paused: status == Some(ContainerStateStatusEnum::PAUSED),
            image: found.image.unwrap_or_default(),
        })
    }

    /// Freezes the processes of a container.
    pub(super) async fn pause(&self, container: &str) -> Result<(), SandboxError> {
        match self.docker.pause_container(container).await {
            Err(error) if self.is_paused(container).await != Some(true) => {
                Err(refused("pause", container, &error))
            }
            _ => Ok(()),
        }
    }

    /// Resumes a paused container.
    pub(super) async fn resume(&self, container: &str) -> Result<(), SandboxError> {
        match self.docker.unpause_container(container).await {
            // It was not paused, or another client has just resumed it.
            Err(_) if self.is_running(container).await => Ok(()),
            Err(error) => Err(refused("resume", container, &error)),
            Ok(()) => Ok(()),
        }
    }

    /// Whether a container is paused. `None` if it does not exist, or if the engine does not
    /// respond.
    pub(super) async fn is_paused(&self, container: &str) -> Option<bool> {
        let found = self.docker.inspect_container(container, None).await.ok()?;
        Some(found.state?.status == Some(ContainerStateStatusEnum::PAUSED))
    }

    async fn is_running(&self, container: &str) -> bool {
        let found = self.docker.inspect_container(container, None).await;
        let state = found.ok().and_then(|found| found.state).unwrap_or_default();
        state.status == Some(ContainerStateStatusEnum::RUNNING)
    }

    /// Renames a container. A container of the owner that already has the name is removed.
    pub(super) async fn rename_replacing(
        &self,
        container: &str,
        owner: &str,
        name: &str,
    ) -> Result<(), SandboxError> {
        let options = || RenameContainerOptionsBuilder::default().name(name).build();
        let renamed = match self.docker.rename_container(container, options()).await {
            Err(error) if status(&error) == Some(409) => {
                tracing::info!(
                    sandbox = name,
                    "removing the container that is left from before"
                );
                // An error shows up again in the next request.
                if let Ok(false) = self.remove_of(owner, name).await {
                    return Err(foreign_container(name));
                }
                self.docker.rename_container(container, options()).await
            }
            renamed => renamed,
        };
        renamed.map_err(|error| refused("rename", container, &error))
    }
}

/// Returns the error for a name that another installation or program uses.
pub(super) fn foreign_container(name: &str) -> SandboxError {
    SandboxError::Invalid {
        detail: format!(
            "the container {name} on this engine belongs to another installation or program: choose another name"
        ),
    }
}

/// Maps the error of a request for an existing container: lost, refused, or engine unavailable.
pub(super) fn refused(operation: &'static str, container: &str, error: &Error) -> SandboxError {
    match status(error) {
        Some(404 | 409) => SandboxError::Lost {
            detail: error_message(error),
        },
        _ => failed(operation, format_args!("the container {container}"), error),
    }
}
