//! Sealed documents as their users see them: their file, damage, other keys, concurrent writers,
//! dying.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod copies;
mod crash;
mod damage;
mod writers;

use std::path::PathBuf;

use rusqlite::Connection;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use storage::{SealedDocuments, SealedError, SealingKey};
use tempfile::TempDir;

/// A file of documents in a temporary folder.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Path of the file, in a folder that is created with it.
    fn file(&self) -> PathBuf {
        self.0.path().join("state/settings.db")
    }

    async fn open(&self) -> SealedDocuments {
        open(self.file(), "the operator's key").await.unwrap()
    }

    /// Runs SQL on the file without the store.
    fn tamper(&self, sql: &str) {
        Connection::open(self.file())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }
}

async fn open(file: PathBuf, secret: &str) -> Result<SealedDocuments, SealedError> {
    SealedDocuments::open(file, SealingKey::new(&SecretString::from(secret))).await
}

fn content(text: &str) -> SecretSlice<u8> {
    text.as_bytes().to_vec().into()
}

/// Returns the revision and the text of a document.
async fn read(documents: &SealedDocuments, name: &str) -> Option<(u64, String)> {
    let document = documents.read(name).await.unwrap()?;
    Some((
        document.revision,
        String::from_utf8(document.content.expose_secret().to_vec()).unwrap(),
    ))
}

#[tokio::test]
async fn document_is_read_as_written_and_after_a_restart() {
    let fixture = Fixture::new();
    let documents = fixture.open().await;
    assert_eq!(read(&documents, "a").await, None);
    documents.write("a", 0, content("one")).await.unwrap();
    documents.write("b", 0, content("")).await.unwrap();
    documents.write("a", 1, content("two")).await.unwrap();
    drop(documents);
    let documents = fixture.open().await;
    assert_eq!(read(&documents, "a").await, Some((2, "two".to_owned())));
    assert_eq!(read(&documents, "b").await, Some((1, String::new())));
}

#[tokio::test]
async fn no_file_contains_a_content_and_only_the_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let documents = fixture.open().await;
    for revision in 0..3 {
        documents
            .write("a", revision, content("a needle in the file"))
            .await
            .unwrap();
        for entry in std::fs::read_dir(fixture.file().parent().unwrap()).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !bytes.windows(6).any(|window| window == b"needle"),
                "{}",
                path.display()
            );
            assert_eq!(
                path.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                path.display()
            );
        }
    }
}

#[tokio::test]
async fn content_and_name_are_bounded() {
    let fixture = Fixture::new();
    let documents = fixture.open().await;
    let largest = "x".repeat(storage::sealed::MAX_CONTENT_BYTES);
    documents.write("a", 0, content(&largest)).await.unwrap();
    assert_eq!(read(&documents, "a").await.unwrap().1, largest);
    let error = documents
        .write("a", 1, content(&format!("{largest}x")))
        .await
        .unwrap_err();
    assert!(matches!(error, SealedError::TooLarge { .. }), "{error}");
    let long = "ö".repeat(storage::sealed::MAX_NAME_BYTES);
    let error = documents.write(&long, 0, content("x")).await.unwrap_err();
    assert!(matches!(error, SealedError::TooLarge { .. }), "{error}");
    assert_eq!(read(&documents, "a").await.unwrap().0, 1);
}
