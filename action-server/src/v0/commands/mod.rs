//! A text for a shell, cut into its top-level commands, for V0's rule that there is only one of them at a time.
//!
//! It reads bash's grammar only as far as a command's end can be told: by the line, unless a quote, a substitution, a
//! here-document, a compound command or an operator goes on. Where it is unsure the text is one command: a command that
//! is run is better than one that is refused by mistake. Pure, never fails, and linear but for a bounded factor.

mod grammar;
mod tokens;
mod words;

#[cfg(test)]
mod tests;

use tokens::Reader;

/// A longer text is not looked at: agents write less, and this is done while others wait.
const MAX_TEXT_BYTES: usize = 128 << 10;

/// Something that is not understood, or goes deeper than is looked.
#[derive(Debug)]
struct Unsure;

type Parsed<T> = Result<T, Unsure>;

/// The commands of `text`, each with the blanks and comments that follow it. Joined they are the text.
pub(super) fn split(text: &str) -> Vec<&str> {
    if text.len() > MAX_TEXT_BYTES {
        return vec![text];
    }
    let starts = Reader::new(text).command_starts().unwrap_or_default();
    let mut pieces = Vec::with_capacity(starts.len().max(1));
    let mut rest = text;
    // From the end, so that what comes before the first command stays with it.
    for start in starts.into_iter().skip(1).rev() {
        // A command begins with an ASCII character or after one, never within a character.
        let Some((before, piece)) = rest.split_at_checked(start) else { return vec![text] };
        pieces.push(piece);
        rest = before;
    }
    pieces.push(rest);
    pieces.reverse();
    pieces
}
