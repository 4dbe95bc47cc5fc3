//! The container engine that tests use: the machine's own if there is one, else a private one that ends with us.
//!
//! On somebody's own engine we touch only what we made there; a private one is emptied and removed as a whole.

mod daemon;
mod docker;
mod images;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::daemon::Daemon;
use self::docker::{Container, Docker, Which};
use self::images::Image;
use crate::interrupt;
use crate::report;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

/// Where an engine listens that the machine's owner has installed.
const USUAL_SOCKET: &str = "/var/run/docker.sock";

/// An engine with the test images.
pub(crate) struct Engine {
    host: Host,
    images: Images,
}

enum Host {
    /// Somebody's own. `before` are glovebox's containers that were there when we came.
    Borrowed {
        docker: Docker,
        before: Vec<Container>,
        imported: Vec<Image>,
    },
    Private(Daemon),
}

/// What became of the images.
#[derive(Default)]
struct Images {
    ready: Vec<Image>,
    missing: Vec<String>,
}

impl Engine {
    /// The engine of this machine or a new private one; the error says why there is none.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self> {
        let host = match own_engine() {
            Some(docker) => {
                let before = docker.containers(Which::Labelled)?;
                Host::Borrowed { docker, before, imported: Vec::new() }
            }
            None => Host::Private(Daemon::start(Scratch::new_in(&std::env::temp_dir())?)?),
        };
        Self::with_images(host, workspace)
    }

    fn private(folder: Option<&Path>, workspace: &Workspace) -> Result<Self> {
        let folder = match folder {
            Some(folder) => Scratch::at(folder),
            None => Scratch::new_in(&std::env::temp_dir()),
        }?;
        Self::with_images(Host::Private(Daemon::start(folder)?), workspace)
    }

    fn with_images(host: Host, workspace: &Workspace) -> Result<Self> {
        let mut engine = Self { host, images: Images::default() };
        let cache = workspace.cache()?;
        for image in Image::ALL {
            interrupt::check()?;
            match engine.prepare(image, &cache) {
                Ok(()) => engine.images.ready.push(image),
                Err(error) => engine.images.missing.push(format!("no image {}: {error:#}", image.name())),
            }
        }
        interrupt::check()?;
        Ok(engine)
    }

    fn prepare(&mut self, image: Image, cache: &Path) -> Result<()> {
        if self.docker().has_image(image.name()) {
            return Ok(());
        }
        self.docker().import(&image.root(cache)?, image.name())?;
        if let Host::Borrowed { imported, .. } = &mut self.host {
            imported.push(image);
        }
        Ok(())
    }

    /// What programs need to know to use it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let images = self.images.ready.iter().map(|image| (image.variable(), image.name().to_owned()));
        [("DOCKER_HOST", self.docker().host.clone())].into_iter().chain(images).collect()
    }

    /// The images that could not be made, each with why.
    pub(crate) fn missing_images(&self) -> &[String] {
        &self.images.missing
    }

    /// The names of the containers that were made since and not removed.
    pub(crate) fn containers_left(&self) -> Result<Vec<String>> {
        let left = match &self.host {
            Host::Private(daemon) => daemon.docker.containers(Which::All)?,
            Host::Borrowed { docker, before, .. } => {
                let mut now = docker.containers(Which::Labelled)?;
                now.retain(|container| !before.contains(container));
                now
            }
        };
        Ok(left.into_iter().map(|container| container.name).collect())
    }

    fn docker(&self) -> &Docker {
        match &self.host {
            Host::Borrowed { docker, .. } => docker,
            Host::Private(daemon) => &daemon.docker,
        }
    }
}

/// Containers that were left on a borrowed engine are named, not removed: there they may be somebody's running sandbox.
impl Drop for Engine {
    fn drop(&mut self) {
        let Host::Borrowed { docker, imported, .. } = &self.host else { return };
        for image in imported {
            docker.remove_image(image.name()).unwrap_or_else(|error| report::note(&format!("{error:#}")));
        }
    }
}

/// Where `DOCKER_HOST` points, or the usual place; the first that answers.
fn own_engine() -> Option<Docker> {
    let named = std::env::var("DOCKER_HOST").ok().map(|host| Docker { host });
    let usual = Path::new(USUAL_SOCKET);
    let usual = usual.exists().then(|| Docker::at_socket(usual));
    named.into_iter().chain(usual).find(|docker| match docker.answers() {
        Ok(()) => true,
        Err(error) => {
            report::note(&format!("not used: {error:#}"));
            false
        }
    })
}

/// `cargo ci engine`: a private engine with the images, until ^C.
#[expect(clippy::needless_pass_by_value, reason = "the folder is the engine's from here on")]
pub(crate) fn keep(workspace: &Workspace, folder: Option<PathBuf>) -> Result<()> {
    let mut engine = Engine::private(folder.as_deref(), workspace).context("starting a container engine")?;
    engine.missing_images().iter().for_each(|missing| report::note(missing));
    for (name, value) in engine.variables() {
        report::print(&format!("export {name}={value}"))?;
    }
    report::note("^C stops it and removes all of it");
    while !interrupt::requested() {
        if let Host::Private(daemon) = &mut engine.host {
            daemon.check()?;
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
