//! Where files without a name come from, and how much they may hold together.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nix::libc;
use tokio::runtime::Handle;
use uuid::Uuid;

/// For all output of a server's life that is held at one time.
const STORE_BYTES: u64 = 2 << 30;

/// How many files that may be: a quarter of the descriptors that a process usually may have.
const STORE_FILES: usize = 256;

/// Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct SpoolStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The first one that takes files.
    folders: Vec<PathBuf>,
    most: u64,
    used: AtomicU64,
    files: AtomicUsize,
}

/// A file without a name. The kernel takes milliseconds to let one of many megabytes go, so that is left to a thread which
/// may block.
#[derive(Debug)]
pub(super) struct SpoolFile(Option<File>);

impl Deref for SpoolFile {
    type Target = File;

    #[expect(clippy::expect_used, reason = "only the drop takes it")]
    fn deref(&self) -> &File {
        self.0.as_ref().expect("a file that is held is open")
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let file = self.0.take();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    shared: Arc<Shared>,
    bytes: u64,
    files: usize,
}

impl SpoolStore {
    pub(crate) fn new(scratch_dir: &Path) -> Self {
        // An image's own folder for what is temporary may be read-only or missing.
        let folders = vec![scratch_dir.to_owned(), "/var/tmp".into(), "/dev/shm".into()];
        Self::with(folders, STORE_BYTES)
    }

    pub(super) fn with(folders: Vec<PathBuf>, most: u64) -> Self {
        Self {
            shared: Arc::new(Shared { folders, most, used: AtomicU64::new(0), files: AtomicUsize::new(0) }),
        }
    }

    pub(super) fn reserve(&self, bytes: u64) -> Option<Reserved> {
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.shared.most);
        self.shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        Some(Reserved { shared: Arc::clone(&self.shared), bytes, files: 0 })
    }

    /// An empty file that is gone with its last descriptor.
    pub(super) fn file(&self) -> io::Result<SpoolFile> {
        let mut last = io::Error::other("there is no folder for output");
        for folder in &self.shared.folders {
            match unnamed(folder).or_else(|_| unlinked(folder)) {
                Ok(file) => return Ok(SpoolFile(Some(file))),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn unnamed(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder)
}

/// For file systems that only know files with a name. It has one for the time between two system calls.
fn unlinked(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".glovebox-{}", Uuid::now_v7().simple()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

impl Reserved {
    /// One for both, so that they are given back together.
    pub(super) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.files += std::mem::take(&mut other.files);
    }

    /// The same, and a file of its own.
    pub(super) fn with_a_file(mut self) -> io::Result<Self> {
        let within = |files: usize| (files < STORE_FILES).then_some(files + 1);
        self.shared
            .files
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .map_err(|_| io::Error::other("the server holds as many files of output as it may"))?;
        self.files += 1;
        Ok(self)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.shared.files.fetch_sub(self.files, Ordering::Relaxed);
    }
}
