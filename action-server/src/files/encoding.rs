//! Keeps edits from mixing encodings in a file that is not UTF-8.
//!
//! The encoding is not guessed: a detector is often wrong about short files, and a wrong guess
//! would be written back. Text of ASCII can be edited in all encodings that extend ASCII, because
//! other bytes stay as they are.

use super::error::FileError;
use super::resolved_path::ResolvedPath;

/// Trail bytes of GBK, Shift-JIS and Big5 that are also ASCII characters.
const ASCII_TRAIL_BYTES: std::ops::RangeInclusive<u8> = 0x30..=0x7e;

/// Returns whether the file has another encoding than UTF-8. A few invalid bytes among UTF-8 are
/// damage, and no other encoding.
pub(super) fn is_foreign(file: &[u8]) -> bool {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in file.utf8_chunks() {
        valid += chunk.valid().bytes().filter(|byte| *byte >= 0xc0).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    invalid > valid
}

/// Returns whether the file starts with a byte order mark of UTF-16.
pub(super) fn is_utf16(file: &[u8]) -> bool {
    file.starts_with(b"\xff\xfe") || file.starts_with(b"\xfe\xff")
}

/// Checks that `text` can be searched in the file and added to it.
pub(super) fn check_text(path: &ResolvedPath, file: &[u8], text: &str) -> Result<(), FileError> {
    let path = || path.display_path().to_owned();
    match () {
        () if is_utf16(file) => Err(FileError::Utf16(path())),
        () if !text.is_ascii() && is_foreign(file) => Err(FileError::MixedEncodings(path())),
        () => Ok(()),
    }
}

/// Returns whether the character at `at` may be the second half of a character whose first half is
/// not UTF-8.
pub(super) fn may_be_trail_byte(file: &[u8], chunk_start: usize, at: usize) -> bool {
    at == chunk_start && at > 0 && ASCII_TRAIL_BYTES.contains(&file[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_encodings_are_recognized() {
        let latin1 = b"caf\xe9 = 1\n";
        let gbk = b"\xc4\xe3\xba\xc3\n";
        let shift_jis = b"\x93\xfa\x96{\n";
        for file in [&latin1[..], gbk, shift_jis, b"\x93quoted\x94"] {
            assert!(is_foreign(file), "{file:?}");
        }
        for file in ["", "ascii", "caf\u{e9}", "\u{4f60}\u{597d}"] {
            assert!(!is_foreign(file.as_bytes()), "{file}");
        }
        assert!(
            !is_foreign(b"\xe4\xbd\xa0\xe5\xa5\xbd \xff"),
            "damaged UTF-8"
        );
        assert!(is_utf16(b"\xff\xfea\0") && is_utf16(b"\xfe\xff\0a") && !is_utf16(b"\xff"));
    }
}
