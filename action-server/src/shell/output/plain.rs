//! Finds the length of plain text, eight bytes at a time, because all output is scanned.

/// Repeats a byte.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns the number of bytes at the start that are printable ASCII or tabs.
pub(super) fn text_length(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let whole = words
        .iter()
        .take_while(|word| is_printable(u64::from_ne_bytes(**word)))
        .count()
        * 8;
    let rest = bytes.get(whole..).unwrap_or_default();
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    match rest.iter().position(|byte| !is_text(byte)) {
        Some(length) => whole + length,
        None => bytes.len(),
    }
}

/// Returns whether all eight bytes are in `' '..='~'`: for any other, the sum, the difference or
/// the byte has its highest bit set.
fn is_printable(word: u64) -> bool {
    // A carry or borrow only comes from a byte that has its highest bit set.
    (word | word.wrapping_add(all(1)) | word.wrapping_sub(all(b' '))) & all(0x80) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_classified() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                let mut bytes = [b'x'; 8];
                bytes[place] = byte;
                let is_printable = is_printable(u64::from_ne_bytes(bytes));
                assert_eq!(
                    is_printable,
                    (b' '..=b'~').contains(&byte),
                    "{byte} at {place}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn length_is_equal_to_a_bytewise_scan(bytes in proptest::collection::vec(prop_oneof![9 => b' '..=b'~', 1 => any::<u8>()], 0..60)) {
            let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\t');
            let length = bytes.iter().take_while(|&&byte| is_text(byte)).count();
            prop_assert_eq!(text_length(&bytes), length);
        }
    }
}
