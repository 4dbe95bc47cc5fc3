//! For a text that was not found: the lines of the file that come nearest to it, so that the next try fits.

use crate::files::lines::Lines;

/// Longer files are not looked through; the shell is the better tool there.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Shown of the candidate.
const MAX_LINES: usize = 20;

/// Lines longer than this are compared by their beginning.
const MAX_COMPARED_CHARS: usize = 200;

/// Below this, what is nearest has nothing to do with the text.
const LEAST_SIMILARITY: f64 = 0.5;

/// A sentence with numbered lines, or nothing.
pub(super) fn told(file: &[u8], text: &str) -> String {
    match nearest_line(file, text) {
        None => String::new(),
        Some(found) => {
            let blank = text.lines().take_while(|line| line.trim().is_empty()).count();
            let count = text.trim_end().lines().count().saturating_sub(blank).clamp(1, MAX_LINES);
            format!(" The nearest text in the file is:\n{}", Lines::of(file).numbered(found..found + count))
        }
    }
}

/// The index of the line that is most like the text's first line.
fn nearest_line(file: &[u8], text: &str) -> Option<usize> {
    if file.len() > MAX_FILE_BYTES {
        return None;
    }
    let wanted = pairs(text.lines().find(|line| !line.trim().is_empty())?);
    let lines = Lines::of(file);
    let similarities = (0..lines.count())
        .map(|index| (index, similarity(&wanted, &pairs(&String::from_utf8_lossy(lines.text(index))))));
    let (index, similarity) =
        similarities.fold((0, 0.0), |best, next| if next.1 > best.1 { next } else { best });
    (similarity >= LEAST_SIMILARITY).then_some(index)
}

/// Pairs of neighbouring characters, each once and sorted, blanks left out: what models get wrong most is blanks. Not
/// hashed: how long that takes is different every time, which a fuzzer takes for news.
fn pairs(line: &str) -> Vec<(char, char)> {
    let chars = || line.chars().filter(|char| !char.is_whitespace()).take(MAX_COMPARED_CHARS);
    // A line's beginning is a pair too, so that a single character has one.
    let mut pairs: Vec<_> = std::iter::once('\n').chain(chars()).zip(chars()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Twice what both have, by what they have together: 1 for the same, 0 for nothing in common.
fn similarity(one: &[(char, char)], other: &[(char, char)]) -> f64 {
    let all = one.len() + other.len();
    let common = one.iter().filter(|pair| other.binary_search(pair).is_ok()).count();
    if all == 0 { 0.0 } else { 2.0 * common as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_lines_are_shown() {
        let file = b"import os\n\ndef main():\n\tprint('hello world')\n\treturn 0\n";
        assert_eq!(
            told(file, "    print('helo world')\n    return 0\n"),
            " The nearest text in the file is:\n     4\t\tprint('hello world')\n     5\t\treturn 0\n"
        );
        assert_eq!(told(file, "class Nothing: 7"), "");
        assert_eq!(told(b"", "x"), "");
    }
}
