//! Lexer of OpenSSH configuration files: a keyword and its arguments, quoted if they contain
//! blanks.

use std::io::{self, Read};
use std::path::Path;

/// A longer file is an error.
const MAX_FILE_LENGTH: u64 = 1 << 20;

/// A line with a keyword.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// In lower case.
    pub(super) keyword: String,
    pub(super) words: Vec<String>,
}

/// Returns the lines of a file with their numbers, counted from 1. Empty if the file is missing or
/// not readable.
pub(super) fn read_lines(file: &Path) -> io::Result<Vec<(usize, Result<Line, &'static str>)>> {
    let opened = match std::fs::File::open(file) {
        Ok(opened) => opened,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    opened.take(MAX_FILE_LENGTH + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_LENGTH {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "longer than 1 MiB",
        ));
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().enumerate();
    Ok(lines
        .filter_map(|(number, line)| Some((number + 1, parse(line)?)))
        .collect())
}

/// Parses a line. `None` for a comment or an empty line.
pub(super) fn parse(line: &str) -> Option<Result<Line, &'static str>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (keyword, rest) = line.split_once([' ', '\t', '=', '"']).unwrap_or((line, ""));
    // A quoted argument may follow the keyword without a blank.
    let rest = line
        .get(keyword.len()..)
        .filter(|rest| rest.starts_with('"'))
        .unwrap_or(rest);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    Some(split_words(rest).map(|words| Line {
        keyword: keyword.to_lowercase(),
        words,
    }))
}

fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut left = text.trim();
    while !left.is_empty() && !left.starts_with('#') {
        let (word, rest) = match left.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote has no end")?,
            None => left.split_once([' ', '\t']).unwrap_or((left, "")),
        };
        words.push(word.to_owned());
        left = rest.trim_start();
    }
    Ok(words)
}
