//! Where hostile archives are unpacked: a folder with something in it, beside what must stay as it is.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::LIMITS;
use super::tree::{self, Kind, Tree};
use crate::files::FileError;
use crate::fuzzing::scratch::Scratch;

/// A link from the target to what is beside it, made by whoever lives there.
const LINK_OUT: &str = "link";

pub(super) struct Place {
    scratch: Scratch,
    has_link_out: bool,
    before: Tree,
}

impl Place {
    pub(super) fn make(kind: u8) -> Self {
        let scratch = Scratch::make();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("target/sub")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        for file in ["target/old", "target/sub/kept", "outside/a", "archive"] {
            fs::write(at(file), "").unwrap();
        }
        let has_link_out = kind >= 128;
        if has_link_out {
            symlink("../outside", at("target").join(LINK_OUT)).unwrap();
        }
        let before = tree::of(scratch.path());
        Self { scratch, has_link_out, before }
    }

    pub(super) fn check_tar(self, unpack: impl FnOnce(&Path) -> Result<(), FileError>) {
        let is_taken = unpack(&self.scratch.path().join("target")).is_ok();
        let after = self.check();
        if !is_taken {
            assert_eq!(after, self.before, "it was refused");
        }
        let bytes: usize = after
            .values()
            .map(|found| if let Kind::File(content) = &found.kind { content.len() } else { 0 })
            .sum();
        assert!(bytes as u64 <= LIMITS.bytes * LIMITS.entries, "{bytes}");
        // Each may need two folders above it.
        assert!(after.len() as u64 <= self.before.len() as u64 + LIMITS.entries * 3, "{after:?}");
    }

    /// One that is refused late leaves what came before, but no part of a file.
    pub(super) fn check_zip(self, unpack: impl FnOnce(&Path, File) -> bool) {
        let archive = self.scratch.path().join("archive");
        let file = OpenOptions::new().read(true).write(true).open(&archive).unwrap();
        unpack(&self.scratch.path().join("target"), file);
        File::create(&archive).unwrap();
        let after = self.check();
        let is_part = |path: &Path| path.file_name().unwrap().as_encoded_bytes().starts_with(b".upload-");
        assert!(!after.keys().any(|path| is_part(path)), "{after:?}");
    }

    /// What must hold of any archive. Returns what is there now.
    fn check(&self) -> Tree {
        let after = tree::of(self.scratch.path());
        let outside = |tree: &Tree| -> Tree {
            tree.iter()
                .filter(|(path, _)| !path.starts_with("target"))
                .map(|(path, found)| (path.clone(), found.clone()))
                .collect()
        };
        assert_eq!(outside(&after), outside(&self.before), "outside the folder");
        for (path, found) in &after {
            assert_ne!(found.kind, Kind::Other, "{}", path.display());
            assert_eq!(found.mode & 0o6000, 0, "{}", path.display());
        }
        for path in self.before.keys() {
            assert!(after.contains_key(path), "{} is gone", path.display());
        }
        self.check_links(&after);
        after
    }

    /// Every link of the archive's stays within, and every name of a file is in here.
    fn check_links(&self, after: &Tree) {
        let target = self.scratch.path().join("target");
        let handle = File::open(&target).unwrap();
        // Not in the order of these numbers: the kernel gives others in every run, and the runs would differ.
        let mut files = Vec::new();
        for (path, found) in after {
            let Ok(below) = path.strip_prefix("target") else { continue };
            match &found.kind {
                Kind::File(_) => files.push(fs::symlink_metadata(target.join(below)).unwrap()),
                // A link to the link that leads out leads out, which is not the archive's fault.
                Kind::Link(_) if !self.has_link_out => {
                    let how = OpenHow::new().flags(OFlag::O_PATH).resolve(ResolveFlag::RESOLVE_BENEATH);
                    let is_outside = matches!(openat2(&handle, below, how), Err(Errno::EXDEV));
                    assert!(!is_outside, "{} leads out", path.display());
                }
                _ => {}
            }
        }
        for file in &files {
            let names = files.iter().filter(|other| other.ino() == file.ino()).count();
            assert_eq!(file.nlink(), names as u64, "a file has a name outside");
        }
    }
}
