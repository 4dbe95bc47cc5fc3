//! Encrypted documents in the database.

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use storage::{
    AddedDocument, EncryptedDocument, PostgresStore, SealedDocuments, SealedError, SealingKey,
    UpdatedDocument,
};
use tests::postgres::TestDatabase;

use super::host;

async fn documents(host: &PostgresStore, key: &str) -> Result<SealedDocuments, SealedError> {
    host.documents(SealingKey::new(&SecretString::from(key)))
        .await
}

fn content(text: &str) -> SecretSlice<u8> {
    text.as_bytes().to_vec().into()
}

async fn read(documents: &SealedDocuments, name: &str) -> Option<(u64, String)> {
    let document = documents.read(name).await.unwrap()?;
    Some((
        document.revision,
        String::from_utf8(document.content.expose_secret().to_vec()).unwrap(),
    ))
}

#[tokio::test]
async fn document_of_one_host_is_read_by_another() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (first, second) = (host(&database).await, host(&database).await);
    let ours = documents(&first, "the key of the hosts").await.unwrap();
    let theirs = documents(&second, "the key of the hosts").await.unwrap();
    assert_eq!(read(&ours, "a").await, None);
    ours.write("a", 0, content("our needle")).await.unwrap();
    assert_eq!(read(&theirs, "a").await, Some((1, "our needle".to_owned())));
    for revision in [0, 2, u64::MAX] {
        let error = theirs
            .write("a", revision, content("theirs"))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, SealedError::Conflict(name) if name == "a"),
            "{error}"
        );
    }
    theirs.write("a", 1, content("theirs")).await.unwrap();
    assert_eq!(read(&ours, "a").await, Some((2, "theirs".to_owned())));
    ours.remove("a").await.unwrap();
    assert_eq!(read(&theirs, "a").await, None);
}

#[tokio::test]
async fn document_of_another_key_is_refused() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let host = host(&database).await;
    let ours = documents(&host, "the key of the hosts").await.unwrap();
    ours.write("a", 0, content("a needle")).await.unwrap();
    let error = documents(&host, "another key").await.unwrap_err();
    assert!(matches!(&error, SealedError::WrongKey(_)), "{error}");
    assert_eq!(
        database.execute("SELECT position('needle'::bytea IN sealed) FROM documents"),
        "0"
    );
}

#[tokio::test]
async fn changed_document_is_damaged() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let host = host(&database).await;
    let ours = documents(&host, "the key of the hosts").await.unwrap();
    for change in [
        "UPDATE documents SET revision = 2 WHERE name = 'a'",
        "UPDATE documents SET revision = -1 WHERE name = 'a'",
        "UPDATE documents SET sealed = (SELECT sealed FROM documents WHERE name = 'b') WHERE name = 'a'",
        "UPDATE documents SET sealed = '' WHERE name = 'a'",
        "UPDATE documents SET sealed = decode(repeat('00', 20000000), 'hex') WHERE name = 'a'",
        "UPDATE documents SET sealed = set_byte(sealed, 14, get_byte(sealed, 14) # 1) WHERE name = 'a'",
    ] {
        database.execute("DELETE FROM documents");
        ours.write("a", 0, content("content")).await.unwrap();
        ours.write("b", 0, content("other")).await.unwrap();
        database.execute(change);
        let error = ours.read("a").await.unwrap_err();
        assert!(
            matches!(error, SealedError::Damaged { .. }),
            "{change}: {error}"
        );
    }
}

#[tokio::test]
async fn copied_documents_are_read_and_replace_no_other() {
    let (Some(source), Some(target)) = (TestDatabase::create(), TestDatabase::create()) else {
        return;
    };
    let (from, to) = (host(&source).await, host(&target).await);
    let documents_there = documents(&from, "the key of the hosts").await.unwrap();
    // More than a page.
    for number in 0..40 {
        documents_there
            .write(&format!("users/{number:02}"), 0, content("a needle"))
            .await
            .unwrap();
    }
    let documents_here = documents(&to, "the key of the hosts").await.unwrap();
    documents_here
        .write("users/39", 0, content("own"))
        .await
        .unwrap();
    let encrypted = from.encrypted_documents();
    let mut copies: Vec<EncryptedDocument> = Vec::new();
    loop {
        let page = encrypted
            .page(copies.last().map_or("", |last| &last.name))
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        copies.extend(page);
    }
    assert_eq!(copies.len(), 40);
    for expected in [AddedDocument::Added, AddedDocument::Exists] {
        for copy in &copies[..39] {
            assert_eq!(documents_here.add(copy).await.unwrap(), expected);
        }
    }
    assert_eq!(
        documents_here.add(&copies[39]).await.unwrap(),
        AddedDocument::Differs
    );
    assert_eq!(
        read(&documents_here, "users/07").await,
        Some((1, "a needle".to_owned()))
    );
    assert_eq!(
        read(&documents_here, "users/39").await,
        Some((1, "own".to_owned()))
    );
    // Changed in the source, then in both.
    let copied = async |name: &str| encrypted.copied_revision(name).await.unwrap();
    let update = async || {
        let copy = encrypted.read("users/08").await.unwrap().unwrap();
        let base = copied("users/08").await;
        documents_here.update(&copy, base).await.unwrap()
    };
    assert_eq!(update().await, UpdatedDocument::Exists);
    documents_there
        .write("users/08", 1, content("changed"))
        .await
        .unwrap();
    assert_eq!(update().await, UpdatedDocument::Replaced);
    assert_eq!(
        read(&documents_here, "users/08").await,
        Some((2, "changed".to_owned()))
    );
    for documents in [&documents_here, &documents_there] {
        documents
            .write("users/08", 2, content("again"))
            .await
            .unwrap();
    }
    assert_eq!(update().await, UpdatedDocument::Differs);
    let found = to.encrypted_documents().read("users/07").await.unwrap();
    assert_eq!(found.as_ref(), Some(&copies[7]));
}
