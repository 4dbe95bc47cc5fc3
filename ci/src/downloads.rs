//! What the steps download: images, and packages from npm and PyPI. A full run fetches it while the
//! first steps compile.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use crate::engine;
use crate::schema;
use crate::test;

/// A thread that fills the cache. It reports no errors: the step that needs a part tries again, and
/// reports its error.
#[derive(Default)]
pub(crate) struct Downloads(Option<JoinHandle<()>>);

impl Downloads {
    pub(crate) fn start(cache: PathBuf) -> Self {
        Self(Some(thread::spawn(move || {
            let _ = engine::make_images(&cache);
            let _ = test::packages::install(&cache);
            let _ = schema::install(&cache);
        })))
    }

    /// Waits for the end, because two writers of the cache would repeat each other's work.
    pub(crate) fn finish(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}
