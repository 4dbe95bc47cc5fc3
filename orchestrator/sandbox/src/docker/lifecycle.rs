//! What is done to a container that exists: it is looked at, frozen, let go on, renamed.

use bollard::errors::Error;
use bollard::models::ContainerStateStatusEnum;
use bollard::query_parameters::RenameContainerOptionsBuilder;
use engine::sandbox::SandboxError;
use protocol::SandboxId;

use super::engine::{Engine, failed, said, status};
use super::labels::{FORK_LABEL, KEY_LABEL};

/// A container that exists, as far as speaking with it needs.
#[derive(Debug)]
pub(super) struct Found {
    /// The id that its server's key is derived from; nothing: its name.
    pub(super) key_of: Option<SandboxId>,
    pub(super) is_paused: bool,
    /// Whom it runs as, when its image does not decide that.
    pub(super) user: String,
    /// Its image's id.
    pub(super) image: String,
    /// Whether its image was made in passing: the label is handed down.
    pub(super) is_fork: bool,
}

impl Engine {
    /// Looks at a container. [`SandboxError::Lost`] when it is not there.
    pub(super) async fn look_at(&self, container: &str) -> Result<Found, SandboxError> {
        let found = self.docker.inspect_container(container, None).await;
        let found = found.map_err(|error| refused("looking at", container, &error))?;
        let config = found.config.unwrap_or_default();
        let labels = config.labels.unwrap_or_default();
        let status = found.state.and_then(|state| state.status);
        Ok(Found {
            key_of: labels.get(KEY_LABEL).and_then(|name| name.parse().ok()),
            is_fork: labels.get(FORK_LABEL).is_some_and(|fork| !fork.is_empty()),
            is_paused: status == Some(ContainerStateStatusEnum::PAUSED),
            user: config.user.unwrap_or_default(),
            image: found.image.unwrap_or_default(),
        })
    }

    /// Freezes what runs in a container.
    pub(super) async fn pause(&self, container: &str) -> Result<(), SandboxError> {
        match self.docker.pause_container(container).await {
            Err(error) if self.is_paused(container).await != Some(true) => {
                Err(refused("pausing", container, &error))
            }
            _ => Ok(()),
        }
    }

    /// Lets a container go on.
    pub(super) async fn resume(&self, container: &str) -> Result<(), SandboxError> {
        match self.docker.unpause_container(container).await {
            // It was not frozen, or somebody else let it go on this moment.
            Err(_) if self.is_running(container).await => Ok(()),
            Err(error) => Err(refused("resuming", container, &error)),
            Ok(()) => Ok(()),
        }
    }

    /// Whether a container is frozen; nothing: the engine does not say, or there is none.
    pub(super) async fn is_paused(&self, container: &str) -> Option<bool> {
        let found = self.docker.inspect_container(container, None).await.ok()?;
        Some(found.state?.status == Some(ContainerStateStatusEnum::PAUSED))
    }

    async fn is_running(&self, container: &str) -> bool {
        let found = self.docker.inspect_container(container, None).await;
        let state = found.ok().and_then(|found| found.state).unwrap_or_default();
        state.status == Some(ContainerStateStatusEnum::RUNNING)
    }

    /// Gives a container another name; one that has that name is removed.
    pub(super) async fn rename_in_place(&self, container: &str, name: &str) -> Result<(), SandboxError> {
        let options = || RenameContainerOptionsBuilder::default().name(name).build();
        let renamed = match self.docker.rename_container(container, options()).await {
            Err(error) if status(&error) == Some(409) => {
                tracing::info!(sandbox = name, "removing the container that is left from before");
                // Whether that went well shows in the next line.
                let _ = self.remove(name).await;
                self.docker.rename_container(container, options()).await
            }
            renamed => renamed,
        };
        renamed.map_err(|error| refused("renaming", container, &error))
    }
}

/// A request about a container that should be there: it is not, it has ended, or the engine has gone.
pub(super) fn refused(doing: &str, container: &str, error: &Error) -> SandboxError {
    let doing = format!("{doing} the container {container}");
    match status(error) {
        Some(404 | 409) => SandboxError::Lost { detail: said(error) },
        Some(_) => SandboxError::Host { doing, source: std::io::Error::other(said(error)) },
        None => failed(&doing, error),
    }
}
