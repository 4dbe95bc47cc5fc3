//! The forms in which a value turns up: as it is, and as programs write it into JSON, URLs, shell code and base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// What JSON is within JSON: a model's call holds its arguments as text, in a response that is text again.
const JSON_LEVELS: usize = 2;

/// What of a shell's syntax is written with a backslash in double quotes.
const IN_DOUBLE_QUOTES: &str = "\\\"$`";

/// What a shell takes for itself outside of quotes.
const OUTSIDE_QUOTES: &str = "\\\"$`' \t&|;<>()*?[]{}!^,";

/// The least length of a line, in bytes, that is taken for one of a key: programs write 64 to 76 letters.
const KEY_LINE: usize = 40;

/// The same of one beside such lines.
const LAST_KEY_LINE: usize = 12;

/// All forms of some values.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    /// Those that stand in a text as one piece.
    pub(super) whole: Vec<Vec<u8>>,
    /// Those that lines may end in.
    pub(super) wrapped: Vec<Vec<u8>>,
}

impl Spellings {
    pub(super) fn add(&mut self, value: &str) {
        // A terminal ends its lines in another way, and a page is told without any.
        let in_a_page = value.split_whitespace().collect::<Vec<_>>().join(" ");
        for value in [value.to_owned(), value.replace('\n', "\r\n"), value.trim_end().to_owned(), in_a_page] {
            self.whole.extend(in_url(&value));
            // A model's command is shell code within JSON.
            for text in in_shell(&value) {
                self.whole.extend(in_json(&text).into_iter().map(String::into_bytes));
            }
            self.wrapped.extend(in_base64(value.as_bytes()));
        }
        // Who looks at a part of a key sees whole lines of it, the last one shorter. What stands around it is every key's.
        let lines = value.lines().filter(|line| !line.contains([' ', '\t']) && !line.starts_with("----"));
        if lines.clone().any(|line| line.len() >= KEY_LINE) {
            self.whole.extend(lines.filter(|line| line.len() >= LAST_KEY_LINE).map(Vec::from));
        }
        let is_long = |spelling: &Vec<u8>| spelling.len() >= super::SHORTEST;
        self.whole.retain(is_long);
        self.wrapped.retain(is_long);
    }
}

/// The value itself, and as words of shell code, which is how `set -x`, `export -p` and `printf %q` tell it.
fn in_shell(value: &str) -> impl Iterator<Item = String> {
    let escaped = |special: &str| {
        let escape =
            |letter: char| if special.contains(letter) { format!("\\{letter}") } else { letter.into() };
        value.chars().map(escape).collect::<String>()
    };
    let quoted = [value.to_owned(), value.replace('\'', r"'\''"), value.replace('\'', "'\"'\"'")];
    let with_names =
        [true, false].map(|is_ascii| value.chars().map(|letter| named(letter, is_ascii)).collect());
    quoted.into_iter().chain([escaped(IN_DOUBLE_QUOTES), escaped(OUTSIDE_QUOTES)]).chain(with_names)
}

/// A letter within `$'…'`.
fn named(letter: char, is_ascii: bool) -> String {
    match letter {
        '\\' | '\'' => format!("\\{letter}"),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        letter if letter.is_ascii_control() || (is_ascii && !letter.is_ascii()) => {
            letter.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
        plain => plain.into(),
    }
}

/// A text itself, and as text within JSON, with and without what lies outside ASCII.
fn in_json(text: &str) -> Vec<String> {
    let mut found = vec![text.to_owned()];
    for escape in [|character: char| json_escape(character, false), |character| json_escape(character, true)]
    {
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
        wide if is_ascii && !wide.is_ascii() => {
            wide.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
        plain => plain.into(),
    }
}

/// Programs differ in what they leave as it is, in the case of the digits, and in what a blank becomes.
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

/// What base64 makes of a value at each of the three places where it may begin, without the letters at its ends that
/// depend on its neighbours.
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
