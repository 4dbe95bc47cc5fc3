//! Creates unnamed files, and limits their total size and number.

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

/// Maximum size of all retained output.
const STORE_BYTES: u64 = 2 << 30;

/// Maximum number of files: a quarter of the usual limit of descriptors.
const STORE_FILES: usize = 256;

/// Creates the files of all spools. Clones share the limits.
#[derive(Debug, Clone)]
pub(crate) struct SpoolStore {
    shared: Arc<SpoolStoreState>,
}

#[derive(Debug)]
struct SpoolStoreState {
    /// The first one in which a file can be created is used.
    folders: Vec<PathBuf>,
    max_bytes: u64,
    used: AtomicU64,
    files: AtomicUsize,
}

/// An unnamed file. The kernel takes milliseconds to delete one of many megabytes, so it is dropped
/// in a blocking thread.
#[derive(Debug)]
pub(super) struct SpoolFile(Option<File>);

impl Deref for SpoolFile {
    type Target = File;

    #[expect(clippy::expect_used, reason = "only `drop` takes the file")]
    fn deref(&self) -> &File {
        self.0
            .as_ref()
            .expect("the file is open until it is dropped")
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

/// Reserved space and files, which are released on drop.
#[derive(Debug)]
pub(super) struct SpoolReservation {
    shared: Arc<SpoolStoreState>,
    bytes: u64,
    files: usize,
}

impl SpoolStore {
    pub(crate) fn new(scratch_dir: &Path, working_dir: &Path) -> Self {
        // The temporary folders of an image may be read-only or missing. Shared memory is small.
        let folders = vec![
            scratch_dir.to_owned(),
            "/var/tmp".into(),
            working_dir.to_owned(),
            "/dev/shm".into(),
        ];
        Self::with(folders, STORE_BYTES)
    }

    /// Creates no file, as where no folder is writable.
    #[cfg(test)]
    pub(crate) fn without_disk() -> Self {
        Self::with(Vec::new(), 0)
    }

    pub(super) fn with(folders: Vec<PathBuf>, max_bytes: u64) -> Self {
        let (used, files) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self {
            shared: Arc::new(SpoolStoreState {
                folders,
                max_bytes,
                used,
                files,
            }),
        }
    }

    pub(super) fn reserve(&self, bytes: u64) -> Option<SpoolReservation> {
        let within = |used: u64| {
            used.checked_add(bytes)
                .filter(|&sum| sum <= self.shared.max_bytes)
        };
        self.shared
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .ok()?;
        Some(SpoolReservation {
            shared: Arc::clone(&self.shared),
            bytes,
            files: 0,
        })
    }

    /// Creates an empty file that is deleted with its last descriptor.
    pub(super) fn file(&self) -> io::Result<SpoolFile> {
        let mut last = io::Error::other("there is no folder for output files");
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
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(folder)
}

/// For file systems without `O_TMPFILE`. The file has a name between two system calls.
fn unlinked(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".glovebox-{}", Uuid::now_v7().simple()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

impl SpoolReservation {
    /// Merges two reservations, to release them together.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.files += std::mem::take(&mut other.files);
    }

    /// Adds a file to the reservation.
    pub(super) fn with_file(mut self) -> io::Result<Self> {
        let within = |files: usize| (files < STORE_FILES).then_some(files + 1);
        self.shared
            .files
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .map_err(|_| io::Error::other("the maximum number of output files is reached"))?;
        self.files += 1;
        Ok(self)
    }
}

impl Drop for SpoolReservation {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.shared.files.fetch_sub(self.files, Ordering::Relaxed);
    }
}
