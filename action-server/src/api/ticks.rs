//! A clock that goes only while somebody looks at it: one timer for all who wait for a moment. A timer of each one's own is a
//! call into the system for every answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// Short for a person who watches output come, long beside a command that only says a word.
const TICK: Duration = Duration::from_millis(2);

/// The clock. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Ticks(Arc<Clock>);

#[derive(Debug, Default)]
struct Clock {
    state: Mutex<State>,
    tick: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_going: bool,
    /// Somebody has looked since the last tick.
    is_watched: bool,
}

impl Ticks {
    /// Waits for the next tick: [`TICK`] or less, and once more as long when the clock was just about to stop. Called in a
    /// runtime.
    pub(super) async fn next(&self) {
        let tick = self.0.tick.notified();
        let goes_already = {
            let mut state = self.0.state();
            state.is_watched = true;
            std::mem::replace(&mut state.is_going, true)
        };
        if !goes_already {
            // Ends by itself, a tick after nobody looks any more.
            tokio::spawn(Arc::clone(&self.0).go());
        }
        tick.await;
    }
}

impl Clock {
    async fn go(self: Arc<Self>) {
        loop {
            sleep(TICK).await;
            let mut state = self.state();
            state.is_going = std::mem::take(&mut state.is_watched);
            let stops = !state.is_going;
            drop(state);
            self.tick.notify_waiters();
            if stops {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ticks_for_all_who_wait_and_stops_without_them() {
        let ticks = Ticks::default();
        let begin = Instant::now();
        for _ in 0..3 {
            tokio::join!(ticks.next(), ticks.next());
        }
        assert_eq!(begin.elapsed(), 3 * TICK);
        sleep(10 * TICK).await;
        assert!(!ticks.0.state().is_going);
        let begin = Instant::now();
        ticks.next().await;
        assert_eq!(begin.elapsed(), TICK);
    }
}
