//! The handlers, one file a resource. They translate between HTTP and the rest; they decide nothing and keep nothing.

pub(crate) mod actions;
pub(crate) mod alive;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod execute_action;
pub(crate) mod extract;
pub(crate) mod files;
mod framed;
pub(crate) mod guard;
pub(crate) mod info;
pub(crate) mod paced_body;
pub(crate) mod ports;
pub(crate) mod processes;
pub(crate) mod sessions;
pub(crate) mod terminal;
mod ticks;
mod upgrade;

use std::path::PathBuf;
use std::sync::Arc;

use protocol::SessionName;
use protocol::sandbox_api::ServerInfo;
use tokio::sync::Semaphore;

use crate::auth::Key;
use crate::environment::Environment;
use crate::execute::Executor;
use crate::ports::Tunnels;
use crate::process::Processes;
use crate::terminals::Terminals;
use ticks::Ticks;

/// The longest request body: a file of 10 MiB with JSON's escapes, and room.
pub(crate) const BODY_BYTES: usize = 32 << 20;

/// What handlers share. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Api(Arc<Shared>);

/// What the server is made of, as far as handlers speak to it.
pub(crate) struct Parts {
    pub(crate) key: Option<Key>,
    pub(crate) executor: Executor,
    pub(crate) processes: Processes,
    pub(crate) info: ServerInfo,
    pub(crate) tunnels: Tunnels,
    pub(crate) terminals: Terminals,
    pub(crate) environment: Environment,
}

struct Shared {
    parts: Parts,
    requests: Arc<Semaphore>,
    endings: Arc<Semaphore>,
    gates: files::Gates,
    ticks: Ticks,
}

impl Api {
    pub(crate) fn new(parts: Parts) -> Self {
        let requests = Arc::new(Semaphore::new(guard::MAX_REQUESTS));
        let endings = Arc::new(Semaphore::new(guard::MAX_ENDINGS));
        let gates = files::Gates::default();
        let ticks = Ticks::default();
        Self(Arc::new(Shared { parts, requests, endings, gates, ticks }))
    }

    /// What requests must know, if anything.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.0.parts.key.as_ref()
    }

    fn tunnels(&self) -> &Tunnels {
        &self.0.parts.tunnels
    }

    /// Where relative paths begin that name no session.
    fn working_dir(&self) -> PathBuf {
        self.0.parts.executor.sessions.working_dir(&SessionName::default())
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.0.parts.executor
    }

    fn processes(&self) -> &Processes {
        &self.0.parts.processes
    }
}
