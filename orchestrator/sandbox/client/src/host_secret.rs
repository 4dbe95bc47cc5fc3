//! Keys of action servers: derived from one secret of the host, never stored.
//!
//! A restarted host derives the same keys, so that it can attach to its sandboxes. Keys are never
//! printed, and never written to an argument, an environment or a file.

use std::fmt;

use protocol::SandboxId;
use ring::hmac;
use secrecy::{ExposeSecret, SecretBox, SecretString};

/// Separates these keys from other values that are derived from the same secret.
const KEY_PURPOSE: &[u8] = b"glovebox action server key 1\0";
const GROUP_PURPOSE: &[u8] = b"glovebox control group 1\0";
const OWNER_PURPOSE: &[u8] = b"glovebox owner 1\0";

/// The host's secret, from which the key of every sandbox is derived.
pub struct HostSecret(SecretBox<[u8; 32]>);

impl HostSecret {
    /// Takes 32 random bytes, which must be the same after a restart.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(SecretBox::new(Box::new(bytes)))
    }

    /// Derives the key of a sandbox: 64 hexadecimal digits.
    pub fn derive_key(&self, sandbox: &SandboxId) -> SecretString {
        hex::encode(self.sign(KEY_PURPOSE, sandbox.as_str()).as_ref()).into()
    }

    /// Derives the id of this installation, which distinguishes its sandboxes from others: 16
    /// hexadecimal digits, not secret.
    pub fn owner(&self) -> String {
        hex::encode(&self.sign(OWNER_PURPOSE, "").as_ref()[..8])
    }

    /// Derives the name of a sandbox's control groups: 32 hexadecimal digits. It is unique to this
    /// installation, and does not contain the conversation, because other users of the host see it.
    pub fn group_name(&self, sandbox: &SandboxId) -> String {
        hex::encode(&self.sign(GROUP_PURPOSE, sandbox.as_str()).as_ref()[..16])
    }

    fn sign(&self, purpose: &[u8], text: &str) -> hmac::Tag {
        let mut context =
            hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, self.0.expose_secret()));
        context.update(purpose);
        context.update(text.as_bytes());
        context.sign()
    }
}

impl fmt::Debug for HostSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::HostSecret;

    #[test]
    fn sandbox_key_is_stable_after_a_restart_and_unique() {
        let key = |secret: [u8; 32], id: &str| {
            HostSecret::new(secret)
                .derive_key(&id.parse().unwrap())
                .expose_secret()
                .to_owned()
        };
        assert_eq!(key([7; 32], "glovebox-a"), key([7; 32], "glovebox-a"));
        assert_ne!(key([7; 32], "glovebox-a"), key([7; 32], "glovebox-b"));
        assert_ne!(key([7; 32], "glovebox-a"), key([8; 32], "glovebox-a"));
        assert_eq!(key([7; 32], "glovebox-a").len(), 64);
    }

    #[test]
    fn secret_is_not_printed() {
        assert_eq!(
            format!("{:?}", HostSecret::new([b'k'; 32])),
            "HostSecret(…)"
        );
    }
}
