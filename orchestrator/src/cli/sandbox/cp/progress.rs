//! What has been copied so far: bytes, rate, and how long it still takes where that is known.

use std::time::Duration;

use engine::sandbox::ByteSource;
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::io::InspectReader;

const KNOWN: &str = "{bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const UNKNOWN: &str = "{spinner} {binary_bytes}, {binary_bytes_per_sec} ({elapsed})";

/// Draws on standard error while it lives, if that is a terminal.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Of something that is so long, if that is known.
    pub(super) fn of(length: Option<u64>) -> Self {
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let template = if length.is_some() { KNOWN } else { UNKNOWN };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Counts what is read of a source.
    pub(super) fn of_source(&self, source: ByteSource) -> ByteSource {
        let bar = self.0.clone();
        Box::new(InspectReader::new(source, move |bytes| bar.inc(bytes.len() as u64)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
