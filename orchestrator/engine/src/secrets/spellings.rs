//! The spellings of a value: plain, and encoded in JSON, URLs, shell code and base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Levels of JSON within JSON: the arguments of a tool call are a string in a response, which is a
/// string again.
const JSON_LEVELS: usize = 2;

/// Characters that are escaped with a backslash within a shell's double quotes.
const IN_DOUBLE_QUOTES: &str = "\\\"$`";

/// Characters that are escaped with a backslash outside of quotes in a shell.
const OUTSIDE_QUOTES: &str = "\\\"$`' \t&|;<>()*?[]{}!^,";

/// Minimum length of a line of a key, in bytes. Programs wrap keys at 64 to 76 characters.
const MIN_KEY_LINE: usize = 40;

/// Minimum length of the last line of such a key, in bytes.
const MIN_LAST_KEY_LINE: usize = 12;

/// All spellings of a set of values.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    /// Spellings without line breaks.
    pub(super) whole: Vec<Vec<u8>>,
    /// Spellings that may be wrapped.
    pub(super) wrapped: Vec<Vec<u8>>,
}

impl Spellings {
    pub(super) fn add(&mut self, value: &str) {
        // A terminal has other line endings, and the text of a web page has none.
        let in_a_page = value.split_whitespace().collect::<Vec<_>>().join(" ");
        for value in [
            value.to_owned(),
            value.replace('\n', "\r\n"),
            value.trim_end().to_owned(),
            in_a_page,
        ] {
            self.whole.extend(in_url(&value));
            // The command of a model is shell code within JSON.
            for text in in_shell(&value) {
                self.whole
                    .extend(in_json(&text).into_iter().map(String::into_bytes));
            }
            self.wrapped.extend(in_base64(value.as_bytes()));
        }
        // An excerpt of a key consists of whole lines, of which the last is shorter. The header and
        // footer are not secret.
        let lines = value
            .lines()
            .filter(|line| !line.contains([' ', '\t']) && !line.starts_with("----"));
        if lines.clone().any(|line| line.len() >= MIN_KEY_LINE) {
            self.whole.extend(
                lines
                    .filter(|line| line.len() >= MIN_LAST_KEY_LINE)
                    .map(Vec::from),
            );
        }
        let is_long = |spelling: &Vec<u8>| spelling.len() >= super::MIN_SECRET_BYTES;
        self.whole.retain(is_long);
        self.wrapped.retain(is_long);
    }
}

/// Returns the value itself, and its spellings as a shell word, as `set -x`, `export -p` and
/// `printf %q` print it.
fn in_shell(value: &str) -> impl Iterator<Item = String> {
    let escaped = |special: &str| {
        let escape = |character: char| {
            if special.contains(character) {
                format!("\\{character}")
            } else {
                character.into()
            }
        };
        value.chars().map(escape).collect::<String>()
    };
    let quoted = [
        value.to_owned(),
        value.replace('\'', r"'\''"),
        value.replace('\'', "'\"'\"'"),
    ];
    let with_names = [true, false].map(|is_ascii| {
        value
            .chars()
            .map(|character| named(character, is_ascii))
            .collect()
    });
    quoted
        .into_iter()
        .chain([escaped(IN_DOUBLE_QUOTES), escaped(OUTSIDE_QUOTES)])
        .chain(with_names)
}

/// Escapes a character within `$'…'`.
fn named(character: char, is_ascii: bool) -> String {
    match character {
        '\\' | '\'' => format!("\\{character}"),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        character if character.is_ascii_control() || (is_ascii && !character.is_ascii()) => {
            character
                .encode_utf8(&mut [0; 4])
                .bytes()
                .map(|byte| format!("\\{byte:03o}"))
                .collect()
        }
        plain => plain.into(),
    }
}

/// Returns the text itself, and its spellings within JSON strings, with and without escapes of
/// non-ASCII characters.
fn in_json(text: &str) -> Vec<String> {
    let mut found = vec![text.to_owned()];
    for escape in [
        |character: char| json_escape(character, false),
        |character| json_escape(character, true),
    ] {
        let mut text = text.to_owned();
        for _ in 0..JSON_LEVELS {
            text = text.chars().map(escape).collect();
            found.push(text.clone());
            found.push(text.replace('/', "\\/"));
        }
    }
    found
}

fn json_escape(character: char, is_ascii: bool) -> String {
    match character {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        '\u{8}' => "\\b".into(),
        '\u{c}' => "\\f".into(),
        control if control < ' ' => format!("\\u{:04x}", u32::from(control)),
        wide if is_ascii && !wide.is_ascii() => wide
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| format!("\\u{unit:04x}"))
            .collect(),
        plain => plain.into(),
    }
}

/// Returns the percent-encoded spellings. Programs differ in the characters they keep, the case of
/// the hex digits, and the encoding of a blank.
fn in_url(value: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for plain in ["-._~", "-._~/", "-_.!~*'()", "-_.!~*'();/?:@&=+$,#"] {
        for is_upper in [true, false] {
            for blank in ["%20", "+"] {
                let encode = |byte: u8| match byte {
                    b' ' => blank.to_owned(),
                    byte if byte.is_ascii_alphanumeric() || plain.as_bytes().contains(&byte) => {
                        char::from(byte).to_string()
                    }
                    byte if is_upper => format!("%{byte:02X}"),
                    byte => format!("%{byte:02x}"),
                };
                found.push(value.bytes().map(encode).collect::<String>().into_bytes());
            }
        }
    }
    found
}

/// Returns the base64 spellings at each of the three possible alignments, without the letters at
/// the ends that depend on the adjacent bytes.
fn in_base64(value: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for before in 0..3_usize {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value);
        let letters = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&bytes).into_bytes();
            found.extend(text.get(letters.clone()).map(<[u8]>::to_vec));
        }
    }
    found
}
