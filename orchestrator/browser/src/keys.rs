//! Parser of key names, with the properties of their keyboard events.

use engine::browsing::Modifier;

/// A key with its modifiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stroke {
    pub(crate) key: String,
    pub(crate) code: String,
    /// The deprecated `keyCode`, which old pages read.
    pub(crate) number: u32,
    /// Typed text. `None` for a key that types nothing.
    pub(crate) text: Option<String>,
    pub(crate) modifiers: Vec<Modifier>,
}

/// Keys that type nothing, or whose text differs from their name.
const NAMED: [(&str, u32, Option<&str>); 32] = [
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

/// Parses `Enter`, `a`, `Control+Shift+ArrowLeft`, `Control++`. `None` if the key is unknown.
pub(crate) fn stroke(text: &str) -> Option<Stroke> {
    // The last key may be a plus sign.
    let (held, key) = match text.strip_suffix('+') {
        Some(held) => (held.strip_suffix('+').unwrap_or(held), "+"),
        None => text.rsplit_once('+').unwrap_or(("", text)),
    };
    let names = held.split('+').filter(|name| !name.is_empty());
    let modifiers = names.map(Modifier::find).collect::<Option<Vec<_>>>()?;
    let types = !modifiers.iter().any(|held| *held != Modifier::Shift);
    let typed = |text: &str| types.then(|| text.to_owned());
    if let Some((name, number, text)) = NAMED.iter().find(|(name, ..)| *name == key) {
        let key = if *name == "Space" { " " } else { name };
        let text = text.and_then(typed);
        return Some(Stroke { key: key.into(), code: (*name).into(), number: *number, text, modifiers });
    }
    let mut letters = key.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
    let upper = letter.to_ascii_uppercase();
    let (code, number) = match letter {
        _ if letter.is_ascii_alphabetic() => (format!("Key{upper}"), u32::from(upper)),
        _ if letter.is_ascii_digit() => (format!("Digit{letter}"), u32::from(letter)),
        ' ' => ("Space".to_owned(), 32),
        _ => (String::new(), 0),
    };
    let key = match modifiers.contains(&Modifier::Shift) {
        true => letter.to_uppercase().collect(),
        false => letter.to_string(),
    };
    Some(Stroke { text: typed(&key), key, code, number, modifiers })
}

/// Returns the protocol's bit mask of modifiers.
pub(crate) fn bits(modifiers: &[Modifier]) -> u32 {
    let bit = |held: &Modifier| match held {
        Modifier::Alt => 1,
        Modifier::Control => 2,
        Modifier::Meta => 4,
        Modifier::Shift => 8,
    };
    modifiers.iter().map(bit).fold(0, |all, bit| all | bit)
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
            ("Control+a", "a", "KeyA", 65, None, 2),
            ("Control+Alt+7", "7", "Digit7", 55, None, 3),
            ("+", "+", "", 0, Some("+"), 0),
            ("Meta++", "+", "", 0, None, 4),
            ("é", "é", "", 0, Some("é"), 0),
            ("Space", " ", "Space", 32, Some(" "), 0),
        ] {
            let stroke = stroke(text).unwrap();
            let sent = (stroke.key.as_str(), stroke.code.as_str(), stroke.number, stroke.text.as_deref());
            assert_eq!((sent, bits(&stroke.modifiers)), ((key, code, number, typed), held), "{text}");
        }
        for text in ["", "Enterr", "Hyper+a", "ab"] {
            assert_eq!(stroke(text), None, "{text}");
        }
    }
}
