//! Progress of a command, if it takes longer than a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::task::AbortOnDropHandle;

use crate::cli::palette;
use crate::status_terminal;

const DRAW_DELAY: Duration = Duration::from_secs(1);
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

/// A line on standard error, if that is a terminal. Removed on drop.
pub(super) struct StoreProgress {
    bar: ProgressBar,
    _start: AbortOnDropHandle<()>,
}

impl StoreProgress {
    /// Starts a progress of this number of conversations. `None` if it is not known.
    pub(super) fn new(operation: &'static str, conversations: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(conversations, ProgressDrawTarget::hidden());
        let template = match conversations {
            Some(_) => "{spinner} {msg}: {pos} of {len} conversations ({elapsed})",
            None => "{spinner} {msg}: {pos} conversations ({elapsed})",
        };
        bar.set_style(
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_message(operation);
        let shown = bar.clone();
        let start = tokio::spawn(async move {
            tokio::time::sleep(DRAW_DELAY).await;
            if !palette::is_dumb_terminal() {
                shown.set_draw_target(status_terminal::target());
                shown.enable_steady_tick(DRAW_INTERVAL);
            }
        });
        Self {
            bar,
            _start: AbortOnDropHandle::new(start),
        }
    }

    /// Counts a conversation.
    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Prints while the line is hidden.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for StoreProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
