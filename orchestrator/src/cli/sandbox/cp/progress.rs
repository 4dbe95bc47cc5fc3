//! Progress of a copy: bytes, rate, and the remaining time if the size is known.

use std::time::Duration;

use engine::sandbox::ByteSource;
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::io::InspectReader;

use crate::status_terminal;

const SIZED_TEMPLATE: &str =
    "{bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const UNSIZED_TEMPLATE: &str = "{spinner} {binary_bytes}, {binary_bytes_per_sec} ({elapsed})";

/// Progress bar on standard error, if that is a terminal. Removed on drop.
pub(super) struct CopyProgress(ProgressBar);

impl CopyProgress {
    /// Shows the progress of a copy of `length` bytes, if that is known.
    pub(super) fn new(length: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(length, status_terminal::target());
        let template = if length.is_some() {
            SIZED_TEMPLATE
        } else {
            UNSIZED_TEMPLATE
        };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Counts the bytes that are read from a source.
    pub(super) fn track(&self, source: ByteSource) -> ByteSource {
        let bar = self.0.clone();
        Box::new(InspectReader::new(source, move |bytes| {
            bar.inc(bytes.len() as u64);
        }))
    }
}

impl Drop for CopyProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
