//! Sandboxes that are made ahead: a bounded number of them, created, started and connected.
//!
//! One task keeps the pool full and ends with it. Nobody waits for it: who finds the pool empty makes a sandbox of its
//! own. What is in the pool when it ends is removed by tasks that the provider tracks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{Lifetime, ResourceLimits, SandboxError, SandboxSpec};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::image::Image;
use super::spare::{self, Spare};
use super::{Installation, Pool};

/// Who was just given a sandbox has its processors for so long, before the next one is made.
const REFILL_DELAY: Duration = Duration::from_millis(500);

/// The first pause after a spare could not be made; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The spares of one image.
pub(super) struct WarmPool {
    image: String,
    /// Nothing: the pool has ended. Locked only to look, never across a wait.
    ready: Mutex<Option<mpsc::Receiver<Spare>>>,
    ended: CancellationToken,
    _ends_with_this: DropGuard,
}

impl WarmPool {
    /// Begins to fill. Nothing where none is asked for, or outside of a runtime that could keep it.
    pub(super) fn start(installation: &Arc<Installation>) -> Option<Self> {
        let config = &installation.config;
        let Pool { size, image } = config.pool.as_ref().filter(|pool| pool.size > 0)?;
        let image = image.as_ref().unwrap_or(&config.default_image).clone();
        let runtime = tokio::runtime::Handle::try_current();
        if let Err(problem) =
            spare::check_holder(&config.holder).and(runtime.map_err(|error| error.to_string()))
        {
            tracing::error!(problem, "no sandboxes are made ahead");
            return None;
        }
        let (room, ready) = mpsc::channel((*size).min(Pool::MAX_SIZE));
        let ended = CancellationToken::new();
        let keeper = keep_full(Arc::clone(installation), image.clone(), room);
        installation.removals.spawn(ended.clone().run_until_cancelled_owned(keeper));
        let _ends_with_this = ended.clone().drop_guard();
        Some(Self { image, ready: Mutex::new(Some(ready)), ended, _ends_with_this })
    }

    /// Whether a spare is all that the spec asks for. Its environment is handed over to a sandbox that is there.
    pub(super) fn fits(&self, spec: &SandboxSpec, image: &Image) -> bool {
        // All fields by name: a new one must be thought of.
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
            && *resources == ResourceLimits::default()
    }

    /// The next spare that was made from this very image.
    pub(super) fn take(&self, image: &Image) -> Option<Spare> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = ready.as_mut()?;
        // Those of a former image of that name are dropped, which removes them.
        std::iter::from_fn(|| ready.try_recv().ok()).find(|spare| spare.is_of(image))
    }

    /// Ends it: what is under way is given up, what is ready is removed. Both by tasks that the provider tracks.
    pub(super) fn end(&self) {
        self.ended.cancel();
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

async fn keep_full(installation: Arc<Installation>, image: String, room: mpsc::Sender<Spare>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let place = match room.try_reserve() {
            Ok(place) => place,
            Err(TrySendError::Closed(())) => return,
            Err(TrySendError::Full(())) => {
                let Ok(place) = room.reserve().await else { return };
                sleep(REFILL_DELAY).await;
                place
            }
        };
        match spare::make(&installation, &image).await {
            Ok(spare) => {
                place.send(spare);
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                report(&error, pause);
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }
}

fn report(error: &SandboxError, pause: Duration) {
    tracing::warn!(%error, again_in_s = pause.as_secs(), "making a sandbox ahead");
}
