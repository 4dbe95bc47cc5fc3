//! Shortens texts that come from outside, in V0's words.

use std::borrow::Cow;

/// What V0 puts in the place of what is left out.
const NOTICE: &str = "\n[... Observation truncated due to length ...]\n";

/// The text without its middle if it has more than `max_chars` characters. Keeps as much of the start as of the end.
pub fn cut_middle(text: &str, max_chars: usize) -> Cow<'_, str> {
    // Most texts are far shorter, and their characters need not be counted.
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return text.into();
    }
    let half = max_chars / 2;
    let start_end = text.char_indices().nth(half).map_or(text.len(), |(at, _)| at);
    let end_start = text.char_indices().rev().take(half).last().map_or(text.len(), |(at, _)| at);
    format!("{}{NOTICE}{}", &text[..start_end], &text[end_start..]).into()
}

#[cfg(test)]
mod tests {
    use super::{NOTICE, cut_middle};

    #[test]
    fn start_and_end_are_kept_and_short_texts_are_untouched() {
        assert_eq!(cut_middle("fünf!", 5), "fünf!");
        assert_eq!(cut_middle("schön & güt", 6), format!("sch{NOTICE}güt"));
        assert_eq!(cut_middle("schön & güt", 7), format!("sch{NOTICE}güt"));
        assert_eq!(cut_middle("ab", 1), NOTICE);
    }
}
