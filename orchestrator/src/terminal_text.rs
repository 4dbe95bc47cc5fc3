//! Sanitizes text of sandboxes, models and repositories for a terminal.
//!
//! A terminal acts on control characters of both sets, C0 and C1: they move the cursor, set the
//! title, or write to the clipboard. Format characters (Unicode's category Cf, with the
//! bidirectional controls) make text read as other than it is.

use std::borrow::Cow;

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Whether a character is in category Cf. Excludes the joiners, which scripts and emoji need and
/// which reorder no text.
fn is_format(character: char) -> bool {
    category(character) == GeneralCategory::Format && !matches!(character, '\u{200c}' | '\u{200d}')
}

/// Whether a character has no glyph of its own: format characters, line separators, fillers,
/// variation selectors, tags.
fn is_invisible(character: char) -> bool {
    matches!(
        category(character),
        GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    ) || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character)
}

fn category(character: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(character)
}

/// Replaces C1 controls and format characters by JSON escapes (`\u009b`). In JSON they occur only
/// in strings, where the escape has the same meaning. C0 controls stay, because JSON escapes them
/// already and colours and line ends consist of them.
pub(crate) fn escape_controls(text: &str) -> Cow<'_, str> {
    let is_escaped =
        |character: char| matches!(character, '\u{7f}'..='\u{9f}') || is_format(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_escaped(character) {
            true => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units).iter();
                escaped.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// Escapes the C0 controls of a log line as `\x1b`, except line ends, tabs and the colours of the
/// log.
pub(crate) fn escape_log_controls(text: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| character < ' ' && !matches!(character, '\n' | '\t');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for (at, character) in text.char_indices() {
        if is_escaped(character) && !is_colour(&text[at..]) {
            escaped.push_str(&format!("\\x{:02x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Whether a text starts with a sequence that only changes colours and weight.
fn is_colour(text: &str) -> bool {
    let digits = text.strip_prefix("\u{1b}[").map(|rest| {
        rest.trim_start_matches(|character: char| character.is_ascii_digit() || character == ';')
    });
    digits.is_some_and(|rest| rest.starts_with('m'))
}

/// Removes everything that a terminal would interpret. Only printable characters, tabs and line
/// ends stay. A carriage return before a line end is dropped. Any other one becomes a line end, so
/// that no text is overwritten.
pub(crate) fn for_terminal(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\r' if characters.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            '\n' | '\t' => clean.push(character),
            character if character.is_control() || is_format(character) => {}
            character => clean.push(character),
        }
    }
    clean
}

/// Escapes everything that a terminal would interpret or not show, as `\x1b` or `\u{202e}`, so that
/// users read what they approve. Line ends and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            '\r' => shown.push_str("\\r"),
            character if character.is_control() => {
                shown.push_str(&format!("\\x{:02x}", u32::from(character)));
            }
            character if is_invisible(character) => {
                shown.extend(character.escape_unicode());
            }
            character => shown.push(character),
        }
    }
    shown
}

/// Escapes text like [`visible`], and line ends too.
pub(crate) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

/// Skips an escape sequence: CSI up to its final byte, a string sequence such as OSC up to its
/// terminator. Stops at the end of the line, so that an unterminated sequence cannot hide the rest
/// of the text.
fn skip_escape(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match characters.next_if(|character| *character != '\n') {
        Some('[') => {
            while let Some(character) = characters.next_if(|character| *character != '\n') {
                if ('\u{40}'..='\u{7e}').contains(&character) {
                    break;
                }
            }
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(character) = characters.next_if(|character| *character != '\n') {
                if character == '\u{7}' {
                    break;
                }
                if character == '\u{1b}' {
                    characters.next_if_eq(&'\\');
                    break;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{escape_controls, escape_log_controls, for_terminal, visible, visible_line};

    #[test]
    fn log_has_no_controls_but_colours() {
        let text = "\u{1b}[2;31mERROR\u{1b}[0m a\tb\u{1b}]0;title\u{7} \u{1b}[2J\r\n";
        let shown = "\u{1b}[2;31mERROR\u{1b}[0m a\tb\\x1b]0;title\\x07 \\x1b[2J\\x0d\n";
        assert_eq!(escape_log_controls(text), shown);
    }

    #[test]
    fn control_sequences_are_removed_for_the_terminal() {
        for (hostile, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]52;c;aGk=\u{1b}\\after", "after"),
            ("50%\r100%\r\n", "50%\n100%\n"),
            ("a\u{8}b\u{7}\u{9b}2Jc", "ab2Jc"),
            ("evil\u{202e}txt\u{200f}\u{61c}", "eviltxt"),
            (
                "a\u{ad}b\u{200b}\u{2062}\u{feff}\u{fffb}\u{13430}\u{1d173}\u{e0041}c",
                "abc",
            ),
            // Joiners: Persian, a family.
            (
                "می\u{200c}خواهم \u{1f469}\u{200d}\u{1f467}",
                "می\u{200c}خواهم \u{1f469}\u{200d}\u{1f467}",
            ),
            ("cut \u{1b}[", "cut "),
            ("\u{1b}]never ended\nrm -rf x", "\nrm -rf x"),
        ] {
            assert_eq!(for_terminal(hostile), shown);
        }
    }

    #[test]
    fn hidden_and_control_characters_are_made_visible() {
        for (hostile, shown) in [
            ("plain\ttext\näöü 漢字 🦀", "plain\ttext\näöü 漢字 🦀"),
            ("\u{1b}]0;title\u{7}", "\\x1b]0;title\\x07"),
            ("a\u{9b}2Jb\u{8}\u{7f}\0", "a\\x9b2Jb\\x08\\x7f\\x00"),
            ("evil\u{202e}txt\u{2069}", "evil\\u{202e}txt\\u{2069}"),
            ("r\u{200b}m\u{e0041}\r", "r\\u{200b}m\\u{e0041}\\r"),
        ] {
            assert_eq!(visible(hostile), shown);
        }
        // Of each kind: category Cf with the bidirectional controls, separators, fillers,
        // selectors.
        for invisible in "\u{ad}\u{600}\u{61c}\u{6dd}\u{70f}\u{890}\u{8e2}\u{180e}\u{200c}\u{200d}\u{2064}\u{2069}\u{206f}\u{feff}\
                          \u{fff9}\u{110bd}\u{110cd}\u{1343f}\u{1bca3}\u{1d17a}\u{e0001}\u{2028}\u{2029}\u{34f}\u{115f}\u{3164}\u{ffa0}\
                          \u{fe0f}\u{e0100}"
            .chars()
        {
            assert_eq!(visible(&invisible.to_string()), invisible.escape_unicode().to_string());
        }
        assert_eq!(visible_line("a\nb"), "a\\nb");
    }

    #[test]
    fn json_has_the_same_value_when_controls_are_escaped() {
        let value = serde_json::json!({"\u{9b}2J": ["a\u{202e}b\u{85}\u{e0041}", "größer \u{1f9e4}", "\u{1b}\u{7f}\n"]});
        for text in [value.to_string(), format!("{value:#}")] {
            let escaped = escape_controls(&text);
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
                value
            );
            assert_eq!(for_terminal(&escaped), escaped);
        }
    }
}
