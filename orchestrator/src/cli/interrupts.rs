//! ^C and the other requests to end, as the commands see them.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::AbortHandle;

use crate::exit::INTERRUPTED;
use crate::terminal_input::discard_typed_input;

/// How long what was interrupted may take to end.
pub(super) const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// ^C, the request to end, and the terminal that goes away.
pub(super) struct Interrupts {
    signals: Signals,
    last_resort: AbortHandle,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    has_hung_up: bool,
}

impl Interrupts {
    pub(super) fn listen() -> std::io::Result<Self> {
        let last_resort = tokio::spawn(last_resort(Signals::listen()?));
        Ok(Self { signals: Signals::listen()?, last_resort: last_resort.abort_handle() })
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        self.signals.next().await;
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.last_resort.abort();
    }
}

/// Ends the program if two interrupts have not, a grace period after the second one or at the third. A reader of our output
/// that stopped reading blocks the writing task, which then handles no interrupt.
async fn last_resort(mut signals: Signals) {
    signals.next().await;
    signals.next().await;
    let _ = tokio::time::timeout(STOP_GRACE_PERIOD, signals.next()).await;
    discard_typed_input();
    std::process::exit(INTERRUPTED.into());
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            has_hung_up: false,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            // The kernel and the shell may both tell of it: that is no second word.
            _ = self.hangup.recv(), if !self.has_hung_up => self.has_hung_up = true,
        }
    }
}
