//! Interrupts: ^C, SIGTERM and SIGHUP.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::exit::INTERRUPTED;
use crate::terminal_input::discard_typed_input;

/// Time for an interrupted operation to stop.
pub(super) const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

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

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Whether further hang-ups do not interrupt.
    ignores_hangup: bool,
}

impl Interrupts {
    pub(super) fn listen() -> std::io::Result<Self> {
        Self::listen_with(Hangup::Interrupts)
    }

    pub(super) fn listen_with(hangup: Hangup) -> std::io::Result<Self> {
        // One listener: a signal that arrives while a second one is created would not reach it.
        let signals = Signals::listen(hangup)?;
        let (count, received) = watch::channel(0);
        Ok(Self {
            received,
            _listener: AbortOnDropHandle::new(tokio::spawn(count_interrupts(signals, count))),
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

/// Counts interrupts. Exits a grace period after the second one, or at the third: a pipe that is
/// not read blocks the task that writes to it, which then handles no interrupt.
async fn count_interrupts(mut signals: Signals, count: watch::Sender<u32>) {
    for _ in 0..2 {
        signals.next().await;
        count.send_modify(|count| *count += 1);
    }
    let _ = tokio::time::timeout(STOP_GRACE_PERIOD, signals.next()).await;
    discard_typed_input();
    std::process::exit(INTERRUPTED.into());
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

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            // Both the kernel and the shell may send SIGHUP, which must not count as a second
            // interrupt.
            _ = self.hangup.recv(), if !self.ignores_hangup => self.ignores_hangup = true,
        }
    }
}
