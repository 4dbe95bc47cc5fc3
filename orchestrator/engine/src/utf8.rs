//! Text in chunks of bytes.

/// Takes the text before a character that is still incomplete, with invalid bytes replaced.
#[must_use]
pub fn take_whole_text(bytes: &mut Vec<u8>) -> String {
    let tail = bytes.utf8_chunks().last().map_or(0, |chunk| {
        // Invalid bytes at the end may be the start of a character.
        let is_start = |invalid: &[u8]| {
            std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none())
        };
        Some(chunk.invalid())
            .filter(|invalid| is_start(invalid))
            .map_or(0, <[u8]>::len)
    });
    let rest = bytes.split_off(bytes.len() - tail);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_character_waits_for_its_end() {
        let mut bytes = "a€".as_bytes()[..3].to_vec();
        assert_eq!(take_whole_text(&mut bytes), "a");
        bytes.extend_from_slice(&"€b".as_bytes()[2..]);
        assert_eq!(take_whole_text(&mut bytes), "€b");
        bytes.extend_from_slice(b"\xffc\xe2x\xe2");
        assert_eq!(take_whole_text(&mut bytes), "\u{fffd}c\u{fffd}x");
        assert_eq!(bytes, b"\xe2");
    }
}
