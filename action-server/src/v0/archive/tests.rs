//! Archives that are written can be read, and invalid ones are rejected.

use std::fs::File;
use std::io::{Read as _, Write as _};

use proptest::prelude::*;

use super::{ArchiveDirectory, ArchiveEntryKind, ArchiveError, ArchiveWriter, EntryReader};
use crate::skip::{Requirement, skip};

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn written(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut archive = ArchiveWriter::new(&mut bytes);
    files
        .iter()
        .for_each(|(name, mode, content)| archive.add(name, *mode, &mut &content[..]).unwrap());
    archive.finish().unwrap();
    bytes
}

/// Reads all entries.
fn read(bytes: &[u8]) -> Result<Vec<(String, ArchiveEntryKind, Vec<u8>)>, ArchiveError> {
    let directory = ArchiveDirectory::read(&file(bytes))?;
    let read = |entry: &super::ArchiveEntry| {
        let mut content = Vec::new();
        EntryReader::open(&directory, entry)?.read_to_end(&mut content)?;
        Ok((
            String::from_utf8_lossy(&entry.name).into_owned(),
            entry.kind,
            content,
        ))
    };
    directory.entries.iter().map(read).collect()
}

#[test]
fn written_archive_is_read_back() {
    let long = b"0123456789".repeat(100_000);
    let bytes = written(&[
        ("a/é", 0o100_755, b"x"),
        ("empty", 0o100_600, b""),
        ("long", 0, &long),
    ]);
    assert!(bytes.len() < 20_000, "it is compressed");
    let mode = |mode| ArchiveEntryKind::File { mode };
    assert_eq!(
        read(&bytes).unwrap(),
        [
            ("a/é".into(), mode(Some(0o755)), b"x".to_vec()),
            ("empty".into(), mode(Some(0o600)), vec![]),
            ("long".into(), mode(None), long)
        ]
    );
}

#[test]
fn archive_is_read_back_when_it_has_more_than_65535_entries() {
    let names: Vec<String> = (0..70_000).map(|number| number.to_string()).collect();
    let files: Vec<(&str, u32, &[u8])> = names
        .iter()
        .map(|name| (name.as_str(), 0o644, &b""[..]))
        .collect();
    assert_eq!(
        ArchiveDirectory::read(&file(&written(&files)))
            .unwrap()
            .entries
            .len(),
        70_000
    );
}

#[test]
fn other_programs_read_a_written_archive() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("a.zip");
    std::fs::write(
        &archive,
        written(&[("b/c d", 0o644, b"content\n"), ("e", 0o755, b"")]),
    )
    .unwrap();
    let readers: [&[&str]; 3] = [
        &["python3", "-m", "zipfile", "-e"],
        &["unzip"],
        &["busybox", "unzip"],
    ];
    let read = readers.iter().filter_map(|reader| {
        let mut command = std::process::Command::new(reader[0]);
        command
            .args(&reader[1..])
            .arg(&archive)
            .current_dir(dir.path());
        if reader[0] == "python3" {
            command.arg(".");
        }
        command
            .output()
            .ok()
            .map(|output| assert!(output.status.success(), "{output:?}"))
    });
    if read.take(1).next().is_none() {
        return skip(
            Requirement::Program("unzip"),
            "neither unzip nor busybox nor python3 was found",
        );
    }
    assert_eq!(
        std::fs::read(dir.path().join("b/c d")).unwrap(),
        b"content\n"
    );
}

/// Overwrites bytes in the directory of an archive with one entry.
fn with(patch: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = written(&[("abcd", 0o100_644, b"some content")]);
    let at = bytes
        .windows(4)
        .position(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    for (offset, patch) in patch {
        bytes[at + offset..at + offset + patch.len()].copy_from_slice(patch);
    }
    bytes
}

fn problem(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn hostile_entry_is_rejected() {
    let mode = |mode: u32| with(&[(38, &(mode << 16).to_le_bytes())]);
    assert!(read(&with(&[])).is_ok());
    for (name, expected) in [
        ("/bcd", "absolute"),
        ("../d", "leads out"),
        ("a/..", "leads out"),
        ("a//b", "empty parts"),
        ("./ab", "empty parts"),
        ("ab\0d", "no file can have"),
    ] {
        let error = problem(&with(&[(46, name.as_bytes())]));
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    for (bits, expected) in [
        (0o120_777, "a link"),
        (0o020_644, "neither"),
        (0o060_644, "neither"),
        (0o010_644, "neither"),
        (0o140_644, "neither"),
        (0o104_755, "setuid"),
        (0o102_755, "setuid"),
        (0o040_755, "neither"),
    ] {
        let error = problem(&mode(bits));
        assert!(
            error.contains(expected) && error.contains("abcd"),
            "{bits:o}: {error}"
        );
    }
    assert!(problem(&with(&[(8, &[1])])).contains("encrypted"));
    assert!(problem(&with(&[(10, &[14])])).contains("deflate"));
}

#[test]
fn archive_is_rejected_when_its_directory_is_wrong() {
    assert!(problem(&with(&[(24, &[3])])).contains("longer"));
    assert!(problem(&with(&[(24, &[13])])).contains("shorter"));
    assert!(problem(&with(&[(16, &[0; 4])])).contains("checksum"));
    assert!(problem(&with(&[(42, &[1])])).contains("not at its recorded offset"));
    assert!(
        problem(&with(&[(42, &[0xff, 0xff, 0xff, 0x7f])])).contains("not at its recorded offset")
    );
    assert!(
        problem(&with(&[(20, &[0xff, 0xff, 0xff, 0x7f])])).contains("not at its recorded offset")
    );
    assert!(problem(&with(&[(42, &[0xff; 4])])).contains("no length"));
    assert!(problem(b"").contains("too short"));
    assert!(problem(&[0; 1000]).contains("no directory"));
}

#[test]
fn oversized_directory_is_rejected_without_allocation() {
    // States 2^40 entries in a directory of 2^46 bytes.
    let mut bytes = b"PK\x06\x06".to_vec();
    bytes.extend(44_u64.to_le_bytes());
    bytes.extend([0; 12]);
    bytes.extend((1_u64 << 40).to_le_bytes());
    for value in [1_u64 << 40, 1 << 46, 0] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(b"PK\x06\x07");
    bytes.extend([0; 12]);
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(b"PK\x05\x06");
    bytes.extend([0, 0, 0, 0]);
    bytes.extend([0xff; 12]);
    bytes.extend([0, 0]);
    assert!(matches!(read(&bytes), Err(ArchiveError::TooManyEntries(_))));
}

proptest! {
    #[test]
    fn damaged_archive_is_an_error_and_never_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = written(&[("a/b", 0o100_644, b"some some some content"), ("c", 0o100_600, b"more")]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = read(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(read(&bytes).is_err());
    }
}
