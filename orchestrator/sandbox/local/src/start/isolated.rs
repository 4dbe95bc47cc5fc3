//! The start of an isolated server. The isolation exists before the server, which inherits it.
//!
//! Its launcher cannot wait for it: it could not connect to the socket, and does not know the
//! process id outside of the namespaces. Therefore the process that is started here stays, and is
//! recorded as soon as it is known.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::SandboxError;
use sandbox_client::UnixSocket;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use super::super::isolation::LaunchCommand;
use super::super::process::{KnownProcess, ServerProcesses};
use super::super::view::View;
use super::super::{Isolation, bubblewrap};
use super::{START_TIMEOUT, ServerStart};
use crate::confine::{Confinement, Preparation};

/// Initial delay between attempts to connect to a starting server. It doubles each time, so that
/// many concurrent starts do not compete for CPU time.
const MIN_CONNECT_INTERVAL: Duration = Duration::from_millis(2);
const MAX_CONNECT_INTERVAL: Duration = Duration::from_millis(32);

/// The isolation of a sandbox.
pub(in super::super) struct SandboxIsolation {
    pub(in super::super) isolation: Isolation,
    pub(in super::super) view: View,
    pub(in super::super) network: bool,
}

impl ServerStart {
    pub(super) async fn start_isolated(
        &self,
        isolation: &SandboxIsolation,
    ) -> Result<(), SandboxError> {
        let mut launch = self.isolated_command(isolation)?;
        let command = launch.command.arg(&self.binary);
        self.add_server_arguments(command, "--detached"); // in a session of its own, without streams once it listens
        command
            .env_clear()
            .envs(self.environment_inside(&isolation.view))
            .current_dir("/");
        let mut started = self.spawn(&mut launch, Stdio::null()).await?;
        let isolator = self.known(started.id())?;
        self.folder
            .record_server(&ServerProcesses::from_process(isolator.clone()))?;
        match timeout(START_TIMEOUT, self.wait_until_it_listens(&mut started)).await {
            Ok(listens) => listens?,
            Err(_) => {
                return Err(
                    self.failed(format!("no response within {} s", START_TIMEOUT.as_secs()))
                );
            }
        }
        self.folder.record_server(&self.server_processes(isolator)?)
    }

    /// Returns the command of which the server's binary is an argument.
    fn isolated_command(
        &self,
        isolation: &SandboxIsolation,
    ) -> Result<LaunchCommand, SandboxError> {
        let SandboxIsolation {
            isolation,
            view,
            network,
        } = isolation;
        let preparation = match isolation {
            Isolation::Bubblewrap {
                program,
                prevents_namespaces,
            } => Preparation {
                bubblewrap: Some(bubblewrap::isolation(
                    program,
                    *prevents_namespaces,
                    *network,
                    view,
                )),
                ..Preparation::default()
            },
            _ => Preparation {
                confinement: Some(Confinement {
                    mounts: view.mounts().into(),
                    network: *network,
                }),
                ..Preparation::default()
            },
        };
        let mut launch = self.limited_command(preparation)?;
        // In its own process group: ^C of a terminal during the start would kill only one of the
        // two processes.
        launch.command.process_group(0);
        Ok(launch)
    }

    /// The home and the folder for temporary files are the sandbox's own.
    fn environment_inside(&self, view: &View) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        environment.retain(|(name, _)| name != "HOME" && name != "TMPDIR");
        for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
            *path = view.search_path(path);
        }
        environment.push(("HOME".into(), self.folder.home().into()));
        environment.push(("TMPDIR".into(), "/tmp".into()));
        environment
    }

    /// No process inside could have replaced the socket yet.
    async fn wait_until_it_listens(&self, started: &mut Child) -> Result<(), SandboxError> {
        let socket = UnixSocket::new(self.folder.socket());
        let mut interval = MIN_CONNECT_INTERVAL;
        while socket.connect().await.is_err() {
            let exited = started.try_wait().map_err(|error| self.failed(error))?;
            if let Some(status) = exited {
                return Err(self.failed(format!("it exited with {status}")));
            }
            sleep(interval).await;
            interval = (interval * 2).min(MAX_CONNECT_INTERVAL);
        }
        Ok(())
    }

    /// Returns the processes. The server is PID 1 of the namespaces, whose exit kills all others.
    fn server_processes(&self, isolator: KnownProcess) -> Result<ServerProcesses, SandboxError> {
        let descendants = isolator.descendants().map_err(|error| self.failed(error))?;
        let first = descendants.into_iter().next();
        let server = first.ok_or_else(|| self.failed("its namespaces contain no process"))?;
        Ok(ServerProcesses {
            server,
            isolator: Some(isolator),
        })
    }

    fn known(&self, pid: Option<u32>) -> Result<KnownProcess, SandboxError> {
        let pid = pid
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or(io::ErrorKind::NotFound.into());
        let known: io::Result<KnownProcess> = pid.and_then(KnownProcess::with_pid);
        known.map_err(|error| self.failed(format!("its process does not exist: {error}")))
    }
}
