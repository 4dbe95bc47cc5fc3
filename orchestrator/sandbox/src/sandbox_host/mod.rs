//! Lends the sandboxes of one machine to orchestrators on others: a server of the runtime API that `remote` speaks, over
//! any provider.
//!
//! Each key sees only its own sandboxes, whose names begin with the key's: nothing else is stored, so that a host that
//! was killed takes up what it lent. Keys, counts, bodies and times are bounded; what nobody speaks to is removed after a
//! while, by the same sweep as everywhere. The requests of a client that goes away end with it. It speaks plain HTTP/1.1:
//! TLS is the business of a proxy in front of it, which must let `Upgrade` through.
//!
//! At the end it closes its streams. The sandboxes stay for its next start, unless they are to be removed.

mod clients;
mod connections;
mod error;
mod forward;
mod keys;
mod lingering;
mod register;
mod routes;
mod runtimes;
mod stream;
mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use engine::sandbox::{SandboxError, SandboxProvider};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use keys::{HostKeys, HostKeysError};

use crate::connect::ServerUrl;
use register::{Quotas, Register};

/// For requests and streams that are under way at the end.
const END_WAIT: Duration = Duration::from_secs(5);

/// How sandboxes are lent.
#[derive(Debug)]
pub struct SandboxHostConfig {
    /// Who may ask.
    pub keys: HostKeys,
    /// Of all keys together.
    pub max_sandboxes: usize,
    /// Of each key.
    pub max_sandboxes_per_key: usize,
    /// How many times the default memory and processors one sandbox may have.
    pub max_resource_factor: f64,
    /// The image of a sandbox that asks for none; nothing: the provider's own.
    pub default_image: Option<String>,
    /// A sandbox that nobody speaks to for so long is removed.
    pub idle_timeout: Duration,
    /// Where clients reach this host, when that is not what they ask for: behind a proxy that terminates TLS.
    pub public_url: Option<ServerUrl>,
    /// Whether sandboxes are removed at the end; otherwise the next start takes them up.
    pub removes_at_end: bool,
}

impl SandboxHostConfig {
    /// 16 sandboxes, 8 for each key, of the default size, and an hour of silence.
    pub fn new(keys: HostKeys) -> Self {
        Self {
            keys,
            max_sandboxes: 16,
            max_sandboxes_per_key: 8,
            max_resource_factor: 1.0,
            default_image: None,
            idle_timeout: Duration::from_secs(3600),
            public_url: None,
            removes_at_end: false,
        }
    }
}

/// Serves the runtime API.
pub struct SandboxHost {
    shared: Arc<Shared>,
}

/// What requests need.
struct Shared {
    provider: Arc<dyn SandboxProvider>,
    config: SandboxHostConfig,
    register: Register,
    /// Everything that goes on beside requests: streams, starts, removals, the sweep.
    tasks: TaskTracker,
    /// The end of the host.
    stop: CancellationToken,
}

impl SandboxHost {
    /// Does nothing yet. Everything that `provider` lists must be this host's own.
    pub fn new(provider: Arc<dyn SandboxProvider>, config: SandboxHostConfig) -> Self {
        let quotas = Quotas { of_all: config.max_sandboxes, of_key: config.max_sandboxes_per_key };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { shared: Arc::new(Shared { provider, config, register: Register::new(quotas), tasks, stop }) }
    }

    /// Takes up what is there and serves until `stop`; then ends what is under way, within seconds.
    ///
    /// # Errors
    /// What is there cannot be listed: the runtime does not answer.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> Result<(), SandboxError> {
        let shared = self.shared;
        let _stopped = shared.stop.clone().drop_guard();
        sweeper::sweep(&shared).await?;
        shared.tasks.spawn(sweeper::sweep_on(Arc::clone(&shared)));
        tokio::select! {
            () = connections::accept(&shared, listener) => {}
            () = stop.cancelled() => {}
        }
        shared.stop.cancel();
        shared.tasks.close();
        if timeout(END_WAIT, shared.tasks.wait()).await.is_err() {
            tracing::warn!("requests were under way at the end");
        }
        shared.provider.wait_for_cleanup().await;
        if shared.config.removes_at_end {
            sweeper::remove_all(&shared).await?;
        }
        Ok(())
    }
}
