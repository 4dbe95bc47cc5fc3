//! Encryption of documents: AES-256-GCM with a random nonce for each write.
//!
//! The name, the revision and the key of a document are authenticated with its content, so that a
//! row cannot be put in the place of another one, or be given another revision.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

/// Domain of all keys that are derived from the operator's.
const SALT: &[u8] = b"glovebox sealed documents";

/// First part of what is authenticated. Another format has another one.
const FORMAT: &[u8] = b"glovebox sealed document 1";

/// Length of a key's id, in bytes.
const KEY_ID_LENGTH: usize = 8;

/// A key that documents are encrypted with. `Debug` prints its id only.
pub struct SealingKey {
    id: [u8; KEY_ID_LENGTH],
    cipher: LessSafeKey,
    random: SystemRandom,
}

/// The error of an encryption. A retry may succeed.
#[derive(Debug, thiserror::Error)]
#[error("the operating system has no random bytes")]
pub(super) struct NoRandomBytes;

/// The error of a content that was not encrypted with this key for this document, or was changed
/// since.
#[derive(Debug, thiserror::Error)]
#[error("its content is not authentic")]
pub(super) struct NotAuthentic;

/// What is authenticated with the content of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) name: &'a str,
    pub(super) revision: u64,
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl SealingKey {
    /// Derives the key from a secret of the operator, which must be hard to guess: it is not
    /// stretched.
    ///
    /// # Panics
    /// Never: the lengths are constants that the derivation supports.
    #[expect(clippy::expect_used, reason = "HKDF has up to 8,160 bytes")]
    pub fn new(secret: &SecretString) -> Self {
        let root = Salt::new(HKDF_SHA256, SALT).extract(secret.expose_secret().as_bytes());
        let cipher = root
            .expand(&[b"encryption"], &AES_256_GCM)
            .map(UnboundKey::from);
        Self {
            id: derive_id(&root),
            cipher: LessSafeKey::new(cipher.expect("a short key")),
            random: SystemRandom::new(),
        }
    }

    /// Returns the id with which documents name their key. Discloses nothing about the key.
    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    /// Encrypts a content. Returns the nonce, the encrypted content and the tag.
    pub(super) fn seal(
        &self,
        identity: Identity<'_>,
        content: &[u8],
    ) -> Result<Vec<u8>, NoRandomBytes> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| NoRandomBytes)?;
        let mut sealed = content.to_vec();
        let aad = self.authenticated(identity);
        let tag = self.cipher.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            aad,
            &mut sealed,
        );
        // Fails only for a content of more than 64 GiB.
        let tag = tag.map_err(|_| NoRandomBytes)?;
        Ok([nonce.as_slice(), &sealed, tag.as_ref()].concat())
    }

    /// Decrypts what [`seal`](Self::seal) has returned.
    pub(super) fn open(
        &self,
        identity: Identity<'_>,
        mut sealed: Vec<u8>,
    ) -> Result<SecretSlice<u8>, NotAuthentic> {
        let (nonce, encrypted) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(NotAuthentic)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotAuthentic)?;
        let aad = self.authenticated(identity);
        let content = self
            .cipher
            .open_in_place(nonce, aad, encrypted)
            .map_err(|_| NotAuthentic)?;
        let opened = SecretSlice::from(content.to_vec());
        content.fill(0);
        Ok(opened)
    }

    /// The name is last, because only its length varies.
    fn authenticated(&self, identity: Identity<'_>) -> Aad<Vec<u8>> {
        let Identity { name, revision } = identity;
        Aad::from([FORMAT, &self.id, &revision.to_be_bytes(), name.as_bytes()].concat())
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SealingKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::expect_used, reason = "HKDF has up to 8,160 bytes")]
fn derive_id(root: &Prk) -> [u8; KEY_ID_LENGTH] {
    let mut id = [0; KEY_ID_LENGTH];
    let expanded = root
        .expand(&[b"id"], Length(KEY_ID_LENGTH))
        .expect("a short id");
    expanded.fill(&mut id).expect("the requested length");
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity<'static> = Identity {
        name: "user",
        revision: 3,
    };

    fn key(secret: &str) -> SealingKey {
        SealingKey::new(&SecretString::from(secret))
    }

    #[test]
    fn content_is_opened_with_its_own_key_and_identity_only() {
        let sealed = key("a").seal(IDENTITY, b"content").unwrap();
        let open = |secret, identity| key(secret).open(identity, sealed.clone());
        assert_eq!(open("a", IDENTITY).unwrap().expose_secret(), b"content");
        assert!(open("b", IDENTITY).is_err());
        assert!(
            open(
                "a",
                Identity {
                    name: "user2",
                    ..IDENTITY
                }
            )
            .is_err()
        );
        assert!(
            open(
                "a",
                Identity {
                    revision: 4,
                    ..IDENTITY
                }
            )
            .is_err()
        );
    }

    #[test]
    fn content_is_not_opened_when_any_byte_differs() {
        let key = key("a");
        let sealed = key.seal(IDENTITY, b"content").unwrap();
        assert_eq!(sealed.len(), NONCE_LEN + 7 + AES_256_GCM.tag_len());
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert!(key.open(IDENTITY, changed).is_err(), "byte {index}");
            assert!(
                key.open(IDENTITY, sealed[..index].to_vec()).is_err(),
                "{index} bytes"
            );
        }
        assert!(
            key.open(IDENTITY, [sealed.as_slice(), &[0]].concat())
                .is_err()
        );
    }

    #[test]
    fn same_content_is_never_sealed_to_the_same_bytes() {
        let key = key("a");
        let seal = || key.seal(IDENTITY, b"content").unwrap();
        assert_ne!(seal()[..NONCE_LEN], seal()[..NONCE_LEN]);
    }

    #[test]
    fn key_is_not_printed() {
        assert!(!format!("{:?}", key("hunter2hunter2")).contains("hunter2"));
    }
}
