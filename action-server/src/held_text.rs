//! Texts that the program holds compressed: its build script makes them.

use std::io::{self, Read as _};

use flate2::read::DeflateDecoder;

/// The text again.
///
/// # Errors
/// None for what the build script has made.
pub(crate) fn inflate(deflated: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    DeflateDecoder::new(deflated).read_to_string(&mut text)?;
    Ok(text)
}
