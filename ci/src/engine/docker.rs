//! Client of one container engine. Runs the `docker` command, which negotiates the API version and
//! supports every transport.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::command;

/// Label of the containers that glovebox creates.
const LABEL: &str = "glovebox";

/// Label of the images that we import. It differs from `LABEL`, because containers inherit the
/// labels of their image.
const IMAGE_LABEL: &str = "LABEL glovebox-test=image";

/// Time for an engine to answer before it counts as absent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a removal. The engine kills containers first, which is slow on a busy machine.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// An engine and its address, in the format of `DOCKER_HOST`.
#[derive(Debug)]
pub(super) struct Docker {
    pub(super) host: String,
}

/// An existing container, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    id: String,
    pub(super) name: String,
}

/// A selection of containers.
#[derive(Clone, Copy)]
pub(super) enum ContainerFilter {
    All,
    Labelled,
}

impl Docker {
    pub(super) fn at_socket(socket: &Path) -> Self {
        Self {
            host: format!("unix://{}", socket.display()),
        }
    }

    pub(super) fn probe(&self) -> Result<()> {
        let mut docker = self.docker(&["version", "--format", "{{.Server.Version}}"]);
        command::capture_with_timeout(
            &mut docker,
            &format!("asking the engine at {}", self.host),
            PROBE_TIMEOUT,
        )
        .map(drop)
    }

    pub(super) fn has_image(&self, image: &str) -> bool {
        command::capture(
            &mut self.docker(&["image", "inspect", image]),
            "looking for an image",
        )
        .is_ok()
    }

    /// Creates `image` from the tar of a root file system.
    pub(super) fn import(&self, root: &Path, image: &str) -> Result<()> {
        let mut docker = self.docker(&[
            "import",
            "--change",
            IMAGE_LABEL,
            "--change",
            "CMD [\"/bin/sh\"]",
        ]);
        command::capture(docker.arg(root).arg(image), &format!("importing {image}")).map(drop)
    }

    pub(super) fn remove_image(&self, image: &str) -> Result<()> {
        command::capture_with_timeout(
            &mut self.docker(&["image", "rm", image]),
            &format!("removing {image}"),
            REMOVAL_TIMEOUT,
        )
        .map(drop)
    }

    pub(super) fn containers(&self, filter: ContainerFilter) -> Result<Vec<Container>> {
        let mut docker = self.docker(&[
            "ps",
            "--all",
            "--no-trunc",
            "--format",
            "{{.ID}} {{.Names}}",
        ]);
        if let ContainerFilter::Labelled = filter {
            docker.arg("--filter").arg(format!("label={LABEL}"));
        }
        let lines =
            command::capture_with_timeout(&mut docker, "listing containers", REMOVAL_TIMEOUT)?;
        let parts = lines.lines().filter_map(|line| line.split_once(' '));
        Ok(parts
            .map(|(id, name)| Container {
                id: id.to_owned(),
                name: name.to_owned(),
            })
            .collect())
    }

    pub(super) fn remove(&self, containers: &[Container]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        let mut docker = self.docker(&["rm", "--force", "--volumes"]);
        docker.args(containers.iter().map(|container| &container.id));
        command::capture_with_timeout(&mut docker, "removing containers", REMOVAL_TIMEOUT).map(drop)
    }

    /// Returns a `docker` command. Removes the user's context, which would take precedence over the
    /// address.
    fn docker(&self, arguments: &[&str]) -> Command {
        let mut docker = Command::new("docker");
        docker
            .args(arguments)
            .env("DOCKER_HOST", &self.host)
            .env_remove("DOCKER_CONTEXT");
        docker
    }
}
