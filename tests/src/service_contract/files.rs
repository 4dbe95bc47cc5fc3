//! Files of workspaces.

use std::collections::BTreeMap;
use std::io::Cursor;

use conversations::ServiceErrorKind::{Conflict, Denied, Invalid, NotFound};
use conversations::{ByteSource, ServiceError, ServiceErrorKind, WorkspaceService};
use protocol::ConversationId;
use protocol::client_api::v2::files::{
    ArchiveFolder, FilePath, ListFiles, MoveFile, ReadFile, RemoveFile,
};
use protocol::sandbox_api::FileKind;
use tokio::io::AsyncReadExt as _;

use super::{ServiceBackend, asked, kind};

fn path(path: &str) -> FilePath {
    FilePath {
        path: path.to_owned(),
    }
}

fn content(bytes: &[u8]) -> ByteSource {
    Box::new(Cursor::new(bytes.to_vec()))
}

fn renaming(from: &str, to: &str) -> MoveFile {
    MoveFile {
        from: from.to_owned(),
        to: to.to_owned(),
        overwrite: false,
    }
}

/// Writes a text file.
async fn write(
    files: &dyn WorkspaceService,
    id: &ConversationId,
    name: &str,
    text: &str,
) -> Result<(), ServiceError> {
    files
        .write_file(id, path(name), content(text.as_bytes()))
        .await
}

/// Reads a part of a file.
async fn read(
    files: &dyn WorkspaceService,
    id: &ConversationId,
    name: &str,
    (offset, length): (u64, Option<u64>),
) -> Result<Vec<u8>, ServiceError> {
    let request = ReadFile {
        path: name.to_owned(),
        offset,
        length,
    };
    let mut bytes = Vec::new();
    let mut content = files.read_file(id, request).await?;
    content.read_to_end(&mut bytes).await.unwrap();
    Ok(bytes)
}

/// Lists the names in a folder, page by page.
async fn names(
    files: &dyn WorkspaceService,
    id: &ConversationId,
    folder: &str,
    limit: usize,
) -> Result<Vec<String>, ServiceError> {
    let mut request = ListFiles {
        path: folder.to_owned(),
        after: None,
        limit,
    };
    let mut names = Vec::new();
    loop {
        let page = files.list_files(id, request.clone()).await?;
        assert!(page.entries.len() <= limit && !page.is_truncated);
        names.extend(page.entries.into_iter().map(|entry| entry.name));
        request.after = page.next;
        if request.after.is_none() {
            return Ok(names);
        }
    }
}

async fn remove(
    files: &dyn WorkspaceService,
    id: &ConversationId,
    name: &str,
    recursive: bool,
) -> Result<(), ServiceError> {
    let request = RemoveFile {
        path: name.to_owned(),
        recursive,
    };
    files.remove_file(id, request).await
}

/// Files of any content and length are written and read, as a whole and in parts, and listed.
pub async fn files_are_written_read_and_listed(backend: &dyn ServiceBackend) {
    let (service, files) = (
        backend.service(Some("ada")),
        backend.workspaces(Some("ada")),
    );
    let (id, files) = (asked(service.as_ref()).await, files.as_ref());
    let long: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    files
        .write_file(&id, path("new/deep/a b.bin"), content(&long))
        .await
        .unwrap();
    for (part, expected) in [
        ((0, None), &long[..]),
        ((1_000, Some(5)), &long[1_000..1_005]),
        ((2_999_999, None), &long[2_999_999..]),
        ((2_999_990, Some(100)), &long[2_999_990..]),
        ((3_000_000, None), &[]),
        ((5, Some(0)), &[]),
        ((u64::MAX, Some(u64::MAX)), &[]),
    ] {
        let bytes = read(files, &id, "new/./deep/a b.bin", part).await.unwrap();
        assert!(bytes == expected, "{part:?}: {} bytes", bytes.len());
    }
    for name in ["new/.hidden", "new/é", "new/empty"] {
        write(files, &id, name, "").await.unwrap();
    }
    write(files, &id, "new/empty", "replaced").await.unwrap();
    let expected = [".hidden", "deep", "empty", "é"];
    for limit in [1, 3, 4, 1000] {
        assert_eq!(names(files, &id, "new", limit).await.unwrap(), expected);
    }
    let request = ListFiles {
        path: "new/".to_owned(),
        ..ListFiles::default()
    };
    let page = files.list_files(&id, request).await.unwrap();
    let entries = page.entries.into_iter();
    let entries: BTreeMap<_, _> = entries.map(|entry| (entry.name.clone(), entry)).collect();
    assert_eq!(entries["deep"].kind, FileKind::Directory);
    let empty = &entries["empty"];
    assert_eq!((empty.kind, empty.size), (FileKind::File, 8));
    assert!(empty.modified_ms > 1_700_000_000_000);
    for (result, expected) in [
        (names(files, &id, "new/empty", 1).await.map(drop), Invalid),
        (names(files, &id, "none", 1).await.map(drop), NotFound),
        (names(files, &id, "", 0).await.map(drop), Invalid),
        (names(files, &id, "", 1001).await.map(drop), Invalid),
        (read(files, &id, "new", (0, None)).await.map(drop), Invalid),
        (
            read(files, &id, "none", (0, None)).await.map(drop),
            NotFound,
        ),
        (write(files, &id, "new/deep", "").await, Invalid),
        (write(files, &id, "new/empty/x", "").await, Conflict),
    ] {
        assert_eq!(kind(result), expected);
    }
    service.delete(&id).await.unwrap();
}

/// Folders are created, and files moved and removed; nothing is replaced or removed by mistake.
pub async fn files_are_moved_and_removed(backend: &dyn ServiceBackend) {
    let (service, files) = (
        backend.service(Some("ada")),
        backend.workspaces(Some("ada")),
    );
    let (id, files) = (asked(service.as_ref()).await, files.as_ref());
    for _ in 0..2 {
        files.make_folder(&id, path("one/two")).await.unwrap();
    }
    write(files, &id, "one/a", "a").await.unwrap();
    write(files, &id, "one/b", "b").await.unwrap();
    assert_eq!(kind(files.make_folder(&id, path("one/a")).await), Conflict);
    files
        .move_file(&id, renaming("one/a", "other/c"))
        .await
        .unwrap();
    let replacing = renaming("one/b", "other/c");
    assert_eq!(
        kind(files.move_file(&id, replacing.clone()).await),
        Conflict
    );
    assert_eq!(read(files, &id, "other/c", (0, None)).await.unwrap(), b"a");
    let overwrite = MoveFile {
        overwrite: true,
        ..replacing
    };
    files.move_file(&id, overwrite.clone()).await.unwrap();
    assert_eq!(read(files, &id, "other/c", (0, None)).await.unwrap(), b"b");
    assert_eq!(kind(files.move_file(&id, overwrite).await), NotFound);
    let into_itself = files.move_file(&id, renaming("other", "other/other"));
    assert_eq!(kind(into_itself.await), Conflict);
    assert_eq!(names(files, &id, "one", 10).await.unwrap(), ["two"]);
    assert_eq!(kind(remove(files, &id, "other", false).await), Conflict);
    remove(files, &id, "one/two", false).await.unwrap();
    remove(files, &id, "other/", true).await.unwrap();
    for name in ["other", "other/c", "one/a"] {
        assert_eq!(
            kind(remove(files, &id, name, true).await),
            NotFound,
            "{name}"
        );
    }
    service.delete(&id).await.unwrap();
}

/// A folder is packed, and nothing else.
pub async fn archive_has_the_files_of_a_folder(backend: &dyn ServiceBackend) {
    let (service, files) = (
        backend.service(Some("ada")),
        backend.workspaces(Some("ada")),
    );
    let (id, files) = (asked(service.as_ref()).await, files.as_ref());
    write(files, &id, "packed/inside", "x").await.unwrap();
    write(files, &id, "outside", "x").await.unwrap();
    let archive = async |path: &str| {
        let path = path.to_owned();
        let mut packed = Vec::new();
        let mut content = files.archive_folder(&id, ArchiveFolder { path }).await?;
        content.read_to_end(&mut packed).await.unwrap();
        Ok(packed)
    };
    let has = |packed: &[u8], name: &str| packed.windows(name.len()).any(|n| n == name.as_bytes());
    let (folder, all) = (archive("packed").await.unwrap(), archive("").await.unwrap());
    assert!(folder.starts_with(b"PK") && has(&folder, "inside") && !has(&folder, "outside"));
    assert!(has(&all, "packed/inside") && has(&all, "outside"));
    assert_eq!(kind::<Vec<u8>>(archive("outside").await), Invalid);
    assert_eq!(kind::<Vec<u8>>(archive("none").await), NotFound);
    service.delete(&id).await.unwrap();
}

/// No request reaches a file outside of the workspace, or in the conversation of another user.
pub async fn files_of_others_are_not_reached(backend: &dyn ServiceBackend) {
    let (service, files) = (
        backend.service(Some("ada")),
        backend.workspaces(Some("ada")),
    );
    let (id, files) = (asked(service.as_ref()).await, files.as_ref());
    write(files, &id, "own", "own").await.unwrap();
    for outside in ["../x", "/etc/passwd", "a/../../x"] {
        check_all(files, &id, outside, Denied).await;
    }
    for invalid in ["..", ".", "/", ""] {
        let results = [
            remove(files, &id, invalid, true).await,
            files.move_file(&id, renaming(invalid, "new")).await,
            files.move_file(&id, renaming("own", invalid)).await,
        ];
        for result in results {
            assert_eq!(kind(result), Invalid, "{invalid:?}");
        }
    }
    check_all(files, &id, "a\0b", Invalid).await;
    let ben = backend.workspaces(Some("ben"));
    check_all(ben.as_ref(), &id, "own", NotFound).await;
    let unknown = "0190b1c2-7d3e-7f00-8000-0123456789ab".parse().unwrap();
    check_all(ben.as_ref(), &unknown, "own", NotFound).await;
    let operator = backend.workspaces(None);
    let own = read(operator.as_ref(), &id, "own", (0, None)).await;
    assert_eq!(own.unwrap(), b"own", "nothing has changed");
    service.delete(&id).await.unwrap();
}

/// Checks that all requests fail for a path.
async fn check_all(
    files: &dyn WorkspaceService,
    id: &ConversationId,
    name: &str,
    expected: ServiceErrorKind,
) {
    let archive = ArchiveFolder {
        path: name.to_owned(),
    };
    let results = [
        names(files, id, name, 10).await.map(drop),
        read(files, id, name, (0, None)).await.map(drop),
        read(files, id, name, (1, Some(1))).await.map(drop),
        write(files, id, name, "x").await,
        files.make_folder(id, path(name)).await,
        files.move_file(id, renaming(name, "new")).await,
        files.move_file(id, renaming("own", name)).await,
        remove(files, id, name, true).await,
        files.archive_folder(id, archive).await.map(drop),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert_eq!(kind(result), expected, "request {number} for {name:?}");
    }
}
