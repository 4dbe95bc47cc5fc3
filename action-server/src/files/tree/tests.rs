//! Tests with valid and with hostile archives.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use bytes::Bytes;
use protocol::sandbox_api::SkippedEntries;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use tokio::sync::mpsc::channel;

use super::{ArchiveLimits, BodyPart, open_folder, pack, unpack};
use crate::files::Files;
use crate::files::error::FileError;

const LIMITS: ArchiveLimits = ArchiveLimits {
    entries: 100,
    bytes: 1 << 20,
    free_bytes: 128 << 10,
};

fn unpacked(folder: &Path, archive: &[u8], is_whole: bool) -> Result<(), FileError> {
    let (parts, arriving) = channel(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The receiver is dropped when the archive is rejected.
            for part in archive.chunks(1000) {
                _ = parts.blocking_send(BodyPart::Part(Bytes::copy_from_slice(part)));
            }
            if is_whole {
                _ = parts.blocking_send(BodyPart::End);
            }
        });
        unpack(&Files::unconfined(), folder, arriving, LIMITS)
    })
}

fn packed(folder: &Path) -> Vec<u8> {
    let (parts, mut arriving) = channel(2);
    std::thread::scope(|scope| {
        scope.spawn(move || pack(&open_folder(&Files::unconfined(), folder).unwrap(), parts));
        let mut archive = Vec::new();
        while let Some(part) = arriving.blocking_recv() {
            archive.extend_from_slice(&part.unwrap());
        }
        archive
    })
}

/// An archive whose entries violate the rules.
struct HostileArchive(Builder<Vec<u8>>);

impl HostileArchive {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn entry(
        mut self,
        kind: EntryType,
        name: &str,
        target: &str,
        mode: u32,
        content: &[u8],
    ) -> Self {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    /// A sparse file of `length` bytes. The archive contains only the last 512.
    fn hole(mut self, name: &str, length: u64) -> Self {
        let octal = |number: u64| format!("{number:011o}\0");
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..name.len()].copy_from_slice(name.as_bytes());
        gnu.realsize.copy_from_slice(octal(length).as_bytes());
        gnu.sparse[0]
            .offset
            .copy_from_slice(octal(length - 512).as_bytes());
        gnu.sparse[0]
            .numbytes
            .copy_from_slice(octal(512).as_bytes());
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o644);
        header.set_mtime(1_000_000_000);
        header.set_size(512);
        header.set_cksum();
        self.0.append(&header, &[1; 512][..]).unwrap();
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(EntryType::Regular, name, "", 0o644, content)
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// A folder `target` with a file in it, next to a file `secret`.
fn target_and_secret() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("target")).unwrap();
    fs::write(dir.path().join("target/old"), "old").unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    dir
}

fn is_untouched(dir: &Path) -> bool {
    let count = |path: &Path| fs::read_dir(path).unwrap().count();
    count(dir) == 2
        && count(&dir.join("target")) == 1
        && fs::read(dir.join("secret")).unwrap() == b"secret"
        && fs::metadata(dir.join("secret")).unwrap().nlink() == 1
}

#[test]
fn folder_is_equal_after_packing_and_unpacking() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| from.path().join(name);
    let long = "n".repeat(200);
    fs::create_dir_all(at("a/b/empty")).unwrap();
    fs::write(at("a/script"), "#!").unwrap();
    fs::set_permissions(at("a/script"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::write(at(&long), vec![7; 700_001]).unwrap();
    fs::write(at(".hidden"), "").unwrap();
    fs::write(at(".gitignore"), "*").unwrap();
    symlink("../a/script", at("a/link")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let target = to.path().join("new/folder");
    unpacked(&target, &packed(from.path()), true).unwrap();
    let got = |name: &str| target.join(name);
    assert_eq!(fs::read(got(&long)).unwrap(), vec![7; 700_001]);
    assert!(got("a/b/empty").is_dir() && got(".hidden").exists() && got(".gitignore").exists());
    assert_eq!(
        fs::metadata(got("a/script")).unwrap().mode() & 0o7777,
        0o751
    );
    assert_eq!(
        fs::metadata(got("a/script")).unwrap().mtime(),
        fs::metadata(at("a/script")).unwrap().mtime()
    );
    assert_eq!(
        fs::read_link(got("a/link")).unwrap(),
        Path::new("../a/script")
    );
    assert!(!got("pipe").exists());
    assert_eq!(fs::read_dir(to.path().join("new")).unwrap().count(), 1);
}

#[test]
fn existing_files_are_kept_unless_the_archive_has_them() {
    let dir = target_and_secret();
    let target = dir.path().join("target");
    fs::create_dir(target.join("sub")).unwrap();
    fs::write(target.join("sub/kept"), "kept").unwrap();
    let archive = HostileArchive::new()
        .file("old", b"new")
        .file("./sub/added", b"added")
        .file("sub/added", b"twice")
        .bytes();
    unpacked(&target, &archive, true).unwrap();
    let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
    assert_eq!(
        (read("old"), read("sub/kept"), read("sub/added")),
        ("new".into(), "kept".into(), "twice".into())
    );
    let archive = HostileArchive::new()
        .file("new", b"")
        .file("old/below", b"")
        .bytes();
    assert!(matches!(
        unpacked(&target, &archive, true),
        Err(FileError::Unfit { .. })
    ));
    assert!(!target.join("new").exists() && read("old") == "new");
}

#[test]
fn sparse_file_is_unpacked_up_to_the_maximum_ratio() {
    let dir = target_and_secret();
    let target = dir.path().join("target");
    let archive = HostileArchive::new()
        .file("data", &[1; 4096])
        .hole("hole", 300 << 10)
        .bytes();
    unpacked(&target, &archive, true).unwrap();
    assert_eq!(fs::metadata(target.join("hole")).unwrap().len(), 300 << 10);
}

#[test]
fn hard_link_within_the_archive_is_created() {
    let dir = target_and_secret();
    let target = dir.path().join("target");
    let archive = HostileArchive::new()
        .file("a", b"x")
        .entry(EntryType::Link, "b/c", "a", 0o644, b"")
        .bytes();
    unpacked(&target, &archive, true).unwrap();
    assert_eq!(
        fs::metadata(target.join("a")).unwrap().ino(),
        fs::metadata(target.join("b/c")).unwrap().ino()
    );
}

#[test]
fn hostile_archive_is_rejected_and_leaves_nothing() {
    let link = EntryType::Symlink;
    let hostile: Vec<(&str, HostileArchive)> = vec![
        (
            "..",
            HostileArchive::new()
                .file("fine", b"")
                .file("../secret", b"x"),
        ),
        ("..", HostileArchive::new().file("a/../../secret", b"x")),
        (
            "absolute",
            HostileArchive::new().file("/tmp/glovebox-escape", b"x"),
        ),
        (
            "within",
            HostileArchive::new().entry(link, "l", "/etc", 0o777, b""),
        ),
        (
            "within",
            HostileArchive::new().entry(link, "l", "..", 0o777, b""),
        ),
        (
            "within",
            HostileArchive::new()
                .entry(link, "a", ".", 0o777, b"")
                .entry(link, "b", "a/../..", 0o777, b""),
        ),
        (
            "not a folder",
            HostileArchive::new()
                .entry(link, "a", "b", 0o777, b"")
                .file("a/x", b"x"),
        ),
        (
            "not a folder",
            HostileArchive::new().file("a", b"").file("a/x", b"x"),
        ),
        (
            "hard link",
            HostileArchive::new().entry(EntryType::Link, "h", "old", 0o644, b""),
        ),
        (
            "..",
            HostileArchive::new().entry(EntryType::Link, "h", "../secret", 0o644, b""),
        ),
        (
            "absolute",
            HostileArchive::new().entry(EntryType::Link, "h", "/etc/passwd", 0o644, b""),
        ),
        (
            "hard link",
            HostileArchive::new()
                .entry(link, "l", "x", 0o777, b"")
                .entry(EntryType::Link, "h", "l", 0o644, b""),
        ),
        (
            "not a file",
            HostileArchive::new().entry(EntryType::Char, "null", "", 0o666, b""),
        ),
        (
            "not a file",
            HostileArchive::new().entry(EntryType::Block, "disk", "", 0o666, b""),
        ),
        (
            "not a file",
            HostileArchive::new().entry(EntryType::Fifo, "pipe", "", 0o666, b""),
        ),
        (
            "set-user-id",
            HostileArchive::new().entry(EntryType::Regular, "su", "", 0o4755, b""),
        ),
        (
            "set-user-id",
            HostileArchive::new().entry(EntryType::Directory, "d", "", 0o2755, b""),
        ),
        (
            "folder",
            HostileArchive::new().file("d/x", b"").file("d", b""),
        ),
        (
            "bytes",
            HostileArchive::new()
                .file("a", &[1; 1 << 20])
                .file("b", b"x"),
        ),
        ("bomb", HostileArchive::new().hole("a", 2 << 20)),
        ("bomb", HostileArchive::new().hole("a", 200 << 10)),
        (
            "entries",
            (0..101).fold(HostileArchive::new(), |all, number| {
                all.file(&format!("{number}"), b"")
            }),
        ),
        (
            "too long",
            HostileArchive::new()
                .entry(EntryType::GNULongName, "l", "", 0, &vec![b'n'; 2 << 20])
                .file("a", b""),
        ),
        (
            "too long",
            HostileArchive::new()
                .entry(EntryType::GNULongName, "l", "", 0, &[b'n'; 5000])
                .file("a", b""),
        ),
        (
            "too long",
            HostileArchive::new()
                .entry(EntryType::XHeader, "l", "", 0, &vec![b'n'; 2 << 20])
                .file("a", b""),
        ),
    ];
    for (number, (named, archive)) in hostile.into_iter().enumerate() {
        let dir = target_and_secret();
        let refused = unpacked(&dir.path().join("target"), &archive.bytes(), true);
        let Err(FileError::Archive(problem)) = refused else {
            panic!("{number} {named}: {refused:?}")
        };
        assert!(problem.contains(named), "{number} {named}: {problem}");
        assert!(is_untouched(dir.path()), "{number} {named}");
    }
    assert!(!Path::new("/tmp/glovebox-escape").exists());
}

#[test]
fn existing_link_in_the_target_is_not_followed() {
    let dir = target_and_secret();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("target/link")).unwrap();
    let archive = HostileArchive::new().file("link/x", b"x").bytes();
    let refused = unpacked(&dir.path().join("target"), &archive, true);
    assert!(
        matches!(refused, Err(FileError::Unfit { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

/// As root, packs as another user, because root may read everything.
fn packed_unprivileged(folder: &Path) -> (Vec<u8>, SkippedEntries) {
    let (parts, mut arriving) = channel(100);
    let packing = std::thread::scope(|scope| {
        let packing = scope.spawn(move || {
            // Of this thread only, which ends.
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            pack(&open_folder(&Files::unconfined(), folder).unwrap(), parts)
        });
        packing.join().unwrap()
    });
    let mut archive = Vec::new();
    while let Some(part) = arriving.blocking_recv() {
        archive.extend_from_slice(&part.unwrap());
    }
    (archive, packing)
}

#[test]
fn entries_are_reported_when_they_are_left_out() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["closed", "open"] {
        fs::create_dir(at(folder)).unwrap();
    }
    for file in ["closed/a", "open/a", "open/secret", "z"] {
        fs::write(at(file), file).unwrap();
    }
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, mode) in [("", 0o755), ("closed", 0), ("open/secret", 0)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (archive, skipped) = packed_unprivileged(dir.path());
    let mut archive = tar::Archive::new(&archive[..]);
    let names = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["closed", "open", "open/a", "z"]);
    let named = [
        "closed: Permission denied (os error 13)",
        "open/secret: Permission denied (os error 13)",
        "pipe: neither a file, a folder nor a link",
    ];
    let named = named.map(str::to_owned).to_vec();
    assert_eq!(skipped, SkippedEntries { count: 3, named });
    fs::set_permissions(at(""), fs::Permissions::from_mode(0o000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            assert!(open_folder(&Files::unconfined(), dir.path()).is_err());
        });
    });
    for name in ["", "closed"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn incomplete_archive_leaves_nothing() {
    let archive = HostileArchive::new()
        .file("a", &[1; 10_000])
        .file("b", &[1; 10_000])
        .bytes();
    for length in [0, 100, 512, 5_000, 11_264, 12_000, archive.len() - 1024] {
        let dir = target_and_secret();
        assert!(
            unpacked(&dir.path().join("target"), &archive[..length], false).is_err(),
            "{length}"
        );
        assert!(is_untouched(dir.path()), "{length}");
    }
    let dir = target_and_secret();
    assert!(unpacked(&dir.path().join("target"), &[7; 5000], true).is_err());
    assert!(is_untouched(dir.path()));
}
