//! The request handlers, one file per resource. They translate between HTTP and the other modules,
//! and have no state of their own.

pub(crate) mod actions;
pub(crate) mod alive;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod execute_action;
pub(crate) mod extract;
pub(crate) mod files;
mod framed_response;
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

use crate::auth::ServerKey;
use crate::environment::Environment;
use crate::execute::Executor;
use crate::ports::Tunnels;
use crate::process::Processes;
use crate::terminals::Terminals;
use ticks::Ticks;

/// Maximum size of a request body: a file of 10 MiB with JSON escapes, and some more.
pub(crate) const BODY_BYTES: usize = 32 << 20;

/// State of the handlers. Clones share it.
#[derive(Clone)]
pub(crate) struct Api(Arc<ApiState>);

/// Parts of the server that handlers use.
pub(crate) struct ApiParts {
    pub(crate) key: Option<ServerKey>,
    pub(crate) executor: Executor,
    pub(crate) processes: Processes,
    pub(crate) info: ServerInfo,
    pub(crate) tunnels: Tunnels,
    pub(crate) terminals: Terminals,
    pub(crate) environment: Environment,
}

struct ApiState {
    parts: ApiParts,
    requests: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
    file_limits: files::FileLimits,
    ticks: Ticks,
}

impl Api {
    pub(crate) fn new(parts: ApiParts) -> Self {
        let requests = Arc::new(Semaphore::new(guard::MAX_REQUESTS));
        let deletes = Arc::new(Semaphore::new(guard::MAX_DELETES));
        let file_limits = files::FileLimits::default();
        let ticks = Ticks::default();
        Self(Arc::new(ApiState {
            parts,
            requests,
            deletes,
            file_limits,
            ticks,
        }))
    }

    /// Returns the key that requests must contain. `None` if no key is required.
    pub(crate) fn key(&self) -> Option<&ServerKey> {
        self.0.parts.key.as_ref()
    }

    fn tunnels(&self) -> &Tunnels {
        &self.0.parts.tunnels
    }

    /// Returns the working directory of the default session, which relative paths refer to.
    fn working_dir(&self) -> PathBuf {
        self.0
            .parts
            .executor
            .sessions
            .working_dir(&SessionName::default())
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.0.parts.executor
    }

    fn processes(&self) -> &Processes {
        &self.0.parts.processes
    }
}
