//! Parser of key names, with the properties of their keyboard events.

use engine::browsing::Modifier;

/// A key with its modifiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyStroke {
    pub(crate) key: String,
    pub(crate) code: String,
    /// The deprecated `keyCode`, which old pages read.
    pub(crate) key_code: u32,
    /// Typed text. `None` for a key that types nothing.
    pub(crate) text: Option<String>,
    pub(crate) modifiers: Vec<Modifier>,
}

/// Keys that type nothing, or whose text differs from their name.
const NAMED_KEYS: [(&str, u32, Option<&str>); 32] = [
    ("Enter", 13, Some("\r")),
    ("Tab", 9, None),
    ("Space", 32, Some(" ")),
    ("Backspace", 8, None),
    ("Delete", 46, None),
    ("Insert", 45, None),
    ("Escape", 27, None),
    ("ArrowLeft", 37, None),
    ("ArrowUp", 38, None),
    ("ArrowRight", 39, None),
    ("ArrowDown", 40, None),
    ("Home", 36, None),
    ("End", 35, None),
    ("PageUp", 33, None),
    ("PageDown", 34, None),
    ("Shift", 16, None),
    ("Control", 17, None),
    ("Alt", 18, None),
    ("Meta", 91, None),
    ("CapsLock", 20, None),
    ("F1", 112, None),
    ("F2", 113, None),
    ("F3", 114, None),
    ("F4", 115, None),
    ("F5", 116, None),
    ("F6", 117, None),
    ("F7", 118, None),
    ("F8", 119, None),
    ("F9", 120, None),
    ("F10", 121, None),
    ("F11", 122, None),
    ("F12", 123, None),
];

/// Characters of the US keyboard layout without Shift, and with Shift in the same order. Letters
/// are not included.
const UNSHIFTED: &str = "`1234567890-=[]\\;',./";
const SHIFTED: &str = "~!@#$%^&*()_+{}|:\"<>?";

/// Parses `Enter`, `a`, `Control+Shift+ArrowLeft`, `Control++`. `None` if the key is unknown.
pub(crate) fn parse(text: &str) -> Option<KeyStroke> {
    // The last key may be a plus sign.
    let (held, key) = match text.strip_suffix('+') {
        Some(held) => (held.strip_suffix('+').unwrap_or(held), "+"),
        None => text.rsplit_once('+').unwrap_or(("", text)),
    };
    let names = held.split('+').filter(|name| !name.is_empty());
    let modifiers = names.map(Modifier::find).collect::<Option<Vec<_>>>()?;
    let types_text = modifiers
        .iter()
        .all(|modifier| *modifier == Modifier::Shift);
    let typed = |text: &str| types_text.then(|| text.to_owned());
    if let Some((name, key_code, text)) = NAMED_KEYS.iter().find(|(name, ..)| *name == key) {
        let key = if *name == "Space" { " " } else { name };
        let text = text.and_then(typed);
        return Some(KeyStroke {
            key: key.into(),
            code: (*name).into(),
            key_code: *key_code,
            text,
            modifiers,
        });
    }
    let mut letters = key.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else {
        return None;
    };
    let upper = letter.to_ascii_uppercase();
    let (code, key_code) = match letter {
        _ if letter.is_ascii_alphabetic() => (format!("Key{upper}"), u32::from(upper)),
        _ if letter.is_ascii_digit() => (format!("Digit{letter}"), u32::from(letter)),
        ' ' => ("Space".to_owned(), 32),
        _ => (String::new(), 0),
    };
    let key = match UNSHIFTED
        .chars()
        .zip(SHIFTED.chars())
        .find(|(unshifted, _)| *unshifted == letter)
    {
        _ if !modifiers.contains(&Modifier::Shift) => letter.to_string(),
        Some((_, shifted)) => shifted.to_string(),
        None => letter.to_uppercase().collect(),
    };
    Some(KeyStroke {
        text: typed(&key),
        key,
        code,
        key_code,
        modifiers,
    })
}

/// Returns the protocol's bit mask of modifiers.
pub(crate) fn modifier_bits(modifiers: &[Modifier]) -> u32 {
    modifiers.iter().fold(0, |bits, modifier| {
        bits | match modifier {
            Modifier::Alt => 1,
            Modifier::Control => 2,
            Modifier::Meta => 4,
            Modifier::Shift => 8,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_are_parsed_into_strokes() {
        for (text, key, code, number, typed, held) in [
            ("Enter", "Enter", "Enter", 13, Some("\r"), 0),
            ("a", "a", "KeyA", 65, Some("a"), 0),
            ("Shift+a", "A", "KeyA", 65, Some("A"), 8),
            ("Shift+1", "!", "Digit1", 49, Some("!"), 8),
            ("Shift+/", "?", "", 0, Some("?"), 8),
            ("Shift+?", "?", "", 0, Some("?"), 8),
            ("Control+a", "a", "KeyA", 65, None, 2),
            ("Control+Alt+7", "7", "Digit7", 55, None, 3),
            ("+", "+", "", 0, Some("+"), 0),
            ("Meta++", "+", "", 0, None, 4),
            ("é", "é", "", 0, Some("é"), 0),
            ("Space", " ", "Space", 32, Some(" "), 0),
        ] {
            let stroke = parse(text).unwrap();
            let sent = (
                stroke.key.as_str(),
                stroke.code.as_str(),
                stroke.key_code,
                stroke.text.as_deref(),
            );
            assert_eq!(
                (sent, modifier_bits(&stroke.modifiers)),
                ((key, code, number, typed), held),
                "{text}"
            );
        }
        for text in ["", "Enterr", "Hyper+a", "ab"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
