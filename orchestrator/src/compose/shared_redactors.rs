//! The redactors of a server's conversations. Those with the same secrets share one: that of long
//! secrets takes megabytes.

use std::sync::{Mutex, PoisonError};

use engine::secrets::{Redactor, WeakRedactor};
use ring::digest::{Context, SHA256};
use secrecy::ExposeSecret as _;

use super::secrets::RedactedSecrets;
use crate::config::Config;
use crate::redacted_stderr;

/// The redactors that conversations use now.
#[derive(Default)]
pub(super) struct SharedRedactors {
    /// With the hash of their secrets. A blocking mutex, because it is never held across an await.
    shared: Mutex<Vec<([u8; 32], WeakRedactor)>>,
    /// Held to build one: many long ones would take all processors and the memory.
    building: tokio::sync::Mutex<()>,
}

impl SharedRedactors {
    /// Returns the redactor of a configuration. The log is redacted with it too, while a
    /// conversation uses it.
    pub(super) async fn get(&self, config: &Config) -> anyhow::Result<Redactor> {
        let secrets = RedactedSecrets::new(config);
        let hash = hash(&secrets);
        let _building = self.building.lock().await;
        if let Some(redactor) = self.find(&hash) {
            return Ok(redactor);
        }
        // On another thread: that of long secrets takes a second.
        let redactor = tokio::task::spawn_blocking(move || secrets.redactor()).await??;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, redactor)| redactor.upgrade().is_some());
        shared.push((hash, redactor.downgrade()));
        redacted_stderr::add_redactor(redactor.downgrade());
        Ok(redactor)
    }

    fn find(&self, hash: &[u8; 32]) -> Option<Redactor> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.iter().find(|(other, _)| other == hash)?.1.upgrade()
    }
}

fn hash(secrets: &RedactedSecrets) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for (name, value) in secrets.iter() {
        for text in [name, value.expose_secret()] {
            context.update(&text.len().to_le_bytes());
            context.update(text.as_bytes());
        }
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}
