//! A private engine: a `dockerd` with its own folder, isolated from the machine's engine and
//! stopped on drop.
//!
//! It has no bridge and no firewall rules, because tests run their containers without a network.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::docker::{ContainerFilter, Docker};
use crate::command::{self, POLL_INTERVAL};
use crate::interrupt;
use crate::report;
use crate::scratch::ScratchFolder;

/// Time for the engine to start. It takes one to two seconds, or ten with a cold disk cache.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of log lines in an error.
const MAX_LOG_LINES: usize = 20;

/// A running private engine. Drop removes its containers, stops it, and removes its folder. In
/// another order, containers would survive and keep their mounts.
pub(super) struct Daemon {
    pub(super) docker: Docker,
    process: Child,
    folder: ScratchFolder,
}

impl Daemon {
    pub(super) fn start(folder: ScratchFolder) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("a private container engine needs root");
        }
        let docker = Docker::at_socket(&folder.path().join("docker.sock"));
        let process = command::spawn(
            &mut dockerd(folder.path(), &docker)?,
            "a private container engine",
        )?;
        let mut daemon = Self {
            docker,
            process,
            folder,
        };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    /// Returns an error if the engine has exited.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "the container engine has exited: {status}\n{}",
                self.log_tail()
            ),
        }
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            interrupt::check()?;
            self.check_alive()?;
            match self.docker.probe() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error.context(self.log_tail()));
                }
                Err(_) => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(MAX_LOG_LINES)..].join("\n")
    }

    fn remove_containers(&self) -> Result<()> {
        self.docker
            .remove(&self.docker.containers(ContainerFilter::All)?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.check_alive().is_ok() {
            self.remove_containers()
                .unwrap_or_else(|error| report::note(&format!("{error:#}")));
        }
        if let Err(error) = command::terminate(&mut self.process) {
            report::note(&format!("cannot stop the container engine: {error:#}"));
        }
    }
}

/// Returns the command of the engine. It ignores the machine's configuration, where `hosts` would
/// conflict with `--host`, and uses namespaces of its own in the machine's containerd.
fn dockerd(folder: &Path, docker: &Docker) -> Result<Command> {
    let configuration = folder.join("daemon.json");
    fs::write(&configuration, "{}").context("cannot write the engine's configuration")?;
    let log = File::create(folder.join("log")).context("cannot create the engine's log")?;
    let mut dockerd = Command::new("dockerd");
    dockerd
        .arg("--config-file")
        .arg(configuration)
        .arg("--host")
        .arg(&docker.host);
    for (option, name) in [
        ("--data-root", "data"),
        ("--exec-root", "exec"),
        ("--pidfile", "pid"),
    ] {
        dockerd.arg(option).arg(folder.join(name));
    }
    for (option, what) in [
        ("--containerd-namespace", "containers"),
        ("--containerd-plugins-namespace", "plugins"),
    ] {
        dockerd
            .arg(option)
            .arg(format!("glovebox-ci-{what}-{}", std::process::id()));
    }
    dockerd
        .args(["--bridge=none", "--iptables=false"])
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(dockerd)
}
