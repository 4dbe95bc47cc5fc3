//! Copies of documents to another file, without decrypting them.

use secrecy::SecretString;
use storage::{
    AddedDocument, EncryptedDocument, EncryptedDocuments, SealedDocuments, SealedError, SealingKey,
    UpdatedDocument,
};

use super::{Fixture, content, open, read};

async fn all(fixture: &Fixture) -> Vec<EncryptedDocument> {
    let documents = EncryptedDocuments::open(fixture.file()).await.unwrap();
    let mut all: Vec<EncryptedDocument> = Vec::new();
    loop {
        let page = documents
            .page(all.last().map_or("", |last| &last.name))
            .await
            .unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

#[tokio::test]
async fn copied_document_is_read_and_replaces_no_other() {
    let (source, target) = (Fixture::new(), Fixture::new());
    let documents = source.open().await;
    // More than a page.
    for number in 0..40 {
        documents
            .write(&format!("users/{number:02}"), 0, content("old"))
            .await
            .unwrap();
        documents
            .write(&format!("users/{number:02}"), 1, content("needle"))
            .await
            .unwrap();
    }
    let copies = all(&source).await;
    assert!(
        copies
            .iter()
            .map(|copy| copy.name.clone())
            .eq((0..40).map(|number| format!("users/{number:02}")))
    );
    assert!(
        copies
            .iter()
            .all(|copy| !copy.sealed.windows(6).any(|window| window == b"needle"))
    );
    let documents = target.open().await;
    documents
        .write("users/39", 0, content("own"))
        .await
        .unwrap();
    for (expected, last) in [(AddedDocument::Added, 39), (AddedDocument::Exists, 39)] {
        for copy in &copies[..last] {
            assert_eq!(
                documents.add(copy).await.unwrap(),
                expected,
                "{}",
                copy.name
            );
        }
    }
    assert_eq!(
        documents.add(&copies[39]).await.unwrap(),
        AddedDocument::Differs
    );
    assert_eq!(
        read(&documents, "users/00").await,
        Some((2, "needle".to_owned()))
    );
    assert_eq!(
        read(&documents, "users/39").await,
        Some((1, "own".to_owned()))
    );
    documents
        .write("users/00", 2, content("new"))
        .await
        .unwrap();
    assert_eq!(
        documents.add(&copies[0]).await.unwrap(),
        AddedDocument::Differs
    );
}

/// Copies a document of one file into another one, and back.
#[tokio::test]
async fn copied_document_is_replaced_until_both_change() {
    let (source, target) = (Fixture::new(), Fixture::new());
    let (ours, theirs) = (source.open().await, target.open().await);
    let update = async |from: &Fixture, to: &SealedDocuments| {
        let [copy] = all(from).await.try_into().unwrap();
        let encrypted = EncryptedDocuments::open(from.file()).await.unwrap();
        let copied = encrypted.copied_revision("a").await.unwrap();
        to.update(&copy, copied).await.unwrap()
    };
    ours.write("a", 0, content("first")).await.unwrap();
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Added);
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Exists);
    ours.write("a", 1, content("second")).await.unwrap();
    ours.write("a", 2, content("third")).await.unwrap();
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Replaced);
    assert_eq!(read(&theirs, "a").await, Some((3, "third".to_owned())));
    // Only the target has changed.
    theirs.write("a", 3, content("fourth")).await.unwrap();
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Exists);
    assert_eq!(update(&target, &ours).await, UpdatedDocument::Replaced);
    assert_eq!(read(&ours, "a").await, Some((4, "fourth".to_owned())));
    ours.write("a", 4, content("fifth")).await.unwrap();
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Replaced);
    // Both have changed, and one of them more often.
    ours.write("a", 5, content("ours")).await.unwrap();
    theirs.write("a", 5, content("theirs")).await.unwrap();
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Differs);
    ours.write("a", 6, content("ours")).await.unwrap();
    assert_eq!(update(&source, &theirs).await, UpdatedDocument::Differs);
    assert_eq!(read(&theirs, "a").await, Some((6, "theirs".to_owned())));
}

#[tokio::test]
async fn copy_is_refused_when_it_was_changed_or_has_another_key() {
    let (source, target) = (Fixture::new(), Fixture::new());
    source
        .open()
        .await
        .write("a", 0, content("content"))
        .await
        .unwrap();
    let [copy] = all(&source).await.try_into().unwrap();
    let other = open(target.file(), "the key of another operator")
        .await
        .unwrap();
    let error = other.add(&copy).await.unwrap_err();
    assert!(matches!(error, SealedError::WrongKey(_)), "{error}");
    let key = SealingKey::new(&SecretString::from("the operator's key"));
    key.check(&copy).unwrap();
    let mut sealed = copy.sealed.clone();
    sealed[20] ^= 1;
    for changed in [
        EncryptedDocument {
            name: "b".to_owned(),
            ..copy.clone()
        },
        EncryptedDocument {
            revision: 2,
            ..copy.clone()
        },
        EncryptedDocument {
            sealed,
            ..copy.clone()
        },
        EncryptedDocument {
            sealed: Vec::new(),
            ..copy.clone()
        },
    ] {
        let error = key.check(&changed).unwrap_err();
        assert!(matches!(error, SealedError::Damaged { .. }), "{error}");
    }
    for large in [
        EncryptedDocument {
            sealed: vec![0; 2 << 20],
            ..copy.clone()
        },
        EncryptedDocument {
            name: "ö".repeat(300),
            ..copy
        },
    ] {
        let error = key.check(&large).unwrap_err();
        assert!(matches!(error, SealedError::TooLarge { .. }), "{error}");
    }
}
