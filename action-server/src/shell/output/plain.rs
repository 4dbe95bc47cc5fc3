//! How far plain text goes: eight bytes at a look, because a flood of output is looked at whole.

/// The same byte in all places.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// How many bytes at the beginning are printable ASCII or tabs.
pub(super) fn text_length(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let whole = words.iter().take_while(|word| is_printable(u64::from_ne_bytes(**word))).count() * 8;
    let rest = bytes.get(whole..).unwrap_or_default();
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    match rest.iter().position(|byte| !is_text(byte)) {
        Some(length) => whole + length,
        None => bytes.len(),
    }
}

/// Whether all eight are in `' '..='~'`: of any other, the sum, the difference or the byte itself has its highest bit set.
fn is_printable(word: u64) -> bool {
    // A carry or borrow comes only from a byte that has its own bit set already.
    (word | word.wrapping_add(all(1)) | word.wrapping_sub(all(b' '))) & all(0x80) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_told() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                let mut bytes = [b'x'; 8];
                bytes[place] = byte;
                let is_printable = is_printable(u64::from_ne_bytes(bytes));
                assert_eq!(is_printable, (b' '..=b'~').contains(&byte), "{byte} at {place}");
            }
        }
    }

    proptest! {
        #[test]
        fn it_goes_as_far_as_byte_by_byte(bytes in proptest::collection::vec(prop_oneof![9 => b' '..=b'~', 1 => any::<u8>()], 0..60)) {
            let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\t');
            let length = bytes.iter().take_while(|&&byte| is_text(byte)).count();
            prop_assert_eq!(text_length(&bytes), length);
        }
    }
}
