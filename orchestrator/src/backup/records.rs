//! The JSON of lines that are not events.

use std::net::IpAddr;

use accounts::{AuditActor, AuditEntry, Key, KeyId, KeyRecord, KeyScope, SecretHash, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::{ConversationId, UserId};
use serde::{Deserialize, Serialize};
use storage::EncryptedDocument;

/// A line of `users.jsonl`. Times are in seconds since the Unix epoch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BackupUser {
    name: UserId,
    created_at: u64,
    removed_at: Option<u64>,
}

/// A line of `keys.jsonl`. Times are in seconds since the Unix epoch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BackupKey {
    id: String,
    /// SHA-256 hash of the key, in hexadecimal digits.
    hash: String,
    user: UserId,
    scope: String,
    created_at: u64,
    expires_at: Option<u64>,
    last_used_at: Option<u64>,
}

/// A line of `settings.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BackupSettings {
    name: String,
    revision: u64,
    /// Id of the key that they are encrypted with, in hexadecimal digits.
    key_id: String,
    /// The encrypted content in base64.
    sealed: String,
}

/// A line of `audit.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BackupAuditEntry {
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    actor: BackupActor,
    address: Option<IpAddr>,
    action: String,
    conversation: Option<ConversationId>,
    status: Option<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BackupActor {
    Unknown,
    Operator,
    User { name: UserId, key: Option<String> },
}

/// A line has a value that this program does not write.
#[derive(Debug, thiserror::Error)]
#[error("{0} is invalid")]
pub(crate) struct InvalidRecord(&'static str);

impl From<&User> for BackupUser {
    fn from(
        User {
            name,
            created_at,
            removed_at,
        }: &User,
    ) -> Self {
        Self {
            name: name.clone(),
            created_at: *created_at,
            removed_at: *removed_at,
        }
    }
}

impl From<BackupUser> for User {
    fn from(
        BackupUser {
            name,
            created_at,
            removed_at,
        }: BackupUser,
    ) -> Self {
        Self {
            name,
            created_at,
            removed_at,
        }
    }
}

impl From<&KeyRecord> for BackupKey {
    fn from(KeyRecord { key, hash }: &KeyRecord) -> Self {
        Self {
            id: key.id.to_string(),
            hash: hex::encode(hash.as_bytes()),
            user: key.user.clone(),
            scope: key.scope.as_str().to_owned(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
        }
    }
}

impl TryFrom<BackupKey> for KeyRecord {
    type Error = InvalidRecord;

    fn try_from(line: BackupKey) -> Result<Self, InvalidRecord> {
        let BackupKey {
            id,
            hash,
            user,
            scope,
            created_at,
            expires_at,
            last_used_at,
        } = line;
        let mut bytes = [0; 32];
        hex::decode_to_slice(hash, &mut bytes).map_err(|_| InvalidRecord("the hash"))?;
        let id = parse_key_id(&id)?;
        let scope = KeyScope::from_name(&scope).ok_or(InvalidRecord("the scope"))?;
        let key = Key {
            id,
            user,
            scope,
            created_at,
            expires_at,
            last_used_at,
        };
        Ok(Self {
            key,
            hash: SecretHash::from_bytes(bytes),
        })
    }
}

impl From<&EncryptedDocument> for BackupSettings {
    fn from(
        EncryptedDocument {
            name,
            revision,
            key_id,
            sealed,
        }: &EncryptedDocument,
    ) -> Self {
        Self {
            name: name.clone(),
            revision: *revision,
            key_id: hex::encode(key_id),
            sealed: STANDARD.encode(sealed),
        }
    }
}

impl TryFrom<BackupSettings> for EncryptedDocument {
    type Error = InvalidRecord;

    fn try_from(line: BackupSettings) -> Result<Self, InvalidRecord> {
        let BackupSettings {
            name,
            revision,
            key_id,
            sealed,
        } = line;
        let key_id = hex::decode(key_id).map_err(|_| InvalidRecord("the id of the key"))?;
        let sealed = STANDARD
            .decode(sealed)
            .map_err(|_| InvalidRecord("the encrypted content"))?;
        Ok(Self {
            name,
            revision,
            key_id,
            sealed,
        })
    }
}

impl From<&AuditEntry> for BackupAuditEntry {
    fn from(entry: &AuditEntry) -> Self {
        let AuditEntry {
            at_ms,
            actor,
            address,
            action,
            conversation,
            status,
        } = entry.clone();
        let actor = match actor {
            AuditActor::Unknown => BackupActor::Unknown,
            AuditActor::Operator => BackupActor::Operator,
            AuditActor::User { name, key } => BackupActor::User {
                name,
                key: key.map(|key| key.to_string()),
            },
        };
        Self {
            at_ms,
            actor,
            address,
            action,
            conversation,
            status,
        }
    }
}

impl TryFrom<BackupAuditEntry> for AuditEntry {
    type Error = InvalidRecord;

    fn try_from(line: BackupAuditEntry) -> Result<Self, InvalidRecord> {
        let BackupAuditEntry {
            at_ms,
            actor,
            address,
            action,
            conversation,
            status,
        } = line;
        let actor = match actor {
            BackupActor::Unknown => AuditActor::Unknown,
            BackupActor::Operator => AuditActor::Operator,
            BackupActor::User { name, key } => AuditActor::User {
                name,
                key: key.as_deref().map(parse_key_id).transpose()?,
            },
        };
        Ok(Self {
            at_ms,
            actor,
            address,
            action,
            conversation,
            status,
        })
    }
}

fn parse_key_id(id: &str) -> Result<KeyId, InvalidRecord> {
    id.parse().map_err(|_| InvalidRecord("the id of a key"))
}
