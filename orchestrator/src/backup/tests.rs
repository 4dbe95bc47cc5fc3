use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::*;

/// A backup with two conversations and a user.
fn backup() -> Vec<u8> {
    let mut writer = BackupWriter::new(Vec::new(), "2026-01-01T00:00:00Z".to_owned()).unwrap();
    let id = "c".repeat(128);
    for (part, lines) in [
        (BackupPart::Conversation("one".parse().unwrap()), 3),
        (BackupPart::Conversation(id.parse().unwrap()), 60),
        (BackupPart::Users, 1),
    ] {
        let mut content = PartWriter::new(part, Path::new("/nonexistent"));
        (0..lines).for_each(|line| content.push(&json!({"line": line})).unwrap());
        writer.add(content, || Ok(())).unwrap();
    }
    let (bytes, counts) = writer.finish().unwrap();
    assert_eq!(
        counts,
        BackupCounts {
            conversations: 2,
            events: 63,
            users: 1,
            ..BackupCounts::default()
        }
    );
    bytes
}

/// Reads a whole backup. Returns the path and the lines of each part.
fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<Value>)>, BackupError> {
    let mut reader = BackupReader::new(bytes);
    let (_, mut parts) = reader.parts()?;
    let mut found = Vec::new();
    while let Some((part, mut lines)) = parts.next()? {
        let mut values = Vec::new();
        while let Some(value) = lines.next()? {
            values.push(value);
        }
        parts.count(&part, lines.number());
        found.push((part.path(), values));
    }
    parts.checked_counts()?;
    drop(parts);
    reader.check_end()?;
    Ok(found)
}

/// Compresses an archive with these entries.
fn archive(entries: &[(&str, tar::EntryType, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, kind, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_path(path).unwrap();
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn format(version: u32) -> Vec<u8> {
    json!({"format": FORMAT_NAME, "version": version, "created_at": "", "glovebox": "9"})
        .to_string()
        .into()
}

#[test]
fn backup_is_read_as_it_was_written() {
    let parts = read(&backup()).unwrap();
    let paths: Vec<_> = parts.iter().map(|(path, _)| path.as_str()).collect();
    let long = format!("conversations/{}/events.jsonl", "c".repeat(128));
    assert_eq!(
        paths,
        ["conversations/one/events.jsonl", &long, "users.jsonl"]
    );
    assert!(
        parts[1].1.iter().eq(&(0..60)
            .map(|line| json!({"line": line}))
            .collect::<Vec<_>>())
    );
}

#[test]
fn backup_is_refused_when_it_is_truncated_or_altered() {
    let whole = backup();
    for length in 0..whole.len() {
        assert!(
            read(&whole[..length]).is_err(),
            "{length} bytes of {}",
            whole.len()
        );
    }
    // A few bits have no meaning for the content: the time in the header of gzip, lengths of codes
    // that are not used.
    let (expected, mut unnoticed) = (read(&whole).unwrap(), 0);
    for index in 0..whole.len() {
        let mut altered = whole.clone();
        altered[index] ^= 0x10;
        if let Ok(parts) = read(&altered) {
            assert_eq!(parts, expected, "byte {index}");
            unnoticed += 1;
        }
    }
    assert!(
        unnoticed < whole.len() / 10,
        "{unnoticed} of {}",
        whole.len()
    );
    let longer = [whole.as_slice(), b"x"].concat();
    assert!(matches!(read(&longer), Err(BackupError::Mismatch)));
}

#[test]
fn content_is_refused_when_only_the_manifest_differs() {
    use std::io::Read as _;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(backup().as_slice())
        .read_to_end(&mut plain)
        .unwrap();
    let changed = String::from_utf8(plain)
        .unwrap()
        .replace("\"line\":2}", "\"line\":7}");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(changed.as_bytes()).unwrap();
    assert!(matches!(
        read(&encoder.finish().unwrap()),
        Err(BackupError::Mismatch)
    ));
}

#[test]
fn file_is_refused_when_it_is_no_backup_or_newer() {
    let regular = tar::EntryType::Regular;
    for no_backup in [
        b"".to_vec(),
        b"text".to_vec(),
        archive(&[]),
        archive(&[("users.jsonl", regular, vec![])]),
        archive(&[("format.json", tar::EntryType::Symlink, format(1))]),
    ] {
        assert!(matches!(read(&no_backup), Err(BackupError::NoBackup)));
    }
    let newer = read(&archive(&[(
        "format.json",
        regular,
        format(FORMAT_VERSION + 1),
    )]));
    assert!(
        matches!(newer, Err(BackupError::TooNew { found: 2 })),
        "{newer:?}"
    );
}

#[test]
fn entry_is_refused_when_it_is_none_of_a_backup() {
    use tar::EntryType::{Directory, GNULongName, Link, Regular, Symlink, XHeader};
    let first = ("format.json", Regular, format(FORMAT_VERSION));
    for (path, kind) in [
        ("conversations/../events.jsonl", Regular),
        ("conversations/.x/events.jsonl", Regular),
        ("conversations//events.jsonl", Regular),
        ("conversations/a/b/events.jsonl", Regular),
        ("conversations/a", Directory),
        ("conversations/a/events.jsonl", Symlink),
        ("users.jsonl", Link),
        ("secrets-key", Regular),
        ("x", GNULongName),
        ("x", XHeader),
    ] {
        // Made by hand: tar refuses to write some of these paths.
        let bytes = if path.contains("..") || path.contains("//") {
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_cksum();
            let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            let mut description = tar::Header::new_ustar();
            description.set_path(first.0).unwrap();
            description.set_size(first.2.len() as u64);
            description.set_entry_type(Regular);
            description.set_cksum();
            builder.append(&description, first.2.as_slice()).unwrap();
            builder.append(&header, std::io::empty()).unwrap();
            builder.into_inner().unwrap().finish().unwrap()
        } else {
            archive(&[first.clone(), (path, kind, vec![])])
        };
        let result = read(&bytes);
        assert!(
            matches!(result, Err(BackupError::UnexpectedEntry(_))),
            "{path}: {result:?}"
        );
    }
    for repeated in [
        ["users.jsonl", "users.jsonl"],
        ["audit.jsonl", "keys.jsonl"],
    ] {
        let entries = repeated.map(|path| (path, Regular, vec![]));
        let result = read(&archive(&[&[first.clone()][..], &entries].concat()));
        assert!(
            matches!(result, Err(BackupError::UnexpectedEntry(_))),
            "{repeated:?}: {result:?}"
        );
    }
    let result = read(&archive(&[first, ("users.jsonl", Regular, vec![])]));
    assert!(
        matches!(result, Err(BackupError::Damaged(_))),
        "no manifest: {result:?}"
    );
}

#[test]
fn line_is_refused_when_it_is_too_long_or_incomplete() {
    let first = (
        "format.json",
        tar::EntryType::Regular,
        format(FORMAT_VERSION),
    );
    let long = vec![b' '; MAX_RECORD_BYTES + 2];
    for content in [b"{}".to_vec(), b"{}\n{".to_vec(), b"{\n".to_vec(), long] {
        let result = read(&archive(&[
            first.clone(),
            ("users.jsonl", tar::EntryType::Regular, content),
        ]));
        assert!(
            matches!(result, Err(BackupError::InvalidLine { .. })),
            "{result:?}"
        );
    }
}
