//! Interrupts: ^C, SIGTERM and SIGHUP.

use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::print;
use crate::exit::INTERRUPTED;
use crate::terminal_input::discard_typed_input;

/// Time for an interrupted operation to stop.
pub(super) const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Time for an interrupted command to end, which includes the removal of its sandbox.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to show that the program exits.
const EXIT_DELAY: Duration = Duration::from_millis(100);

const STILL_STOPPING: &str = "glovebox: still stopping; interrupt again to exit immediately\n";

const GIVEN_UP: &str =
    "not ended in time: `glovebox sandbox ls` and `glovebox sandbox prune` find what is left";

/// Stream of interrupts.
pub(super) struct Interrupts {
    /// Number of interrupts.
    received: watch::Receiver<u32>,
    _listener: AbortOnDropHandle<()>,
}

/// Observes interrupts that are handled elsewhere.
pub(super) struct InterruptObserver(watch::Receiver<u32>);

/// What SIGHUP does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hangup {
    /// Interrupts, because the terminal was closed.
    Interrupts,
    /// Does not interrupt: the program has another use for it.
    Ignored,
}

/// How long the program may take to end after the first interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    /// [`END_TIMEOUT`].
    Bounded,
    /// Until the second interrupt.
    Unbounded,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Whether further hang-ups do not interrupt.
    ignores_hangup: bool,
}

impl Interrupts {
    /// Listens for a command. It ends at the latest half a minute after an interrupt, even if a
    /// sandbox does not respond.
    pub(super) fn listen() -> std::io::Result<Self> {
        Self::listen_for(ListenerKind::Bounded, Hangup::Interrupts)
    }

    /// Listens for a server or another program that may take longer to end.
    pub(super) fn listen_unbounded(hangup: Hangup) -> std::io::Result<Self> {
        Self::listen_for(ListenerKind::Unbounded, hangup)
    }

    fn listen_for(kind: ListenerKind, hangup: Hangup) -> std::io::Result<Self> {
        // One listener: a signal that arrives while a second one is created would not reach it.
        let signals = Signals::listen(hangup)?;
        let (count, received) = watch::channel(0);
        let listener = tokio::spawn(async move {
            count_interrupts(kind, signals.into_stream(), count).await;
            discard_typed_input();
            std::process::exit(INTERRUPTED.into());
        });
        Ok(Self {
            received,
            _listener: AbortOnDropHandle::new(listener),
        })
    }

    /// Runs `work` until the next interrupt. `None` if it was interrupted.
    pub(super) async fn unless_interrupted<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.next() => None,
        }
    }

    /// Returns an observer of the interrupts after the last one that was handled.
    pub(super) fn observer(&self) -> InterruptObserver {
        InterruptObserver(self.received.clone())
    }

    /// Waits for the next interrupt. Cancel-safe.
    pub(super) async fn next(&mut self) {
        if self.received.changed().await.is_err() {
            std::future::pending::<()>().await; // the program exits
        }
    }
}

impl InterruptObserver {
    /// Waits until there was an interrupt. Completes immediately each time after that.
    pub(super) async fn interrupted(&self) {
        if self.0.clone().changed().await.is_err() {
            std::future::pending::<()>().await; // the program exits
        }
    }
}

/// Counts interrupts. Returns if the program does not end in time, or at the third: a pipe that is
/// not read blocks the task that writes to it, which then handles no interrupt, and a sandbox may
/// not respond.
async fn count_interrupts(
    kind: ListenerKind,
    signals: impl Stream<Item = ()>,
    count: watch::Sender<u32>,
) {
    let mut signals = pin!(signals);
    signals.next().await;
    count.send_modify(|count| *count += 1);
    let second = async {
        signals.next().await;
        count.send_modify(|count| *count += 1);
        let _ = tokio::time::timeout(STOP_GRACE_PERIOD, signals.next()).await;
    };
    let overdue = async {
        tokio::time::sleep(print::NOTICE_DELAY).await;
        // On another thread, because standard error may be a pipe that is not read.
        tokio::task::spawn_blocking(|| print::note(STILL_STOPPING));
        tokio::time::sleep(END_TIMEOUT).await;
        tokio::task::spawn_blocking(|| print::error(GIVEN_UP));
        tokio::time::sleep(EXIT_DELAY).await;
    };
    tokio::select! {
        () = second => {}
        () = overdue, if kind == ListenerKind::Bounded => {}
    }
}

impl Signals {
    fn listen(hangup: Hangup) -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            ignores_hangup: hangup == Hangup::Ignored,
        })
    }

    fn into_stream(self) -> impl Stream<Item = ()> {
        stream::unfold(self, async |mut signals| {
            signals.receive().await;
            Some(((), signals))
        })
    }

    async fn receive(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            // Both the kernel and the shell may send SIGHUP, which must not count as a second
            // interrupt.
            _ = self.hangup.recv(), if !self.ignores_hangup => self.ignores_hangup = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    /// Seconds until the exit of a program that does not end by itself, after interrupts at these
    /// seconds. `None` if it does not exit within an hour.
    async fn exits_after(kind: ListenerKind, interrupts: &[u64]) -> Option<u64> {
        let (count, received) = watch::channel(0);
        let start = Instant::now();
        let signals = stream::iter(interrupts)
            .then(|at| tokio::time::sleep_until(start + Duration::from_secs(*at)))
            .chain(stream::pending());
        let counting = count_interrupts(kind, signals, count);
        let counted = timeout(Duration::from_secs(3600), counting).await;
        let result = counted.is_ok().then(|| start.elapsed().as_secs());
        assert_eq!(
            *received.borrow(),
            u32::try_from(interrupts.len().min(2)).unwrap()
        );
        result
    }

    #[tokio::test(start_paused = true)]
    async fn program_that_does_not_end_exits_after_its_interrupts() {
        use ListenerKind::{Bounded, Unbounded};
        for (kind, interrupts, exit) in [
            (Bounded, &[5][..], Some(37)),
            (Bounded, &[5, 6], Some(16)),
            (Bounded, &[5, 6, 7], Some(7)),
            (Unbounded, &[5], None),
            (Unbounded, &[5, 600], Some(610)),
            (Unbounded, &[5, 600, 601], Some(601)),
        ] {
            assert_eq!(exits_after(kind, interrupts).await, exit, "{interrupts:?}");
        }
    }
}
