//! Documents that were changed outside of the program, and other keys.

use storage::{SealedDocuments, SealedError};

use crate::{Fixture, content, open, read};

async fn with_document() -> (Fixture, SealedDocuments) {
    let fixture = Fixture::new();
    let documents = fixture.open().await;
    documents.write("a", 0, content("content")).await.unwrap();
    documents.write("b", 0, content("other")).await.unwrap();
    (fixture, documents)
}

#[tokio::test]
async fn document_is_damaged_when_any_of_its_bytes_differs() {
    let (fixture, documents) = with_document().await;
    let original = documents.read("a").await.unwrap();
    assert!(original.is_some());
    // Nonce (12 bytes), encrypted content (7) and tag (16).
    for index in 1..=12 + 7 + 16 {
        fixture.tamper(&format!(
            "CREATE TABLE kept AS SELECT sealed FROM documents WHERE name = 'a';
             UPDATE documents SET sealed = CAST(substr(sealed, 1, {index} - 1)
                 || iif(substr(sealed, {index}, 1) = x'00', x'01', x'00') || substr(sealed, {index} + 1) AS BLOB)
                 WHERE name = 'a';"
        ));
        let error = documents.read("a").await.unwrap_err();
        assert!(
            matches!(&error, SealedError::Damaged { name, .. } if name == "a"),
            "byte {index}: {error}"
        );
        fixture.tamper(
            "UPDATE documents SET sealed = (SELECT sealed FROM kept) WHERE name = 'a'; DROP TABLE kept;",
        );
        assert_eq!(read(&documents, "a").await, Some((1, "content".to_owned())));
    }
}

#[tokio::test]
async fn document_is_damaged_when_a_column_differs() {
    for change in [
        "UPDATE documents SET revision = 2 WHERE name = 'a'",
        "UPDATE documents SET revision = -1 WHERE name = 'a'",
        "UPDATE documents SET sealed = (SELECT sealed FROM documents WHERE name = 'b') WHERE name = 'a'",
        "UPDATE documents SET sealed = x'' WHERE name = 'a'",
        "UPDATE documents SET sealed = substr(sealed, 1, 20) WHERE name = 'a'",
        "UPDATE documents SET sealed = zeroblob(20000000) WHERE name = 'a'",
        "DELETE FROM documents WHERE name = 'a'; UPDATE documents SET name = 'a' WHERE name = 'b'",
    ] {
        let (fixture, documents) = with_document().await;
        fixture.tamper(change);
        let error = documents.read("a").await.unwrap_err();
        assert!(
            matches!(error, SealedError::Damaged { .. }),
            "{change}: {error}"
        );
        // Neither the error nor its causes disclose a content.
        assert!(
            !format!("{error:?}").contains("content\"") && !format!("{error:?}").contains("other"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn file_of_another_key_is_refused_at_the_start() {
    let (fixture, documents) = with_document().await;
    drop(documents);
    let error = open(fixture.file(), "another key").await.unwrap_err();
    assert!(matches!(error, SealedError::WrongKey(_)), "{error}");
    assert!(error.to_string().contains("another key"), "{error}");
    // The attempt has changed nothing.
    assert_eq!(
        read(&fixture.open().await, "a").await,
        Some((1, "content".to_owned()))
    );
}

#[tokio::test]
async fn document_of_another_key_is_refused_when_it_is_read() {
    let (fixture, documents) = with_document().await;
    fixture.tamper("UPDATE documents SET key_id = x'0011223344556677' WHERE name = 'a'");
    let error = documents.read("a").await.unwrap_err();
    assert!(matches!(error, SealedError::WrongKey(_)), "{error}");
    assert_eq!(read(&documents, "b").await, Some((1, "other".to_owned())));
}

#[tokio::test]
async fn file_that_is_no_database_is_an_error() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.file().parent().unwrap()).unwrap();
    std::fs::write(
        fixture.file(),
        "not a database, but long enough to be looked at".repeat(100),
    )
    .unwrap();
    let error = open(fixture.file(), "the operator's key")
        .await
        .unwrap_err();
    assert!(matches!(error, SealedError::Open(_)), "{error}");
}
