//! Backpressure: a process is not further ahead of the readers that follow it than a buffer, as
//! with a pipe. It then loses no output, however slow they are, and its output needs no disk.
//!
//! A reader that is gone does not hold the process: after a grace period, output is retained within
//! the limits of [`Spool`](crate::ledger::Spool) only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::sandbox_api::OutputStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::entry::Cursors;

/// How far output may be ahead of the slowest reader. It fits into the memory of a spool, together
/// with a pipe, which is read when the process has exited.
pub(super) const MAX_AHEAD_BYTES: u64 = 256 << 10;

/// How long a process is held for a reader that was announced, or that has lost its connection. The
/// peers of a broken connection detect that up to 5 s apart.
const ATTACH_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// The readers that follow one process.
#[derive(Debug, Default)]
pub(super) struct Readers {
    state: Mutex<ReadersState>,
    /// Notified after every change.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ReadersState {
    next_key: u64,
    attached: HashMap<u64, Cursors>,
    /// The last reader that was announced or detached. `None` if there was none so far.
    expected: Option<ExpectedReader>,
}

/// A reader that may attach.
#[derive(Debug)]
struct ExpectedReader {
    since: Instant,
    cursors: Cursors,
}

/// Whether more output may be read from the process.
enum Room {
    Available,
    /// Not before a reader has changed, or this time.
    Full(Option<Instant>),
}

/// A reader that follows the process until it is dropped.
#[derive(Debug)]
pub(super) struct AttachedReader {
    readers: Arc<Readers>,
    key: u64,
}

impl Readers {
    /// Announces a reader that will attach in another request.
    pub(super) fn expect(&self) {
        self.change(|state| state.expect(Cursors::default()));
    }

    pub(super) fn attach(self: &Arc<Self>, cursors: Cursors) -> AttachedReader {
        let key = self.change(|state| {
            state.next_key += 1;
            state.attached.insert(state.next_key, cursors);
            state.next_key
        });
        AttachedReader {
            readers: Arc::clone(self),
            key,
        }
    }

    /// Waits until the output of a stream, which ends at `end`, is not far ahead of any reader.
    pub(super) async fn wait_for_room(&self, stream: OutputStream, end: u64) {
        loop {
            // Created before the state is read, so that no later change is missed.
            let changed = self.changed.notified();
            let room = self.state().room(stream, end, Instant::now());
            match room {
                Room::Available => return,
                Room::Full(None) => changed.await,
                Room::Full(Some(until)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut ReadersState) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_waiters();
        changed
    }

    fn state(&self) -> MutexGuard<'_, ReadersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadersState {
    fn expect(&mut self, cursors: Cursors) {
        self.expected = Some(ExpectedReader {
            since: Instant::now(),
            cursors,
        });
    }

    fn room(&self, stream: OutputStream, end: u64, now: Instant) -> Room {
        let is_far_ahead =
            |cursors: &Cursors| end.saturating_sub(cursors.of(stream)) >= MAX_AHEAD_BYTES;
        if self.attached.values().any(is_far_ahead) {
            return Room::Full(None);
        }
        match &self.expected {
            Some(ExpectedReader { since, cursors })
                if self.attached.is_empty() && is_far_ahead(cursors) =>
            {
                let until = *since + ATTACH_GRACE_PERIOD;
                if now < until {
                    Room::Full(Some(until))
                } else {
                    Room::Available
                }
            }
            _ => Room::Available,
        }
    }
}

impl AttachedReader {
    /// Records how much the reader has received.
    pub(super) fn advance(&self, cursors: Cursors) {
        self.readers
            .change(|state| state.attached.insert(self.key, cursors));
    }
}

impl Drop for AttachedReader {
    fn drop(&mut self) {
        self.readers.change(|state| {
            if let Some(cursors) = state.attached.remove(&self.key) {
                state.expect(cursors);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: u64 = 10 << 20;

    fn at(stdout: u64) -> Cursors {
        Cursors { stdout, stderr: 0 }
    }

    /// Waits for room until `end`, in the background.
    fn waiting(readers: &Arc<Readers>, end: u64) -> tokio::task::JoinHandle<Duration> {
        let (readers, started) = (Arc::clone(readers), Instant::now());
        tokio::spawn(async move {
            readers.wait_for_room(OutputStream::Stdout, end).await;
            started.elapsed()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn process_waits_for_its_slowest_reader() {
        let readers = Arc::new(Readers::default());
        let (fast, slow) = (readers.attach(at(0)), readers.attach(at(0)));
        fast.advance(at(FAR));
        let room = waiting(&readers, FAR);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!room.is_finished());
        // The streams are independent.
        readers
            .wait_for_room(OutputStream::Stderr, MAX_AHEAD_BYTES - 1)
            .await;
        slow.advance(at(FAR - MAX_AHEAD_BYTES + 1));
        assert_eq!(room.await.unwrap(), Duration::from_secs(3600));
    }

    #[tokio::test(start_paused = true)]
    async fn process_waits_a_grace_period_for_an_absent_reader() {
        let readers = Arc::new(Readers::default());
        assert_eq!(
            waiting(&readers, FAR).await.unwrap(),
            Duration::ZERO,
            "no reader was announced"
        );
        readers.expect();
        assert_eq!(waiting(&readers, FAR).await.unwrap(), ATTACH_GRACE_PERIOD);
        let reader = readers.attach(at(FAR));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        drop(reader);
        assert_eq!(
            waiting(&readers, FAR + 1).await.unwrap(),
            Duration::ZERO,
            "the buffer has room"
        );
        assert_eq!(
            waiting(&readers, 2 * FAR).await.unwrap(),
            ATTACH_GRACE_PERIOD
        );

        readers.expect();
        let room = waiting(&readers, FAR);
        tokio::task::yield_now().await;
        let _reader = readers.attach(at(FAR));
        assert_eq!(
            room.await.unwrap(),
            Duration::ZERO,
            "the reader has attached"
        );
    }
}
