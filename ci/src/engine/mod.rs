//! The container engine of the tests: the machine's if it has one, else a private one that is
//! removed on drop.
//!
//! On the machine's engine only our own images are removed; a private engine is removed with
//! everything in it.

mod daemon;
mod docker;
mod images;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::daemon::Daemon;
use self::docker::{Container, ContainerFilter, Docker};
use self::images::TestImage;
use crate::interrupt;
use crate::report;
use crate::scratch::ScratchFolder;
use crate::workspace::Workspace;

/// Default socket of an installed engine.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// An engine with the test images.
pub(crate) struct ContainerEngine {
    host: EngineHost,
    images: TestImages,
}

enum EngineHost {
    /// The machine's own engine. `before` are glovebox's containers that existed at the start.
    Shared {
        docker: Docker,
        before: Vec<Container>,
        imported: Vec<TestImage>,
    },
    Private(Daemon),
}

/// The test images, and error messages of those that could not be made.
#[derive(Default)]
struct TestImages {
    available: Vec<TestImage>,
    missing: Vec<String>,
}

impl ContainerEngine {
    /// Finds the engine of this machine, or starts a private one.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self> {
        let host = match find_engine() {
            Some(docker) => {
                let before = docker.containers(ContainerFilter::Labelled)?;
                EngineHost::Shared {
                    docker,
                    before,
                    imported: Vec::new(),
                }
            }
            None => EngineHost::Private(Daemon::start(ScratchFolder::new_in(
                &std::env::temp_dir(),
            )?)?),
        };
        Self::with_images(host, workspace)
    }

    fn private(folder: Option<&Path>, workspace: &Workspace) -> Result<Self> {
        let folder = match folder {
            Some(folder) => ScratchFolder::at(folder),
            None => ScratchFolder::new_in(&std::env::temp_dir()),
        }?;
        Self::with_images(EngineHost::Private(Daemon::start(folder)?), workspace)
    }

    fn with_images(host: EngineHost, workspace: &Workspace) -> Result<Self> {
        let mut engine = Self {
            host,
            images: TestImages::default(),
        };
        let cache = workspace.cache()?;
        for image in TestImage::ALL {
            interrupt::check()?;
            match engine.prepare(image, &cache) {
                Ok(()) => engine.images.available.push(image),
                Err(error) => engine
                    .images
                    .missing
                    .push(format!("no image {}: {error:#}", image.name())),
            }
        }
        interrupt::check()?;
        Ok(engine)
    }

    fn prepare(&mut self, image: TestImage, cache: &Path) -> Result<()> {
        if self.docker().has_image(image.name()) {
            return Ok(());
        }
        self.docker().import(&image.root(cache)?, image.name())?;
        if let EngineHost::Shared { imported, .. } = &mut self.host {
            imported.push(image);
        }
        Ok(())
    }

    /// Returns the environment variables by which programs find the engine and its images.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let images = self
            .images
            .available
            .iter()
            .map(|image| (image.variable(), image.name().to_owned()));
        [("DOCKER_HOST", self.docker().host.clone())]
            .into_iter()
            .chain(images)
            .collect()
    }

    /// Returns an error message for each image that could not be made.
    pub(crate) fn missing_images(&self) -> &[String] {
        &self.images.missing
    }

    /// Returns the names of the containers that were created since the start and not removed.
    pub(crate) fn remaining_containers(&self) -> Result<Vec<String>> {
        let left = match &self.host {
            EngineHost::Private(daemon) => daemon.docker.containers(ContainerFilter::All)?,
            EngineHost::Shared { docker, before, .. } => {
                let mut now = docker.containers(ContainerFilter::Labelled)?;
                now.retain(|container| !before.contains(container));
                now
            }
        };
        Ok(left.into_iter().map(|container| container.name).collect())
    }

    fn docker(&self) -> &Docker {
        match &self.host {
            EngineHost::Shared { docker, .. } => docker,
            EngineHost::Private(daemon) => &daemon.docker,
        }
    }
}

/// Removes the imported images of a shared engine. Remaining containers are reported, not removed,
/// because they may be sandboxes of a user.
impl Drop for ContainerEngine {
    fn drop(&mut self) {
        let EngineHost::Shared {
            docker, imported, ..
        } = &self.host
        else {
            return;
        };
        for image in imported {
            docker
                .remove_image(image.name())
                .unwrap_or_else(|error| report::note(&format!("{error:#}")));
        }
    }
}

/// Makes the root file systems of the test images in `cache`, unless an earlier run has.
pub(crate) fn make_images(cache: &Path) -> Result<()> {
    TestImage::ALL
        .into_iter()
        .try_for_each(|image| image.root(cache).map(drop))
}

/// Returns the first engine that answers: that of `DOCKER_HOST` or that of the default socket.
/// `None` if neither does.
fn find_engine() -> Option<Docker> {
    let named = std::env::var("DOCKER_HOST")
        .ok()
        .map(|host| Docker { host });
    let default = Path::new(DEFAULT_SOCKET);
    let default = default.exists().then(|| Docker::at_socket(default));
    named
        .into_iter()
        .chain(default)
        .find(|docker| match docker.probe() {
            Ok(()) => true,
            Err(error) => {
                report::note(&format!("not used: {error:#}"));
                false
            }
        })
}

/// Runs `cargo ci engine`: a private engine with the images, until ^C.
pub(crate) fn run(workspace: &Workspace, folder: Option<&Path>) -> Result<()> {
    let mut engine =
        ContainerEngine::private(folder, workspace).context("cannot start a container engine")?;
    engine
        .missing_images()
        .iter()
        .for_each(|missing| report::note(missing));
    for (name, value) in engine.variables() {
        report::print(&format!("export {name}={value}"))?;
    }
    report::note("^C stops and removes the engine");
    while !interrupt::is_requested() {
        if let EngineHost::Private(daemon) = &mut engine.host {
            daemon.check_alive()?;
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
