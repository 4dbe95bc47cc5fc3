//! Texts that the build script has compressed into the binary.

use std::io::{self, Read as _};

use flate2::read::DeflateDecoder;

/// Decompresses the text.
///
/// # Errors
/// `deflated` is not output of the build script.
pub(crate) fn inflate(deflated: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    DeflateDecoder::new(deflated).read_to_string(&mut text)?;
    Ok(text)
}
