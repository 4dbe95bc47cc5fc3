//! Splits a shell text into its top-level commands, for V0's rule that a request contains only one.
//!
//! Parses bash's grammar only as far as needed to find the end of a command. That is the end of the line, unless a quote,
//! substitution, here-document, compound command or operator continues. Text that is not understood counts as one command: running
//! it is better than rejecting it by mistake. Never fails. Takes linear time, except for a bounded factor.
//!
//! Hand-written because the text is hostile: brush-parser 0.4 takes exponential time for parentheses that are not closed, and
//! overflows the stack at 5,000 nested braces.

mod grammar;
mod tokens;
mod words;

#[cfg(test)]
mod tests;

use tokens::CommandParser;

/// A longer text is not parsed. Agents write less, and parsing blocks other requests.
const MAX_TEXT_BYTES: usize = 128 << 10;

/// The text is not understood, or nested too deeply.
#[derive(Debug)]
struct Unsupported;

type ParseResult<T> = Result<T, Unsupported>;

/// Returns the commands of `text`, each with the whitespace and comments that follow it. Together they are the text.
pub(super) fn split(text: &str) -> Vec<&str> {
    if text.len() > MAX_TEXT_BYTES {
        return vec![text];
    }
    let starts = CommandParser::new(text).command_starts().unwrap_or_default();
    let mut pieces = Vec::with_capacity(starts.len().max(1));
    let mut rest = text;
    // From the end, so that text before the first command belongs to it.
    for start in starts.into_iter().skip(1).rev() {
        // A command starts at or after an ASCII character, never within a character.
        let Some((before, piece)) = rest.split_at_checked(start) else { return vec![text] };
        pieces.push(piece);
        rest = before;
    }
    pieces.push(rest);
    pieces.reverse();
    pieces
}
