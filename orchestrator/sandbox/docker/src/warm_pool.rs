//! Warm pool: a bounded number of pre-warmed sandboxes, started and connected.
//!
//! One task refills the pool and stops with it. A caller that finds the pool empty creates a
//! sandbox itself instead of waiting. When the pool is closed, its entries are removed by tasks
//! that the provider tracks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{Lifetime, ResourceLimits, SandboxError, SandboxSpec};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::image::Image;
use super::pooled_sandbox::{self, PooledSandbox};
use super::{Installation, Pool};

/// Delay before a refill, so that it does not compete for CPU with the sandbox that was just taken.
const REFILL_DELAY: Duration = Duration::from_millis(500);

/// First backoff after a failed refill. It doubles with each further failure.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Pool of one image.
pub(super) struct WarmPool {
    image: String,
    resources: ResourceLimits,
    /// `None` if the pool is closed. Locked only to receive without waiting, never across an await.
    ready: Mutex<Option<mpsc::Receiver<PooledSandbox>>>,
    ended: CancellationToken,
    keeper: TaskTracker,
    _ends_with_this: DropGuard,
}

impl WarmPool {
    /// Starts to fill the pool. `None` if no pool is configured, or outside of a tokio runtime.
    pub(super) fn start(installation: &Arc<Installation>) -> Option<Self> {
        let config = &installation.config;
        let Pool {
            size,
            image,
            resources,
        } = config.pool.as_ref().filter(|pool| pool.size > 0)?;
        let image = image.as_ref().unwrap_or(&config.default_image).clone();
        let runtime = tokio::runtime::Handle::try_current();
        if let Err(problem) = pooled_sandbox::check_holder(&config.holder)
            .and(runtime.map_err(|error| error.to_string()))
        {
            tracing::error!(problem, "the warm pool is disabled");
            return None;
        }
        let (room, ready) = mpsc::channel((*size).min(Pool::MAX_SIZE));
        let ended = CancellationToken::new();
        let keeper = TaskTracker::new();
        let filling = keep_full(Arc::clone(installation), (image.clone(), *resources), room);
        keeper.spawn(ended.clone().run_until_cancelled_owned(filling));
        let _ends_with_this = ended.clone().drop_guard();
        Some(Self {
            image,
            resources: *resources,
            ready: Mutex::new(Some(ready)),
            ended,
            keeper,
            _ends_with_this,
        })
    }

    /// Whether a pool entry satisfies the spec. The environment is no obstacle: it is set after
    /// adoption.
    pub(super) fn fits(&self, spec: &SandboxSpec, image: &Image) -> bool {
        // Destructured completely, so that a new field must be considered here.
        let SandboxSpec {
            conversation: _,
            lifetime,
            image: _,
            workspace,
            volumes,
            environment: _,
            resources,
        } = spec;
        self.image == image.name
            && *lifetime == Lifetime::Conversation
            && workspace.is_none()
            && volumes.is_empty()
            && *resources == self.resources
    }

    /// Takes the next entry of this image id. `None` if there is none.
    pub(super) fn take(&self, image: &Image) -> Option<PooledSandbox> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = ready.as_mut()?;
        // Entries of an older image with the same name are dropped, which removes them.
        std::iter::from_fn(|| ready.try_recv().ok())
            .find(|pooled_sandbox| pooled_sandbox.was_created_from(image))
    }

    /// Closes the pool: ends a running refill and removes all entries, in tasks that the provider
    /// tracks.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        self.keeper.close();
        self.keeper.wait().await;
        self.ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

async fn keep_full(
    installation: Arc<Installation>,
    (image, resources): (String, ResourceLimits),
    room: mpsc::Sender<PooledSandbox>,
) {
    let mut pause = MIN_BACKOFF;
    loop {
        let start_sandbox = match room.try_reserve() {
            Ok(start_sandbox) => start_sandbox,
            Err(TrySendError::Closed(())) => return,
            Err(TrySendError::Full(())) => {
                let Ok(start_sandbox) = room.reserve().await else {
                    return;
                };
                sleep(REFILL_DELAY).await;
                start_sandbox
            }
        };
        match pooled_sandbox::make(&installation, &image, resources).await {
            Ok(pooled_sandbox) => {
                start_sandbox.send(pooled_sandbox);
                pause = MIN_BACKOFF;
            }
            Err(error) => {
                report(&error, pause);
                sleep(pause).await;
                pause = MAX_BACKOFF.min(pause * 2);
            }
        }
    }
}

fn report(error: &SandboxError, pause: Duration) {
    tracing::warn!(%error, again_in_s = pause.as_secs(), "cannot create a pool entry");
}
