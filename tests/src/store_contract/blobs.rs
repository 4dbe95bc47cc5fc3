//! Cases of large events in a blob store, and stores of which all or some events are in one.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use engine::events::{EventStore, OverviewChange, StoreError};
use protocol::{Event, EventId};
use storage::BlobStore;
use tempfile::TempDir;

use super::overviews::agent_log;
use super::{SqlBackend, StoreBackend, conversation, event, event_with, log};

/// Length from which the cases here have events in blobs. Shorter than [`large`] and longer than
/// [`event`].
const MIN_LENGTH: usize = 2_000;

/// A place of blobs, of which each has a name `CONVERSATION/BLOB`.
#[async_trait]
pub trait BlobPlace: Send + Sync {
    /// Returns a store of blobs in this place.
    fn open(&self) -> BlobStore;

    /// Returns the names of all blobs, in order.
    async fn names(&self) -> Vec<String>;

    /// Returns the content of a blob.
    async fn read(&self, name: &str) -> Vec<u8>;

    /// Writes a blob, unnoticed by the stores.
    async fn write(&self, name: &str, content: &[u8]);

    /// Deletes a blob, unnoticed by the stores.
    async fn delete(&self, name: &str);

    /// Makes the place unavailable, or available again with the same blobs.
    fn set_available(&self, is_available: bool);
}

/// A store with blobs.
#[async_trait]
pub trait BlobBackend: SqlBackend {
    /// Returns the place of its blobs.
    fn place(&self) -> &dyn BlobPlace;

    /// Opens a store without blobs on the same database.
    async fn open_without_blobs(&self) -> Arc<dyn EventStore>;
}

/// Stores in a database, with blobs in a place.
pub struct WithBlobs<D, P> {
    database: D,
    place: P,
    min_length: usize,
}

impl<D: SqlBackend, P: BlobPlace> WithBlobs<D, P> {
    /// Every event is in a blob.
    pub fn all(database: D, place: P) -> Self {
        Self {
            database,
            place,
            min_length: 1,
        }
    }

    /// Large events are in blobs.
    pub fn large(database: D, place: P) -> Self {
        Self {
            database,
            place,
            min_length: MIN_LENGTH,
        }
    }
}

#[async_trait]
impl<D: SqlBackend, P: BlobPlace> StoreBackend for WithBlobs<D, P> {
    async fn open(&self) -> Arc<dyn EventStore> {
        self.database
            .open_with_blobs(self.place.open().with_min_length(self.min_length))
            .await
    }
}

#[async_trait]
impl<D: SqlBackend, P: BlobPlace> SqlBackend for WithBlobs<D, P> {
    async fn open_with_blobs(&self, blobs: BlobStore) -> Arc<dyn EventStore> {
        self.database.open_with_blobs(blobs).await
    }

    fn execute(&self, sql: &str) {
        self.database.execute(sql);
    }

    fn invalid_utf8(&self) -> &'static str {
        self.database.invalid_utf8()
    }
}

#[async_trait]
impl<D: SqlBackend, P: BlobPlace> BlobBackend for WithBlobs<D, P> {
    fn place(&self) -> &dyn BlobPlace {
        &self.place
    }

    async fn open_without_blobs(&self) -> Arc<dyn EventStore> {
        self.database.open().await
    }
}

/// Blobs in a folder.
pub struct FolderPlace {
    folder: TempDir,
}

impl FolderPlace {
    /// Creates a place whose folder does not exist yet.
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("data").join("blobs")
    }

    fn moved(&self) -> PathBuf {
        self.folder.path().join("moved")
    }
}

impl Default for FolderPlace {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl BlobPlace for FolderPlace {
    fn open(&self) -> BlobStore {
        BlobStore::folder(self.path())
    }

    /// The names of all files and empty folders.
    async fn names(&self) -> Vec<String> {
        let Ok(conversations) = fs::read_dir(self.path()) else {
            return Vec::new();
        };
        let mut names = Vec::new();
        for conversation in conversations.map(Result::unwrap) {
            let folder = conversation.file_name().into_string().unwrap();
            let mut files: Vec<_> = fs::read_dir(conversation.path())
                .unwrap()
                .map(|file| {
                    format!(
                        "{folder}/{}",
                        file.unwrap().file_name().into_string().unwrap()
                    )
                })
                .collect();
            if files.is_empty() {
                files.push(folder);
            }
            names.append(&mut files);
        }
        names.sort();
        names
    }

    async fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    async fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path().join(name), content).unwrap();
    }

    async fn delete(&self, name: &str) {
        fs::remove_file(self.path().join(name)).unwrap();
    }

    /// A file takes the place of the folder. Permissions would not stop root.
    fn set_available(&self, is_available: bool) {
        let (folder, moved) = (self.path(), self.moved());
        if is_available {
            fs::remove_file(&folder).unwrap();
            if moved.exists() {
                fs::rename(moved, folder).unwrap();
            }
        } else {
            if folder.exists() {
                fs::rename(&folder, moved).unwrap();
            }
            fs::create_dir_all(folder.parent().unwrap()).unwrap();
            fs::write(folder, "in the way").unwrap();
        }
    }
}

/// Returns an event whose blob differs from that of other ids.
fn large(id: u64) -> Event {
    event_with(id, &format!("{id} größer ").repeat(MIN_LENGTH / 8))
}

/// Returns the log that most cases have: the events 1 and 3 are large.
fn mixed_log() -> Vec<Event> {
    vec![event(0), large(1), event(2), large(3), event(4)]
}

/// Appends the mixed log and returns the store and the names of its blobs, in the order of their
/// events.
async fn open_mixed(backend: &dyn BlobBackend) -> (Arc<dyn EventStore>, [String; 2]) {
    let (store, a) = (backend.open().await, conversation("a"));
    let before = backend.place().names().await;
    store.append(&a, &mixed_log()[..3]).await.unwrap();
    let mut first = backend.place().names().await;
    first.retain(|name| !before.contains(name));
    store.append(&a, &mixed_log()[3..]).await.unwrap();
    let mut second = backend.place().names().await;
    second.retain(|name| !before.contains(name) && !first.contains(name));
    (store, [first.remove(0), second.remove(0)])
}

/// Returns the damage that a read of the conversation `a` reports.
async fn damage(store: &dyn EventStore) -> (u64, String) {
    match store.read(&conversation("a"), EventId::FIRST, 10).await {
        Err(StoreError::Damaged {
            conversation: found,
            id,
            source,
        }) if found == conversation("a") => (id.0, source.to_string()),
        other => panic!("{other:?}"),
    }
}

/// Pages with blobs are read like others, also by another handle. A blob has the JSON of its event
/// and the id of its conversation.
pub async fn only_large_events_are_in_blobs(backend: &dyn BlobBackend) {
    let (store, names) = open_mixed(backend).await;
    let (a, mixed) = (conversation("a"), mixed_log());
    assert_eq!(backend.place().names().await.len(), 2);
    for (name, event) in names.iter().zip([&mixed[1], &mixed[3]]) {
        assert!(name.starts_with("a/"), "{name}");
        assert_eq!(
            backend.place().read(name).await,
            serde_json::to_vec(event).unwrap()
        );
    }
    let other = backend.open().await;
    for reader in [&store, &other] {
        assert_eq!(log(&**reader, &a).await, mixed);
        for (from, limit) in [(0, 2), (1, 1), (1, 3), (2, 1), (2, 2), (3, 9), (4, 1)] {
            let page = reader.read(&a, EventId(from), limit).await.unwrap();
            let from = usize::try_from(from).unwrap();
            assert_eq!(
                page,
                mixed[from..mixed.len().min(from + limit)],
                "{from} {limit}"
            );
        }
    }
    // Many of them are read in order, too.
    let many: Vec<_> = (0..40).map(large).collect();
    store.append(&conversation("many"), &many).await.unwrap();
    assert_eq!(log(&*other, &conversation("many")).await, many);
}

/// The error names the event. The others can be read.
pub async fn read_fails_when_a_blob_is_missing_or_altered(backend: &dyn BlobBackend) {
    let (store, [_, name]) = open_mixed(backend).await;
    let content = backend.place().read(&name).await;
    let mut altered = content.clone();
    let middle = altered.len() / 2;
    altered[middle] ^= 1;
    for wrong in [
        &content[..content.len() - 1],
        &[content.as_slice(), b" "].concat(),
        &altered,
        b"",
    ] {
        backend.place().write(&name, wrong).await;
        assert_eq!(damage(&*store).await, (3, "its blob was altered".into()));
    }
    backend.place().delete(&name).await;
    assert_eq!(damage(&*store).await, (3, "its blob is missing".into()));
    let a = conversation("a");
    assert_eq!(
        store.read(&a, EventId::FIRST, 3).await.unwrap(),
        mixed_log()[..3]
    );
    assert_eq!(
        store.read(&a, EventId(4), 3).await.unwrap(),
        mixed_log()[4..]
    );
    backend.place().write(&name, &content).await;
    assert_eq!(log(&*store, &a).await, mixed_log());
}

/// Neither a text that is no reference nor the reference to the blob of another event is accepted.
pub async fn read_fails_when_a_row_refers_to_no_blob(backend: &dyn BlobBackend) {
    let (store, _) = open_mixed(backend).await;
    for wrong in ["", "../a", "0-0"] {
        backend.execute(&format!("UPDATE events SET blob = '{wrong}' WHERE id = 3"));
        assert_eq!(
            damage(&*store).await,
            (3, "its row refers to no blob".into())
        );
    }
    backend.execute("UPDATE events SET blob = (SELECT blob FROM events WHERE id = 1) WHERE id = 3");
    assert_eq!(damage(&*store).await, (3, "its row holds event 1".into()));
    backend.execute("UPDATE events SET blob = NULL WHERE id = 3");
    assert_eq!(damage(&*store).await, (3, "its row holds no event".into()));
}

/// A blob without a row, which a failed append has left, is replaced by the same content.
pub async fn blob_is_written_again_when_it_was_damaged(backend: &dyn BlobBackend) {
    let (store, b) = (backend.open().await, conversation("b"));
    // Out of order, and so rejected after its blob was stored.
    store.append(&b, &[large(1)]).await.unwrap_err();
    let names = backend.place().names().await;
    let [name] = names.as_slice() else {
        panic!("{names:?}")
    };
    backend.place().write(name, b"half of").await;
    store.append(&b, &[event(0), large(1)]).await.unwrap();
    assert_eq!(log(&*store, &b).await, [event(0), large(1)]);
    assert_eq!(backend.place().names().await, names);
}

/// Removes also what failed appends have left, and no blob of a conversation with a similar id.
pub async fn removal_leaves_no_blob(backend: &dyn BlobBackend) {
    let store = backend.open().await;
    for name in ["a", "ab", "a-"] {
        store
            .append(&conversation(name), &mixed_log())
            .await
            .unwrap();
    }
    store
        .append(&conversation("a"), &[large(9)])
        .await
        .unwrap_err();
    store
        .append(&conversation("unknown"), &[large(9)])
        .await
        .unwrap_err();
    assert_eq!(backend.place().names().await.len(), 8);
    for removed in ["a", "unknown"] {
        store.remove(&conversation(removed)).await.unwrap();
    }
    let names = backend.place().names().await;
    assert!(
        names.len() == 4
            && names
                .iter()
                .all(|name| name.starts_with("ab/") || name.starts_with("a-/"))
    );
    assert_eq!(log(&*store, &conversation("a")).await, []);
    for kept in ["ab", "a-"] {
        assert_eq!(log(&*store, &conversation(kept)).await, mixed_log());
        store.remove(&conversation(kept)).await.unwrap();
    }
    assert_eq!(backend.place().names().await, [""; 0]);
}

/// Another store may have the same ones.
pub async fn blobs_are_kept_by_a_store_without_removal(backend: &dyn BlobBackend) {
    let (_, mut names) = open_mixed(backend).await;
    names.sort();
    let blobs = backend.place().open().without_removal();
    let store = backend.open_with_blobs(blobs).await;
    store.remove(&conversation("a")).await.unwrap();
    assert_eq!(log(&*store, &conversation("a")).await, []);
    assert_eq!(backend.place().names().await, names);
}

/// The error is typed and changes nothing, small events are appended and read meanwhile, and the
/// next append succeeds.
pub async fn failed_put_leaves_the_log_as_it_was(backend: &dyn BlobBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &[event(0), large(1)]).await.unwrap();
    backend.place().set_available(false);
    let failed = store.append(&a, &[event(2), large(3)]).await;
    assert!(
        matches!(
            failed,
            Err(StoreError::Storage {
                operation: "store a blob",
                ..
            })
        ),
        "{failed:?}"
    );
    let failed = store.read(&a, EventId::FIRST, 9).await;
    assert!(
        matches!(
            failed,
            Err(StoreError::Storage {
                operation: "read a blob",
                ..
            })
        ),
        "{failed:?}"
    );
    assert_eq!(store.find(&a).await.unwrap().unwrap().summary.events, 2);
    store.append(&a, &[event(2)]).await.unwrap();
    assert_eq!(store.read(&a, EventId(2), 9).await.unwrap(), [event(2)]);
    backend.place().set_available(true);
    store.append(&a, &[large(3), event(4)]).await.unwrap();
    assert_eq!(log(&*store, &a).await, mixed_log());
}

/// A check of the store includes the blobs.
pub async fn check_succeeds_while_the_place_is_available(backend: &dyn BlobBackend) {
    backend.place().set_available(false);
    let store = backend.open().await;
    let failed = store.check_writable().await;
    assert!(
        matches!(
            failed,
            Err(StoreError::Storage {
                operation: "store and read blobs",
                ..
            })
        ),
        "{failed:?}"
    );
    backend.place().set_available(true);
    store.check_writable().await.unwrap();
    store
        .append(&conversation("a"), &mixed_log())
        .await
        .unwrap();
    store.check_writable().await.unwrap();
    assert_eq!(log(&*store, &conversation("a")).await, mixed_log());
}

/// A removal that can remove no blob fails before the log is gone, if the place does not respond;
/// and can be repeated.
pub async fn removal_is_refused_or_complete_without_blobs(backend: &dyn BlobBackend) {
    let (store, _) = open_mixed(backend).await;
    let a = conversation("a");
    backend.place().set_available(false);
    let failed = store.remove(&a).await;
    assert!(
        matches!(failed, Err(StoreError::Storage { .. })),
        "{failed:?}"
    );
    backend.place().set_available(true);
    assert_eq!(log(&*store, &a).await, mixed_log());
    store.remove(&a).await.unwrap();
    assert_eq!(log(&*store, &a).await, []);
    assert_eq!(backend.place().names().await, [""; 0]);
}

/// A store without a place of blobs reads what needs none, appends large events to the database,
/// and names the missing option.
pub async fn log_is_read_without_blobs_only_if_it_has_none(backend: &dyn BlobBackend) {
    let (with, _) = open_mixed(backend).await;
    let (without, a, b) = (
        backend.open_without_blobs().await,
        conversation("a"),
        conversation("b"),
    );
    without.append(&b, &mixed_log()).await.unwrap();
    for reader in [&with, &without] {
        assert_eq!(log(&**reader, &b).await, mixed_log());
    }
    without.append(&a, &[large(5)]).await.unwrap();
    assert_eq!(
        without.read(&a, EventId(4), 9).await.unwrap(),
        [event(4), large(5)]
    );
    let error = without.read(&a, EventId(3), 9).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        matches!(error, StoreError::Storage { .. }) && cause.contains("store.blobs"),
        "{error}: {cause}"
    );
    assert_eq!(
        log(&*with, &a).await,
        [mixed_log(), vec![large(5)]].concat()
    );
    assert_eq!(backend.place().names().await.len(), 2);
}

/// Removes the overviews, as if an older version of Glovebox had written the logs.
fn remove_overviews(backend: &dyn BlobBackend) {
    backend.execute(
        "DELETE FROM overviews; UPDATE conversations SET overview_events = 0, owner = NULL, agent_state = NULL, cost = NULL",
    );
}

/// Returns a log of several pages whose overview depends on events in blobs and in rows.
fn long_log() -> Vec<Event> {
    let mut log = agent_log();
    log[1] = event_with(1, &"Fix Login ".repeat(MIN_LENGTH));
    log.extend((6..200).map(|id| if id % 3 == 0 { large(id) } else { event(id) }));
    log
}

/// Opening a store completes the overviews of logs with blobs.
pub async fn missing_overview_is_completed_from_blobs(backend: &dyn BlobBackend) {
    let store = backend.open().await;
    store.append(&conversation("a"), &long_log()).await.unwrap();
    store
        .append(&conversation("b"), &mixed_log())
        .await
        .unwrap();
    remove_overviews(backend);
    let opened = backend.open().await;
    for (name, log) in [("a", long_log()), ("b", mixed_log())] {
        let found = opened.find(&conversation(name)).await.unwrap().unwrap();
        assert_eq!(
            found.overview,
            OverviewChange::from_events(&log).overview,
            "{name}"
        );
        assert_eq!(found.overview_events, log.len() as u64, "{name}");
    }
}

/// The events before a damaged blob are applied, and other conversations are completed.
pub async fn overview_is_completed_up_to_a_damaged_blob(backend: &dyn BlobBackend) {
    let (store, [_, second]) = open_mixed(backend).await;
    store.append(&conversation("b"), &long_log()).await.unwrap();
    remove_overviews(backend);
    backend.place().delete(&second).await;
    let opened = backend.open().await;
    let covered = async |name: &str| {
        let found = opened.find(&conversation(name)).await.unwrap().unwrap();
        (found.overview, found.overview_events)
    };
    assert_eq!(
        covered("a").await,
        (OverviewChange::from_events(&mixed_log()[..3]).overview, 3)
    );
    assert_eq!(
        covered("b").await,
        (OverviewChange::from_events(&long_log()).overview, 200)
    );
}
