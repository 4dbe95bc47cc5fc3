//! References to blobs, which rows of events hold.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// The content of a blob: its hash and length. As a text, `SHA256-LENGTH`, it is the name of the
/// blob among those of its conversation. The same content has the same name, so that a blob that a
/// row refers to is never overwritten with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobReference {
    sha256: [u8; SHA256_OUTPUT_LEN],
    /// In bytes.
    pub(super) length: u64,
}

/// The error of a text that is no reference.
#[derive(Debug, thiserror::Error)]
#[error("a blob is referred to as SHA256-LENGTH")]
pub(crate) struct InvalidReference;

impl BlobReference {
    /// Returns the reference to a blob with this content.
    pub(crate) fn to_content(content: &[u8]) -> Self {
        let mut sha256 = [0; SHA256_OUTPUT_LEN];
        sha256.copy_from_slice(digest(&SHA256, content).as_ref());
        Self {
            sha256,
            length: content.len() as u64,
        }
    }

    /// Returns the length of the content.
    pub(crate) fn length_bytes(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for BlobReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", hex::encode(self.sha256), self.length)
    }
}

impl FromStr for BlobReference {
    type Err = InvalidReference;

    /// Parses the text of a reference, and no other spelling of it: the text is the name of a blob.
    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let (hash, length) = text.split_once('-').ok_or(InvalidReference)?;
        let mut sha256 = [0; SHA256_OUTPUT_LEN];
        hex::decode_to_slice(hash, &mut sha256).map_err(|_| InvalidReference)?;
        let reference = Self {
            sha256,
            length: length.parse().map_err(|_| InvalidReference)?,
        };
        if reference.to_string() == text {
            Ok(reference)
        } else {
            Err(InvalidReference)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_parsed_only_from_its_own_text() {
        let reference = BlobReference::to_content(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad-3";
        assert_eq!(reference.to_string(), text);
        assert_eq!(text.parse::<BlobReference>().unwrap(), reference);
        let upper = text.to_uppercase();
        let padded = text.replace("-3", "-03");
        let long = text.replace("-3", "-99999999999999999999");
        for wrong in [
            "",
            "-",
            "-3",
            "ba78-3",
            &text[..64],
            &text[1..],
            &upper,
            &padded,
            &long,
            "../x-3",
        ] {
            assert!(wrong.parse::<BlobReference>().is_err(), "{wrong}");
        }
    }
}
