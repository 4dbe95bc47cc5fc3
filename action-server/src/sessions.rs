//! The shells by name. One is begun when it is first asked for, and lives until it is ended or the server ends.
//!
//! A plain mutex guards the names; it is never held across an await.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::SessionName;
use protocol::sandbox_api::SessionInfo;

use crate::shell::{Shell, ShellConfig};

/// How many shells there are at once: each is a process and a terminal.
pub(crate) const MAX_SESSIONS: usize = 128;

/// Worth asking again when one of them was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_SESSIONS} sessions are open, no more are begun")]
pub(crate) struct TooManySessions;

/// The shells. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Sessions {
    config: Arc<ShellConfig>,
    open: Arc<Mutex<BTreeMap<SessionName, Shell>>>,
}

impl Sessions {
    /// Begins the default session, so that the first command does not wait for it. To be called in a runtime.
    pub(crate) fn start(config: ShellConfig) -> Self {
        let shell = Shell::start(config.clone());
        let open = BTreeMap::from([(SessionName::default(), shell)]);
        Self { config: Arc::new(config), open: Arc::new(Mutex::new(open)) }
    }

    /// The session of this name.
    pub(crate) fn get(&self, name: &SessionName) -> Result<Shell, TooManySessions> {
        let mut open = self.open();
        if let Some(shell) = open.get(name) {
            return Ok(shell.clone());
        }
        if open.len() >= MAX_SESSIONS {
            return Err(TooManySessions);
        }
        let shell = Shell::start(self.config.as_ref().clone());
        open.insert(name.clone(), shell.clone());
        Ok(shell)
    }

    /// Where a session is, or would begin.
    pub(crate) fn working_dir(&self, name: &SessionName) -> PathBuf {
        let open = self.open();
        open.get(name).map_or_else(|| self.config.working_dir.clone(), Shell::working_dir)
    }

    /// The open ones, by name.
    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        let open = self.open();
        let info = |(name, shell): (&SessionName, &Shell)| SessionInfo {
            name: name.clone(),
            working_dir: shell.working_dir().to_string_lossy().into_owned(),
            busy: shell.is_busy(),
        };
        open.iter().map(info).collect()
    }

    /// Kills everything that runs in a session, within a second, and forgets it. Its action gets its ending. Whether
    /// there was one.
    pub(crate) async fn end(&self, name: &SessionName) -> bool {
        let shell = self.open().remove(name);
        match shell {
            Some(shell) => {
                shell.shut_down().await;
                true
            }
            None => false,
        }
    }

    /// Ends all.
    pub(crate) async fn shut_down(&self) {
        let shells: Vec<_> = std::mem::take(&mut *self.open()).into_values().collect();
        futures_util::future::join_all(shells.iter().map(Shell::shut_down)).await;
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SessionName, Shell>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
