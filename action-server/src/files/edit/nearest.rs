//! Finds the lines that are most similar to a text that was not found, so that the model can
//! correct its next call.

use crate::files::lines::Lines;

/// Longer files are not searched. The shell is the better tool for them.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Maximum number of similar lines that are shown.
const MAX_LINES: usize = 20;

/// Only the start of a longer line is compared.
const MAX_COMPARED_CHARS: usize = 200;

/// Less similar lines are unrelated to the text.
const MIN_SIMILARITY: f64 = 0.5;

/// Returns a sentence with numbered lines. Empty if no line is similar.
pub(super) fn describe(file: &[u8], text: &str) -> String {
    match nearest_line(file, text) {
        None => String::new(),
        Some(found) => {
            let blank = text
                .lines()
                .take_while(|line| line.trim().is_empty())
                .count();
            let count = text
                .trim_end()
                .lines()
                .count()
                .saturating_sub(blank)
                .clamp(1, MAX_LINES);
            format!(
                " The nearest text in the file is:\n{}",
                Lines::new(file).numbered(found..found + count)
            )
        }
    }
}

/// Returns the index of the line that is most similar to the first line of the text.
fn nearest_line(file: &[u8], text: &str) -> Option<usize> {
    if file.len() > MAX_FILE_BYTES {
        return None;
    }
    let first_line = pairs(text.lines().find(|line| !line.trim().is_empty())?);
    let lines = Lines::new(file);
    let similarities = (0..lines.count()).map(|index| {
        (
            index,
            similarity(
                &first_line,
                &pairs(&String::from_utf8_lossy(lines.text(index))),
            ),
        )
    });
    let (index, similarity) =
        similarities.fold(
            (0, 0.0),
            |best, next| if next.1 > best.1 { next } else { best },
        );
    (similarity >= MIN_SIMILARITY).then_some(index)
}

/// Returns the distinct pairs of adjacent characters, sorted. Whitespace is ignored, because that
/// is what models get wrong most often. Not a hash set: its timing varies between runs, which would
/// confuse the fuzzer.
fn pairs(line: &str) -> Vec<(char, char)> {
    let chars = || {
        line.chars()
            .filter(|char| !char.is_whitespace())
            .take(MAX_COMPARED_CHARS)
    };
    // The start of the line is part of a pair, so that a single character has one.
    let mut pairs: Vec<_> = std::iter::once('\n').chain(chars()).zip(chars()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns the Dice coefficient: 1 for equal sets, 0 for disjoint ones.
fn similarity(one: &[(char, char)], other: &[(char, char)]) -> f64 {
    let all = one.len() + other.len();
    let common = one
        .iter()
        .filter(|pair| other.binary_search(pair).is_ok())
        .count();
    if all == 0 {
        0.0
    } else {
        2.0 * common as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_lines_are_described() {
        let file = b"import os\n\ndef main():\n\tprint('hello world')\n\treturn 0\n";
        assert_eq!(
            describe(file, "    print('helo world')\n    return 0\n"),
            " The nearest text in the file is:\n     4\t\tprint('hello world')\n     5\t\treturn 0\n"
        );
        assert_eq!(describe(file, "class Nothing: 7"), "");
        assert_eq!(describe(b"", "x"), "");
    }
}
