//! Concurrent writers of one document, in one process and as other processes see them.

use storage::SealedError;

use crate::{Fixture, content, read};

#[tokio::test]
async fn write_conflicts_when_another_one_was_faster() {
    let fixture = Fixture::new();
    let (ours, theirs) = (fixture.open().await, fixture.open().await);
    ours.write("a", 0, content("ours")).await.unwrap();
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_change_is_lost_when_many_write() {
    const WRITERS: usize = 4;
    const CHANGES: usize = 25;
    let fixture = Fixture::new();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        // A connection of its own, as another process has.
        let documents = fixture.open().await;
        writers.spawn(async move {
            for _ in 0..CHANGES {
                loop {
                    let (revision, text) = read(&documents, "a").await.unwrap_or_default();
                    match documents
                        .write("a", revision, content(&format!("{text}x")))
                        .await
                    {
                        Ok(()) => break,
                        Err(SealedError::Conflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let total = WRITERS * CHANGES;
    assert_eq!(
        read(&fixture.open().await, "a").await,
        Some((total as u64, "x".repeat(total)))
    );
}
