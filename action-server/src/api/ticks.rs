//! A shared clock that runs only while it is used. Many requests wait for the next tick of one
//! timer; a timer for each would cost a system call per response.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// Short for a person who watches output, and long compared to a command that prints one line.
const TICK: Duration = Duration::from_millis(2);

/// The clock. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Ticks(Arc<Clock>);

#[derive(Debug, Default)]
struct Clock {
    state: Mutex<ClockState>,
    tick: Notify,
}

#[derive(Debug, Default)]
struct ClockState {
    is_running: bool,
    /// `next` was called since the last tick.
    is_used: bool,
}

impl Ticks {
    /// Waits for the next tick: at most [`TICK`], or twice as long if the clock is about to stop.
    /// Must be called in a runtime.
    pub(super) async fn next(&self) {
        let tick = self.0.tick.notified();
        let was_running = {
            let mut state = self.0.state();
            state.is_used = true;
            std::mem::replace(&mut state.is_running, true)
        };
        if !was_running {
            // Ends by itself, one tick after the last use.
            tokio::spawn(Arc::clone(&self.0).run());
        }
        tick.await;
    }
}

impl Clock {
    async fn run(self: Arc<Self>) {
        loop {
            sleep(TICK).await;
            let mut state = self.state();
            state.is_running = std::mem::take(&mut state.is_used);
            let stops = !state.is_running;
            drop(state);
            self.tick.notify_waiters();
            if stops {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_ticks_for_all_waiters_and_stops_without_them() {
        let ticks = Ticks::default();
        let started = Instant::now();
        for _ in 0..3 {
            tokio::join!(ticks.next(), ticks.next());
        }
        assert_eq!(started.elapsed(), 3 * TICK);
        sleep(10 * TICK).await;
        assert!(!ticks.0.state().is_running);
        let started = Instant::now();
        ticks.next().await;
        assert_eq!(started.elapsed(), TICK);
    }
}
