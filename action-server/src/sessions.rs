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
    open: Arc<Mutex<BTreeMap<SessionName, Opened>>>,
}

struct Opened {
    shell: Shell,
    /// Something was run in it, or is about to be.
    is_used: bool,
}

impl Sessions {
    /// Begins the default session, so that the first command does not wait for it. To be called in a runtime.
    pub(crate) fn start(config: ShellConfig) -> Self {
        let shell = Shell::start(config.clone());
        let open = BTreeMap::from([(SessionName::default(), Opened { shell, is_used: false })]);
        Self { config: Arc::new(config), open: Arc::new(Mutex::new(open)) }
    }

    /// The session of this name, to run something in it.
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
        open.insert(name.clone(), Opened { shell: shell.clone(), is_used: true });
        Ok(shell)
    }

    /// Begins those anew in which nothing was run yet: the environment is another now.
    pub(crate) async fn renew_unused(&self) {
        let renew = |opened: &mut Opened| {
            std::mem::replace(&mut opened.shell, Shell::start(self.config.as_ref().clone()))
        };
        let old: Vec<_> = self.open().values_mut().filter(|opened| !opened.is_used).map(renew).collect();
        // Nothing runs in them: they end at once.
        for shell in old {
            shell.shut_down().await;
        }
    }

    /// Where a session is, or would begin.
    pub(crate) fn working_dir(&self, name: &SessionName) -> PathBuf {
        let open = self.open();
        open.get(name).map_or_else(|| self.config.working_dir.clone(), |opened| opened.shell.working_dir())
    }

    /// The open ones, by name.
    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        let open = self.open();
        let info = |(name, Opened { shell, .. }): (&SessionName, &Opened)| SessionInfo {
            name: name.clone(),
            working_dir: shell.working_dir().to_string_lossy().into_owned(),
            busy: shell.is_busy(),
        };
        open.iter().map(info).collect()
    }

    /// Kills everything that runs in a session, within a second, and forgets it. Its action gets its ending. Whether
    /// there was one.
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

    /// Ends all.
    pub(crate) async fn shut_down(&self) {
        let open: Vec<_> = std::mem::take(&mut *self.open()).into_values().collect();
        futures_util::future::join_all(open.iter().map(|opened| opened.shell.shut_down())).await;
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SessionName, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
