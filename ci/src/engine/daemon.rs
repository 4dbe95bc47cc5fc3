//! A private engine: a `dockerd` in a folder of its own, that shares nothing with the machine's and ends with us.
//!
//! It has no bridge and no firewall rules: tests run their containers without a network.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::docker::{Docker, Which};
use crate::command::{self, GLANCE};
use crate::interrupt;
use crate::report;
use crate::scratch::Scratch;

/// It takes one to two seconds; on a cold disk ten.
const START: Duration = Duration::from_secs(30);

/// How much of its log a failure shows.
const LOG_LINES: usize = 20;

/// A running private engine. Drop removes its containers, then stops it, then removes its folder: in another order
/// containers would live on, and hold their mounts.
pub(super) struct Daemon {
    pub(super) docker: Docker,
    process: Child,
    folder: Scratch,
}

impl Daemon {
    pub(super) fn start(folder: Scratch) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("a private container engine needs root");
        }
        let docker = Docker::at_socket(&folder.path().join("docker.sock"));
        let process = command::spawn(&mut dockerd(folder.path(), &docker)?, "a private container engine")?;
        let mut daemon = Self { docker, process, folder };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    /// Fails once it has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the container engine ended by itself: {status}\n{}", self.log_tail()),
        }
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            interrupt::check()?;
            self.check()?;
            match self.docker.answers() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error.context(self.log_tail())),
                Err(_) => thread::sleep(GLANCE),
            }
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn remove_containers(&self) -> Result<()> {
        self.docker.remove(&self.docker.containers(Which::All)?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.check().is_ok() {
            self.remove_containers().unwrap_or_else(|error| report::note(&format!("{error:#}")));
        }
        if let Err(error) = command::end(&mut self.process) {
            report::note(&format!("stopping the container engine: {error:#}"));
        }
    }
}

/// The machine's own configuration and containerd are not for this one: a `hosts` in the first would stop it, and in
/// the second it takes a namespace of its own.
fn dockerd(folder: &Path, docker: &Docker) -> Result<Command> {
    let configuration = folder.join("daemon.json");
    fs::write(&configuration, "{}").context("writing the engine's configuration")?;
    let log = File::create(folder.join("log")).context("making the engine's log")?;
    let mut dockerd = Command::new("dockerd");
    dockerd.arg("--config-file").arg(configuration).arg("--host").arg(&docker.host);
    for (option, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
        dockerd.arg(option).arg(folder.join(name));
    }
    for (option, what) in
        [("--containerd-namespace", "containers"), ("--containerd-plugins-namespace", "plugins")]
    {
        dockerd.arg(option).arg(format!("glovebox-ci-{what}-{}", std::process::id()));
    }
    dockerd.args(["--bridge=none", "--iptables=false"]).stdout(log.try_clone()?).stderr(log);
    Ok(dockerd)
}
