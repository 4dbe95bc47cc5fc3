//! Archives are unpacked into the destination, and nowhere else.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::unpack::unpack;
use crate::v0::archive::ArchiveWriter;
use crate::v0::transfer_error::TransferError;

fn archive(files: &[(&str, u32, &[u8])]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let mut archive = ArchiveWriter::new(&mut file);
    files
        .iter()
        .for_each(|(name, mode, content)| archive.add(name, *mode, &mut &content[..]).unwrap());
    archive.finish().unwrap();
    file
}

#[test]
fn archive_is_unpacked_with_its_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("deep/er");
    let files: [(&str, u32, &[u8]); 3] = [
        ("project/bin/run", 0o100_755, b"#!"),
        ("project/a", 0o100_444, b"a"),
        ("a", 0o100_644, b""),
    ];
    unpack(&archive(&files), &target).unwrap();
    unpack(&archive(&files), &target).unwrap();
    assert_eq!(fs::read(target.join("project/bin/run")).unwrap(), b"#!");
    let mode = |name: &str| {
        fs::metadata(target.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o111
    };
    assert_eq!(
        [mode("project/bin/run") != 0, mode("project/a") != 0],
        [true, false]
    );
    assert_eq!(
        fs::read_dir(&target).unwrap().count(),
        2,
        "nothing else is left there"
    );
}

#[test]
fn existing_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (target, outside) = (dir.path().join("target"), dir.path().join("outside"));
    fs::create_dir_all(&target).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "mine").unwrap();
    symlink(&outside, target.join("folder")).unwrap();
    symlink(outside.join("file"), target.join("file")).unwrap();
    let error = unpack(&archive(&[("folder/new", 0o100_644, b"x")]), &target).unwrap_err();
    assert!(matches!(error, TransferError::Refused(_)), "{error}");
    assert!(!outside.join("new").exists());
    unpack(&archive(&[("file", 0o100_644, b"x")]), &target).unwrap();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "x");
}

#[test]
fn no_file_is_written_when_one_entry_is_hostile() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    for (name, mode) in [
        ("../out", 0o100_644),
        ("/tmp/out", 0o100_644),
        ("link", 0o120_777),
        ("su", 0o104_755),
    ] {
        let error = unpack(
            &archive(&[("good", 0o100_644, b"x"), (name, mode, b"/etc")]),
            &target,
        )
        .unwrap_err();
        assert!(matches!(error, TransferError::Refused(_)), "{error}");
        assert!(!target.exists(), "{name}");
    }
}

#[test]
fn no_file_is_written_when_the_archive_is_a_bomb() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    let zeros = vec![0; 64 << 20];
    let bomb: Vec<(String, Vec<u8>)> = (0..5)
        .map(|number| (number.to_string(), zeros.clone()))
        .collect();
    let bomb: Vec<(&str, u32, &[u8])> = bomb
        .iter()
        .map(|(name, content)| (name.as_str(), 0o644, content.as_slice()))
        .collect();
    let error = unpack(&archive(&bomb), &target).unwrap_err();
    assert!(matches!(error, TransferError::TooMuch(_)), "{error}");
    assert!(!target.exists());
}

#[test]
fn no_partial_file_is_left_when_an_entry_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArchiveWriter::new(&mut bytes);
    writer.add("a", 0o644, &mut &b"content"[..]).unwrap();
    writer.finish().unwrap();
    let directory = bytes
        .windows(4)
        .position(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    bytes[directory + 16] ^= 1;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let error = unpack(&file, dir.path()).unwrap_err();
    assert!(matches!(error, TransferError::Refused(_)), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
