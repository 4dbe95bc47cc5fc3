//! A folder that is exchanged with a link, again and again.

use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, RenameFlags};

pub(crate) struct SwappedFolder {
    _folder: tempfile::TempDir,
    /// Has an entry `folder`: a folder with the file `key`, which holds `inside`, or a link to one,
    /// which holds `secret`.
    pub(crate) root: PathBuf,
    ended: Arc<AtomicBool>,
    swapping: Option<JoinHandle<()>>,
}

/// Starts to exchange.
pub(crate) fn swap_folder_and_link() -> SwappedFolder {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (parent, content) in [("outside", "secret"), ("root/folder", "inside")] {
        std::fs::create_dir_all(at(parent)).unwrap();
        std::fs::write(at(parent).join("key"), content).unwrap();
    }
    symlink(at("outside"), at("link")).unwrap();
    let (root, link, ended) = (at("root"), at("link"), Arc::new(AtomicBool::new(false)));
    let swapping = std::thread::spawn({
        let (inner, ended) = (root.join("folder"), Arc::clone(&ended));
        move || {
            while !ended.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &inner, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        }
    });
    SwappedFolder {
        _folder: folder,
        root,
        ended,
        swapping: Some(swapping),
    }
}

/// Minimum number of observations: each may meet the exchange at another moment.
const MIN_OBSERVATIONS: usize = 300;

const TIMEOUT: Duration = Duration::from_secs(30);

/// What an observation has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Folder,
    Link,
    /// An error, or both.
    Other,
}

impl SwappedFolder {
    /// Observes the root again and again, until both the folder and the link were found.
    pub(crate) fn observe(&self, mut observe: impl FnMut(&Path) -> Found) {
        let (start, mut found) = (Instant::now(), Vec::new());
        let is_complete = |found: &[Found]| {
            [Found::Folder, Found::Link]
                .iter()
                .all(|each| found.contains(each))
        };
        while found.len() < MIN_OBSERVATIONS || !is_complete(&found) {
            assert!(
                start.elapsed() < TIMEOUT,
                "{} observations of one state",
                found.len()
            );
            found.push(observe(&self.root));
        }
    }
}

impl Drop for SwappedFolder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.swapping.take().unwrap().join().unwrap();
    }
}

pub(crate) fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, super::FOLDER, Mode::empty()).unwrap()
}
