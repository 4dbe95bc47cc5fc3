//! A folder with files in which hostile archives are unpacked, next to files that must not change.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::tree::{self, EntryContent, Tree};
use super::{FuzzFolder, LIMITS};

/// An existing link out of the target.
const LINK_OUT: &str = "link";

pub(super) struct SandboxFolder {
    scratch: FuzzFolder,
    has_link_out: bool,
    before: Tree,
}

impl SandboxFolder {
    pub(super) fn create(selector: u8) -> Self {
        let scratch = FuzzFolder::create();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("target/sub")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        for file in ["target/old", "target/sub/kept", "outside/a", "archive"] {
            fs::write(at(file), "").unwrap();
        }
        let has_link_out = selector >= 128;
        if has_link_out {
            symlink("../outside", at("target").join(LINK_OUT)).unwrap();
        }
        let before = tree::read(scratch.path());
        Self {
            scratch,
            has_link_out,
            before,
        }
    }

    pub(super) fn check_tar(self, unpack: impl FnOnce(&Path) -> std::io::Result<()>) {
        let is_accepted = unpack(&self.scratch.path().join("target")).is_ok();
        let after = self.check();
        if !is_accepted {
            assert_eq!(after, self.before, "a rejected archive left files");
        }
        let bytes: usize = after
            .values()
            .map(|entry| {
                if let EntryContent::File(content) = &entry.content {
                    content.len()
                } else {
                    0
                }
            })
            .sum();
        assert!(bytes as u64 <= LIMITS.bytes * LIMITS.entries, "{bytes}");
        // An entry may need two parent folders.
        assert!(
            after.len() as u64 <= self.before.len() as u64 + LIMITS.entries * 3,
            "{after:?}"
        );
    }

    /// A zip that is rejected late leaves complete files of earlier entries, but no partial file.
    pub(super) fn check_zip(self, unpack: impl FnOnce(&Path, File) -> bool) {
        let archive = self.scratch.path().join("archive");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&archive)
            .unwrap();
        unpack(&self.scratch.path().join("target"), file);
        File::create(&archive).unwrap();
        let after = self.check();
        let is_part = |path: &Path| {
            path.file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".upload-")
        };
        assert!(!after.keys().any(|path| is_part(path)), "{after:?}");
    }

    /// Checks the invariants of all archives and returns the files.
    fn check(&self) -> Tree {
        let after = tree::read(self.scratch.path());
        let outside = |tree: &Tree| -> Tree {
            tree.iter()
                .filter(|(path, _)| !path.starts_with("target"))
                .map(|(path, entry)| (path.clone(), entry.clone()))
                .collect()
        };
        assert_eq!(
            outside(&after),
            outside(&self.before),
            "a file outside of the folder changed"
        );
        for (path, entry) in &after {
            assert_ne!(entry.content, EntryContent::Other, "{}", path.display());
            assert_eq!(entry.mode & 0o6000, 0, "{}", path.display());
        }
        for path in self.before.keys() {
            assert!(after.contains_key(path), "{} is gone", path.display());
        }
        self.check_links(&after);
        after
    }

    /// Checks that links of the archive stay within the target, and that no file has a hard link
    /// outside of it.
    fn check_links(&self, after: &Tree) {
        let target = self.scratch.path().join("target");
        let handle = File::open(&target).unwrap();
        // In the order of the tree and not of the inode numbers, which differ in every run.
        let mut files = Vec::new();
        for (path, entry) in after {
            let Ok(below) = path.strip_prefix("target") else {
                continue;
            };
            match &entry.content {
                EntryContent::File(_) => {
                    files.push(fs::symlink_metadata(target.join(below)).unwrap());
                }
                // With the existing link out, a link to it leads out too.
                EntryContent::Link(_) if !self.has_link_out => {
                    let how = OpenHow::new()
                        .flags(OFlag::O_PATH)
                        .resolve(ResolveFlag::RESOLVE_BENEATH);
                    let is_outside = matches!(openat2(&handle, below, how), Err(Errno::EXDEV));
                    assert!(!is_outside, "{} leads out", path.display());
                }
                _ => {}
            }
        }
        for file in &files {
            let names = files
                .iter()
                .filter(|other| other.ino() == file.ino())
                .count();
            assert_eq!(file.nlink(), names as u64, "a file has a hard link outside");
        }
    }
}
