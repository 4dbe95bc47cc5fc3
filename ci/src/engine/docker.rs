//! One container engine, spoken to through the `docker` command, which negotiates the API's version and knows every way
//! to reach an engine.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::command;

/// The label of containers that glovebox makes.
const LABEL: &str = "glovebox";

/// The label of images that we import. Not `LABEL`: a container has the labels of its image.
const IMAGE_LABEL: &str = "LABEL glovebox-test=image";

/// An engine that is asked whether it is there answers in this time, or is not.
const ANSWER: Duration = Duration::from_secs(5);

/// Removing containers: the engine kills them first, and a busy machine is slow at it.
const REMOVAL: Duration = Duration::from_secs(60);

/// The engine at an address, as `DOCKER_HOST` writes it.
#[derive(Debug)]
pub(super) struct Docker {
    pub(super) host: String,
}

/// Of those that exist, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    id: String,
    pub(super) name: String,
}

/// Which containers are meant.
#[derive(Clone, Copy)]
pub(super) enum Which {
    All,
    Labelled,
}

impl Docker {
    pub(super) fn at_socket(socket: &Path) -> Self {
        Self { host: format!("unix://{}", socket.display()) }
    }

    pub(super) fn answers(&self) -> Result<()> {
        let mut docker = self.docker(&["version", "--format", "{{.Server.Version}}"]);
        command::finish(&mut docker, &format!("asking the engine at {}", self.host), ANSWER).map(drop)
    }

    pub(super) fn has_image(&self, image: &str) -> bool {
        command::capture(&mut self.docker(&["image", "inspect", image]), "looking for an image").is_ok()
    }

    /// Makes `image` from a root file system in a tar.
    pub(super) fn import(&self, root: &Path, image: &str) -> Result<()> {
        let mut docker = self.docker(&["import", "--change", IMAGE_LABEL, "--change", "CMD [\"/bin/sh\"]"]);
        command::capture(docker.arg(root).arg(image), &format!("importing {image}")).map(drop)
    }

    pub(super) fn remove_image(&self, image: &str) -> Result<()> {
        command::finish(&mut self.docker(&["image", "rm", image]), &format!("removing {image}"), REMOVAL)
            .map(drop)
    }

    pub(super) fn containers(&self, which: Which) -> Result<Vec<Container>> {
        let mut docker = self.docker(&["ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}"]);
        if let Which::Labelled = which {
            docker.arg("--filter").arg(format!("label={LABEL}"));
        }
        let lines = command::finish(&mut docker, "listing containers", REMOVAL)?;
        let parts = lines.lines().filter_map(|line| line.split_once(' '));
        Ok(parts.map(|(id, name)| Container { id: id.to_owned(), name: name.to_owned() }).collect())
    }

    pub(super) fn remove(&self, containers: &[Container]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        let mut docker = self.docker(&["rm", "--force", "--volumes"]);
        docker.args(containers.iter().map(|container| &container.id));
        command::finish(&mut docker, "removing containers", REMOVAL).map(drop)
    }

    /// A context that somebody has chosen would go before the address.
    fn docker(&self, arguments: &[&str]) -> Command {
        let mut docker = Command::new("docker");
        docker.args(arguments).env("DOCKER_HOST", &self.host).env_remove("DOCKER_CONTEXT");
        docker
    }
}
