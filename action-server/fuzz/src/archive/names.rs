//! Names and permissions of entries.

use std::path::Path;

use super::Choices;

/// Parts of names: few, so that entries conflict; some of existing files; some invalid.
const PARTS: [&str; 11] = [
    "a", "b", "c", "old", "sub", "link", "..", ".", "", "a\0b", "\u{e9}\n",
];

const MODES: [u32; 8] = [0o644, 0o755, 0o777, 0, 0o4755, 0o2755, 0o1777, 0o6777];

pub(super) fn mode(choices: &mut Choices<'_>) -> u32 {
    choices.one_of(&MODES)
}

/// Returns a path, rarely one into the adjacent folder that must not change.
pub(super) fn path(choices: &mut Choices<'_>, target: &Path) -> Vec<u8> {
    if choices.is_rare() {
        let outside = target
            .with_file_name("outside")
            .join(choices.one_of(&PARTS));
        return outside.into_os_string().into_encoded_bytes();
    }
    let parts: Vec<&str> = (0..=choices.below(3))
        .map(|_| choices.one_of(&PARTS))
        .collect();
    parts.join("/").into_bytes()
}
