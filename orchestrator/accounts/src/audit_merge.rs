//! Adds entries of one audit log to another one, each once.

use std::collections::HashMap;
use std::sync::Arc;

use ring::digest::{SHA256, digest};

use crate::audit::{AuditEntry, AuditStore, MAX_AUDIT_ENTRIES};
use crate::store::StoreFailure;

/// Number of entries per read.
const PAGE_SIZE: usize = 1000;

/// Number of entries up to which a log is filled, so that none that exists is removed for them: all
/// others but those of unknown clients have room for so many.
const MAX_ENTRIES: u64 = MAX_AUDIT_ENTRIES / 10 * 9;

/// Length of a fingerprint, in bytes: so long that no two of a million entries have the same one.
const FINGERPRINT_LENGTH: usize = 16;

type Fingerprint = [u8; FINGERPRINT_LENGTH];

/// Adds entries to an audit log that may have some of them, for example because an earlier copy was
/// interrupted. Holds 16 bytes of each existing entry in memory.
pub struct AuditMerge {
    store: Arc<dyn AuditStore>,
    /// How many entries with a fingerprint exist, and were not given to [`missing`](Self::missing)
    /// yet.
    existing: HashMap<Fingerprint, u32>,
    /// How many entries can be added.
    room: u64,
}

impl AuditMerge {
    /// Reads the existing entries.
    ///
    /// # Errors
    /// See [`AuditStore`].
    pub async fn new(store: Arc<dyn AuditStore>) -> Result<Self, StoreFailure> {
        let mut existing = HashMap::new();
        let (mut last, mut room) = (0, MAX_ENTRIES);
        loop {
            let page = store.read_after(last, PAGE_SIZE).await?;
            let Some((number, _)) = page.last() else {
                break;
            };
            last = *number;
            room = room.saturating_sub(page.len() as u64);
            for (_, entry) in &page {
                *existing.entry(fingerprint(entry)).or_default() += 1;
            }
        }
        Ok(Self {
            store,
            existing,
            room,
        })
    }

    /// Returns those of the next entries that the log lacks, while it has room. Of equal entries,
    /// as many as it has fewer.
    pub fn missing(&mut self, entries: Vec<AuditEntry>) -> Vec<AuditEntry> {
        let is_missing = |entry: &AuditEntry| match self.existing.get_mut(&fingerprint(entry)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        let mut missing: Vec<_> = entries.into_iter().filter(is_missing).collect();
        missing.truncate(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= missing.len() as u64;
        missing
    }

    /// Appends those of the next entries that the log lacks. Returns their number.
    ///
    /// # Errors
    /// See [`AuditStore`].
    pub async fn append_missing(
        &mut self,
        entries: Vec<AuditEntry>,
    ) -> Result<usize, StoreFailure> {
        let missing = self.missing(entries);
        if !missing.is_empty() {
            self.store.append_all(&missing, MAX_AUDIT_ENTRIES).await?;
        }
        Ok(missing.len())
    }
}

/// Identifies an entry within this process. Its debug format quotes texts, so that different
/// entries differ.
fn fingerprint(entry: &AuditEntry) -> Fingerprint {
    let hash = digest(&SHA256, format!("{entry:?}").as_bytes());
    let mut fingerprint = [0; FINGERPRINT_LENGTH];
    fingerprint
        .iter_mut()
        .zip(hash.as_ref())
        .for_each(|(to, from)| *to = *from);
    fingerprint
}
