use std::path::Path;

use protocol::sandbox_api::SkippedEntries;
use tokio::io::AsyncReadExt as _;

use super::*;

/// An archive of a sandbox. Names are written as they are.
fn tree(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (kind, name, content) in entries {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        if *kind == EntryType::Symlink {
            header.set_link_name_literal(content).unwrap();
            header.set_size(0);
            header.set_cksum();
            archive.append(&header, io::empty()).unwrap();
        } else {
            header.set_size(content.len() as u64);
            header.set_cksum();
            archive.append(&header, *content).unwrap();
        }
    }
    archive.into_inner().unwrap()
}

/// Converts an archive. Returns the parts up to the error, if there is one.
async fn convert(tree: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut packed = zip(Box::new(Cursor::new(tree))).await?;
    packed.read_to_end(&mut archive).await?;
    Ok(archive)
}

#[tokio::test]
async fn links_out_of_the_folder_are_left_out() {
    let link = |target: &'static str| (EntryType::Symlink, "a/link", target.as_bytes());
    for (target, is_kept) in [
        ("../b", true),
        ("b/../../c", true),
        ("../../b", false),
        ("/b", false),
        ("b/../../../a/c", false),
    ] {
        let archive = convert(tree(&[(EntryType::Regular, "a/b", b"x"), link(target)]))
            .await
            .unwrap();
        let has_link = archive.windows(6).any(|name| name == b"a/link");
        assert_eq!(has_link, is_kept, "{target}");
    }
}

#[tokio::test]
async fn entry_outside_of_the_folder_is_an_error() {
    for name in ["../x", "a/../../x", "/x"] {
        let error = convert(tree(&[(EntryType::Regular, name, b"x")]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}");
    }
}

#[tokio::test]
async fn comment_names_entries_that_the_sandbox_leaves_out() {
    let mut skipped = SkippedEntries::default();
    skipped.add(Path::new("a/secret"), "Permission denied");
    let incomplete = Err(io::Error::other(IncompleteArchive(skipped)));
    let tree = tree(&[(EntryType::Regular, "b", b"x")]);
    let parts = stream::iter([Ok(Cursor::new(tree)), incomplete]);
    let mut archive = Vec::new();
    let packed = zip(Box::new(StreamReader::new(parts))).await;
    packed.unwrap().read_to_end(&mut archive).await.unwrap();
    assert!(archive.ends_with(b"such as a/secret: Permission denied"));
}

#[tokio::test]
async fn archive_that_is_cut_is_an_error() {
    let whole = tree(&[
        (EntryType::Regular, "a", &[7; 3000]),
        (EntryType::Regular, "b", b"x"),
    ]);
    assert!(convert(whole.clone()).await.is_ok());
    for length in [100, 600, 3000, 4000] {
        assert!(convert(whole[..length].to_vec()).await.is_err(), "{length}");
    }
}
