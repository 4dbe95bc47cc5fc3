//! The shells by session name. A shell is started on first use and lives until its session or the
//! server ends.
//!
//! A plain mutex guards the names; it is never held across an await.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::SessionName;
use protocol::sandbox_api::SessionInfo;

use crate::shell::{Shell, ShellConfig};

/// Maximum number of shells. Each is a process and a terminal.
pub(crate) const MAX_SESSIONS: usize = 128;

/// Worth a retry when a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_SESSIONS} sessions are open, which is the maximum")]
pub(crate) struct TooManySessions;

/// The open sessions. Clones share them.
#[derive(Clone)]
pub(crate) struct Sessions {
    config: Arc<ShellConfig>,
    open: Arc<Mutex<BTreeMap<SessionName, OpenSession>>>,
}

struct OpenSession {
    shell: Shell,
    /// A command was run in it, or is about to be.
    is_used: bool,
}

impl Sessions {
    /// Starts the default session, so that the first command does not wait for it. Must be called
    /// in a runtime.
    pub(crate) fn start(config: ShellConfig) -> Self {
        let shell = Shell::start(config.clone());
        let open = BTreeMap::from([(
            SessionName::default(),
            OpenSession {
                shell,
                is_used: false,
            },
        )]);
        Self {
            config: Arc::new(config),
            open: Arc::new(Mutex::new(open)),
        }
    }

    /// Returns the shell of the session for running a command. Starts it if necessary.
    pub(crate) fn get(&self, name: &SessionName) -> Result<Shell, TooManySessions> {
        let mut open = self.open();
        if let Some(opened) = open.get_mut(name) {
            opened.is_used = true;
            return Ok(opened.shell.clone());
        }
        if open.len() >= MAX_SESSIONS {
            return Err(TooManySessions);
        }
        let shell = Shell::start(self.config.as_ref().clone());
        open.insert(
            name.clone(),
            OpenSession {
                shell: shell.clone(),
                is_used: true,
            },
        );
        Ok(shell)
    }

    /// Restarts the shells of sessions that have not run any command, after the environment has
    /// changed.
    pub(crate) async fn restart_unused(&self) {
        let restart = |opened: &mut OpenSession| {
            std::mem::replace(
                &mut opened.shell,
                Shell::start(self.config.as_ref().clone()),
            )
        };
        let old: Vec<_> = self
            .open()
            .values_mut()
            .filter(|opened| !opened.is_used)
            .map(restart)
            .collect();
        // They run nothing, so they end immediately.
        for shell in old {
            shell.shut_down().await;
        }
    }

    /// Returns the working directory of a session, or the one that a new session would start in.
    pub(crate) fn working_dir(&self, name: &SessionName) -> PathBuf {
        let open = self.open();
        open.get(name).map_or_else(
            || self.config.working_dir.clone(),
            |opened| opened.shell.working_dir(),
        )
    }

    /// Lists the open sessions, sorted by name.
    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        let open = self.open();
        let info = |(name, OpenSession { shell, .. }): (&SessionName, &OpenSession)| SessionInfo {
            name: name.clone(),
            working_dir: shell.working_dir().to_string_lossy().into_owned(),
            busy: shell.is_busy(),
        };
        open.iter().map(info).collect()
    }

    /// Kills all processes of a session, within a second, and removes it. Its action completes with
    /// an observation. Returns `false` if there is no such session.
    pub(crate) async fn end(&self, name: &SessionName) -> bool {
        let opened = self.open().remove(name);
        match opened {
            Some(opened) => {
                opened.shell.shut_down().await;
                true
            }
            None => false,
        }
    }

    /// Ends all sessions.
    pub(crate) async fn shut_down(&self) {
        let open: Vec<_> = std::mem::take(&mut *self.open()).into_values().collect();
        futures_util::future::join_all(open.iter().map(|opened| opened.shell.shut_down())).await;
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SessionName, OpenSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
