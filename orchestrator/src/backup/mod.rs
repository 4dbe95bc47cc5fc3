//! Backups of a store: one file with everything that a store of either kind has, except sessions
//! and the keys of the host.
//!
//! A backup is a tar archive, compressed with gzip, so that it can be inspected without this
//! program. Its entries, in this order:
//!
//! | Entry | Content |
//! |---|---|
//! | `format.json` | [`BackupFormat`]: the version of the format |
//! | `conversations/ID/events.jsonl` | for each conversation its events in V0's JSON, one per line, from the first |
//! | `users.jsonl`, `keys.jsonl` | users, and their keys as hashes |
//! | `settings.jsonl` | settings and secrets of users, encrypted as they are stored |
//! | `audit.jsonl` | the audit log |
//! | `manifest.json` | [`BackupManifest`]: how much of each there is, and the SHA-256 hash of the archive before this entry |
//!
//! Users follow the conversations, so that the owner of each conversation is among them.
//!
//! A backup that is read is hostile. Lines and entries are bounded, paths are never used as paths
//! of the disk, and entries that are no regular file are refused.

mod digest;
mod part;
mod reader;
mod records;
mod writer;

use serde::{Deserialize, Serialize};

pub(crate) use part::BackupPart;
pub(crate) use reader::{BackupError, BackupReader, PartLines};
pub(crate) use records::{BackupAuditEntry, BackupKey, BackupSettings, BackupUser};
pub(crate) use writer::{BackupWriter, PartWriter};

/// Name of the format.
const FORMAT_NAME: &str = "glovebox backup";

/// Version of the format. A change that this version cannot read gets another one.
const FORMAT_VERSION: u32 = 1;

/// Path of the first entry.
const FORMAT_PATH: &str = "format.json";

/// Path of the last entry.
const MANIFEST_PATH: &str = "manifest.json";

/// Maximum size of the first and of the last entry, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 10;

/// Maximum length of an event's JSON, in bytes: as for events of V0.
pub(crate) const MAX_EVENT_BYTES: usize = 64 << 20;

/// Maximum length of another line, in bytes: encrypted settings of a mebibyte in base64, with room.
pub(crate) const MAX_RECORD_BYTES: usize = 2 << 20;

/// The first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupFormat {
    /// [`FORMAT_NAME`].
    format: String,
    /// [`FORMAT_VERSION`].
    version: u32,
    /// When the backup was started.
    pub(crate) created_at: String,
    /// The version of Glovebox that has written it.
    glovebox: String,
}

/// The last entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupManifest {
    #[serde(flatten)]
    pub(crate) counts: BackupCounts,
    /// SHA-256 hash of the uncompressed archive before this entry, in hexadecimal digits.
    sha256: String,
}

/// How much a backup has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupCounts {
    pub(crate) conversations: u64,
    pub(crate) events: u64,
    pub(crate) users: u64,
    pub(crate) keys: u64,
    pub(crate) settings: u64,
    pub(crate) audit_entries: u64,
}

impl BackupCounts {
    /// Adds a part with this number of lines.
    fn add(&mut self, part: &BackupPart, lines: u64) {
        let count = match part {
            BackupPart::Conversation(_) => {
                self.conversations += 1;
                &mut self.events
            }
            BackupPart::Users => &mut self.users,
            BackupPart::Keys => &mut self.keys,
            BackupPart::Settings => &mut self.settings,
            BackupPart::Audit => &mut self.audit_entries,
        };
        *count += lines;
    }
}

#[cfg(test)]
mod tests;
