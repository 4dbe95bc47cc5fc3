//! A server that is kept in. What keeps it in is there before the server is, and it inherits that.
//!
//! Its launcher cannot wait for it, as it could not connect to the socket, and inside of namespaces does not know its
//! process's id. So the process that is started here stays, and is on record from the moment that it is known.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::SandboxError;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::super::process::{KnownProcess, Serving};
use super::super::view::View;
use super::super::{Isolation, bubblewrap};
use super::{START_WAIT, ServerStart};
use crate::confine::Preparation;
use crate::connect::UnixSocket;

/// Between two looks at whether the server listens: nobody tells.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// bubblewrap copies the host's mounts one by one, and fails where one goes meanwhile, as those of containers do.
const MOUNT_ATTEMPTS: u32 = 5;

/// How a sandbox is kept in.
pub(in super::super) struct Isolated {
    pub(in super::super) isolation: Isolation,
    pub(in super::super) view: View,
    pub(in super::super) network: bool,
}

impl ServerStart {
    pub(super) async fn start_isolated(&self, isolated: &Isolated) -> Result<(), SandboxError> {
        for _ in 1..MOUNT_ATTEMPTS {
            match self.try_isolated(isolated).await {
                Err(SandboxError::Start { logs, .. }) if bubblewrap::met_another_mount(&logs) => {}
                ended => return ended,
            }
        }
        self.try_isolated(isolated).await
    }

    async fn try_isolated(&self, isolated: &Isolated) -> Result<(), SandboxError> {
        let (mut command, temporary) = self.command(isolated)?;
        command.arg(&self.binary);
        self.serve(&mut command, "--detached"); // in a session of its own, without streams once it listens
        command.env_clear().envs(self.environment_inside(&isolated.view, &temporary)).current_dir("/");
        let mut started = self.spawn(&mut command, Stdio::null()).await?;
        let outermost = self.known(started.id())?;
        self.folder.record_server(&Serving::alone(outermost.clone()))?;
        match timeout(START_WAIT, self.wait_until_it_listens(&mut started)).await {
            Ok(listens) => listens?,
            Err(_) => return Err(self.failed(format!("no answer within {} s", START_WAIT.as_secs()))),
        }
        if let Isolation::Bubblewrap { .. } = isolated.isolation {
            self.folder.record_server(&self.first_inside(outermost)?)?;
        }
        Ok(())
    }

    /// What the server's program is an argument of, and where its folder for temporary files is inside.
    fn command(&self, isolated: &Isolated) -> Result<(Command, PathBuf), SandboxError> {
        let temporary = self.folder.temporary();
        match &isolated.isolation {
            Isolation::Bubblewrap { program, keeps_namespaces_out } => {
                // In a group of its own: of a `bwrap` that a terminal's ^C ends while it starts, one half would stay.
                let mut command = self.bounded(Preparation::default())?;
                command.process_group(0).arg(program);
                command.args(bubblewrap::namespaces(*keeps_namespaces_out, isolated.network));
                command.args(bubblewrap::mounts(&isolated.view, &temporary)).arg("--");
                Ok((command, "/tmp".into()))
            }
            _ => {
                let confinement = Some(isolated.view.confinement(isolated.network)?);
                Ok((self.bounded(Preparation { confinement, ..Preparation::default() })?, temporary))
            }
        }
    }

    /// The home and the folder for temporary files are the sandbox's own.
    fn environment_inside(&self, view: &View, temporary: &Path) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        environment.retain(|(name, _)| name != "HOME" && name != "TMPDIR");
        for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
            *path = view.search_path(path);
        }
        environment.push(("HOME".into(), self.folder.home().into()));
        environment.push(("TMPDIR".into(), temporary.into()));
        environment
    }

    /// Nothing runs inside yet that could put another socket there.
    async fn wait_until_it_listens(&self, started: &mut Child) -> Result<(), SandboxError> {
        let socket = UnixSocket::at(self.folder.socket());
        while socket.connect().await.is_err() {
            let ended = started.try_wait().map_err(|error| self.failed(error))?;
            if let Some(status) = ended {
                return Err(self.failed(format!("it ended with {status}")));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// The first process in the namespaces, which all others end with.
    fn first_inside(&self, around: KnownProcess) -> Result<Serving, SandboxError> {
        let below = around.descendants().map_err(|error| self.failed(error))?;
        let first = below.into_iter().next();
        let server = first.ok_or_else(|| self.failed("nothing runs in its namespaces"))?;
        Ok(Serving { server, around: Some(around) })
    }

    fn known(&self, pid: Option<u32>) -> Result<KnownProcess, SandboxError> {
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).ok_or(io::ErrorKind::NotFound.into());
        let known: io::Result<KnownProcess> = pid.and_then(KnownProcess::with_pid);
        known.map_err(|error| self.failed(format!("its process is not there: {error}")))
    }
}
