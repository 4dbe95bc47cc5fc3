//! Truncates long text, with V0's notice.

use std::borrow::Cow;

/// V0's replacement for the removed text.
const NOTICE: &str = "\n[... Observation truncated due to length ...]\n";

/// Removes the middle of a text that has more than `max_chars` characters. Keeps the same amount of
/// its start and end.
pub fn cut_middle(text: &str, max_chars: usize) -> Cow<'_, str> {
    // Avoids counting the characters of a short text.
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return text.into();
    }
    let half = max_chars / 2;
    let head_end = text
        .char_indices()
        .nth(half)
        .map_or(text.len(), |(index, _)| index);
    let tail_start = text
        .char_indices()
        .rev()
        .take(half)
        .last()
        .map_or(text.len(), |(index, _)| index);
    format!("{}{NOTICE}{}", &text[..head_end], &text[tail_start..]).into()
}

#[cfg(test)]
mod tests {
    use super::{NOTICE, cut_middle};

    #[test]
    fn long_texts_keep_start_and_end_short_ones_are_unchanged() {
        assert_eq!(cut_middle("fünf!", 5), "fünf!");
        assert_eq!(cut_middle("schön & güt", 6), format!("sch{NOTICE}güt"));
        assert_eq!(cut_middle("schön & güt", 7), format!("sch{NOTICE}güt"));
        assert_eq!(cut_middle("ab", 1), NOTICE);
    }
}
