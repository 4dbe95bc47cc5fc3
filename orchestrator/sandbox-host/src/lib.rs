//! Leases the sandboxes of this machine to remote orchestrators: a server of the runtime API that
//! `remote` uses, over any provider.
//!
//! Each key has access only to its own sandboxes, whose names start with the key's. No other state
//! is stored, so that a restarted host adopts its sandboxes. Quotas, bodies and times are bounded,
//! and idle sandboxes are removed by the usual sweep. A request ends when its client disconnects.
//! The host speaks plain HTTP/1.1: for TLS, run a proxy in front of it that forwards `Upgrade`.
//!
//! At shutdown the host closes its streams. The sandboxes remain for its next start, unless
//! configured otherwise.

mod clients;
mod connections;
mod error;
mod forward;
mod images;
mod keys;
mod lingering;
mod registry;
mod routes;
mod runtimes;
mod stream;
mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use engine::sandbox::{ResourceLimits, SandboxError, SandboxProvider, SandboxSummary};
use sandbox_client::ServerUrl;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use images::ImagePattern;
pub use keys::{HostKeys, HostKeysError};

use registry::{Quotas, SandboxRegistry};

/// Time for open requests and streams to end at shutdown.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Settings of [`SandboxHost`].
#[derive(Debug)]
pub struct SandboxHostConfig {
    /// The keys of clients.
    pub keys: HostKeys,
    /// Quota of all keys together.
    pub max_sandboxes: usize,
    /// Quota of each key.
    pub max_sandboxes_per_key: usize,
    /// Resources of a sandbox whose request has the default ones, or none.
    pub resources: ResourceLimits,
    /// Maximum memory, CPUs and disk space of one sandbox, as a multiple of `resources`.
    pub max_resource_factor: f64,
    /// The image of a request without one. `None` for the default of the provider.
    pub default_image: Option<String>,
    /// The images that clients may start, apart from the default. If empty, every image.
    pub allowed_images: Vec<ImagePattern>,
    /// Whether its sandboxes have images. Otherwise a request for one is refused, except from
    /// clients of V0, which always send one.
    pub has_images: bool,
    /// A sandbox without requests for this long is removed.
    pub idle_timeout: Duration,
    /// The URL of this host for its clients. `None` to derive it from their requests, which fails
    /// behind a TLS proxy.
    pub public_url: Option<ServerUrl>,
    /// Whether sandboxes are removed at shutdown. Otherwise they are adopted at the next start.
    pub removes_at_end: bool,
    /// Whether the process that owns this pre-warmed sandbox still runs. True for a sandbox that is
    /// not pre-warmed.
    pub is_warm_in_use: fn(&SandboxSummary) -> bool,
}

impl SandboxHostConfig {
    /// Returns the defaults: 16 sandboxes, 8 per key, of the default size, with an idle timeout of
    /// an hour.
    pub fn new(keys: HostKeys) -> Self {
        Self {
            keys,
            max_sandboxes: 16,
            max_sandboxes_per_key: 8,
            resources: ResourceLimits::default(),
            max_resource_factor: 1.0,
            default_image: None,
            allowed_images: Vec::new(),
            has_images: true,
            idle_timeout: Duration::from_secs(3600),
            public_url: None,
            removes_at_end: false,
            is_warm_in_use: |_| true,
        }
    }
}

/// Serves the runtime API.
pub struct SandboxHost {
    shared: Arc<Shared>,
}

/// Shared by all requests.
struct Shared {
    provider: Arc<dyn SandboxProvider>,
    config: SandboxHostConfig,
    registry: SandboxRegistry,
    /// Connections, streams, starts, removals and the sweeper.
    tasks: TaskTracker,
    /// Cancelled at shutdown.
    stop: CancellationToken,
}

impl SandboxHost {
    /// Creates a host. All sandboxes that `provider` lists must belong to it.
    pub fn new(provider: Arc<dyn SandboxProvider>, config: SandboxHostConfig) -> Self {
        let quotas = Quotas {
            total: config.max_sandboxes,
            per_key: config.max_sandboxes_per_key,
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Self {
            shared: Arc::new(Shared {
                provider,
                config,
                registry: SandboxRegistry::new(quotas),
                tasks,
                stop,
            }),
        }
    }

    /// Adopts existing sandboxes and serves until `stop` is cancelled. Then shuts down within
    /// seconds.
    ///
    /// # Errors
    /// The existing sandboxes cannot be listed.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<(), SandboxError> {
        let shared = self.shared;
        let _stopped = shared.stop.clone().drop_guard();
        sweeper::sweep(&shared).await?;
        shared.tasks.spawn(sweeper::run(Arc::clone(&shared)));
        tokio::select! {
            () = connections::accept(&shared, listener) => {}
            () = stop.cancelled() => {}
        }
        shared.stop.cancel();
        shared.tasks.close();
        if timeout(SHUTDOWN_GRACE_PERIOD, shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("requests were still open at shutdown");
        }
        shared.provider.shut_down().await;
        if shared.config.removes_at_end {
            sweeper::remove_all(&shared).await?;
        }
        Ok(())
    }
}
