//! Lines that fit a pattern. What has a NUL byte is no text and not looked at from there on.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use protocol::sandbox_api::{GrepMatches, GrepQuery};

use super::lines::Found;
use super::pattern::PathPattern;
use super::{Looked, below, kind_of, walk};
use crate::files::error::FileError;
use crate::files::open;
use crate::files::stop::Stop;

/// Lines of context.
const MAX_CONTEXT: usize = 50;

/// Matches that may be asked for.
const MAX_MATCHES: usize = 10_000;

/// What a pattern may cost when it is compiled, and its automaton when it runs.
const MAX_PATTERN_BYTES: usize = 8 << 20;

/// What a searcher holds of a file; files with longer lines are passed over.
const MAX_HELD_BYTES: usize = 8 << 20;

/// In `path`, or in the files below it.
pub(crate) fn grep(path: &Path, query: &GrepQuery, stop: &Stop) -> Result<GrepMatches, FileError> {
    let glob = query.glob.as_deref().map(|glob| PathPattern::new("glob", glob, query.case_insensitive));
    let glob = glob.transpose()?;
    let mut search = Search::new(query, stop)?;
    if kind_of(path)?.is_dir() {
        let looked = Looked { at_hidden: query.hidden, at_ignored: query.ignored };
        for entry in walk(path, looked, stop) {
            let below = below(path, entry.path());
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if is_file && glob.as_ref().is_none_or(|glob| glob.fits(&below))
                // A file that is gone or that we may not read is passed over.
                && let Ok((file, _)) = open::regular(entry.path())
            {
                search.look_through(file, &below);
            }
            if search.found.is_full {
                break;
            }
        }
    } else {
        let (file, _) = open::regular(path)?;
        search.look_through(file, Path::new(path.file_name().unwrap_or_default()));
    }
    Ok(GrepMatches { truncated: search.found.is_full || stop.is_asked(), matches: search.found.matches })
}

struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    found: Found,
    stop: &'a Stop,
}

impl<'a> Search<'a> {
    fn new(query: &GrepQuery, stop: &'a Stop) -> Result<Self, FileError> {
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(query.case_insensitive)
            .fixed_strings(query.fixed)
            .multi_line(true)
            .line_terminator(Some(b'\n'))
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES)
            .build(&query.pattern)
            .map_err(|error| FileError::Parameter { name: "pattern", problem: error.to_string() })?;
        let searcher = SearcherBuilder::new()
            .before_context(within("before", query.before, MAX_CONTEXT)?)
            .after_context(within("after", query.after, MAX_CONTEXT)?)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HELD_BYTES))
            .build();
        let found = Found::at_most(within("max_matches", query.max_matches, MAX_MATCHES)?);
        Ok(Self { matcher, searcher, found, stop })
    }

    /// What cannot be read to its end counts as far as it could be.
    fn look_through(&mut self, file: File, shown: &Path) {
        let shown = shown.to_string_lossy();
        let file = Stoppable { file, stop: self.stop };
        _ = self.searcher.search_reader(&self.matcher, file, self.found.of_file(&shown, &self.matcher));
    }
}

fn within(name: &'static str, number: usize, most: usize) -> Result<usize, FileError> {
    if number <= most {
        return Ok(number);
    }
    Err(FileError::Parameter { name, problem: format!("{number} is more than {most}") })
}

/// A file that ends when nobody wants it any more.
struct Stoppable<'a> {
    file: File,
    stop: &'a Stop,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_asked() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use protocol::sandbox_api::GrepMatch;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn query(pattern: &str) -> GrepQuery {
        serde_json::from_value(serde_json::json!({"path": "", "pattern": pattern})).unwrap()
    }

    fn told(matches: &[GrepMatch]) -> Vec<String> {
        let of = |found: &GrepMatch| format!("{}:{}:{}:{}", found.path, found.line, found.column, found.text);
        matches.iter().map(of).collect()
    }

    fn found(path: &Path, query: &GrepQuery) -> Vec<String> {
        told(&grep(path, query, &Stop::never()).unwrap().matches)
    }

    #[test]
    fn lines_are_found_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("a.txt"), "one\r\nTwo two\nthree").unwrap();
        fs::write(dir.path().join("b/c.txt"), b"\xff two\n").unwrap();
        fs::write(dir.path().join("b/binary"), b"two\0two\n").unwrap();
        fs::write(dir.path().join(".gitignore"), "x.log\n").unwrap();
        fs::write(dir.path().join("x.log"), "two\n").unwrap();
        assert_eq!(found(dir.path(), &query("two")), ["a.txt:2:5:Two two", "b/c.txt:1:3:\u{fffd} two"]);
        let insensitive = GrepQuery { case_insensitive: true, ..query("TWO$") };
        assert_eq!(found(dir.path(), &insensitive), ["a.txt:2:5:Two two", "b/c.txt:1:3:\u{fffd} two"]);
        assert_eq!(found(dir.path(), &GrepQuery { fixed: true, ..query("t.o") }), [""; 0]);
        assert_eq!(found(dir.path(), &GrepQuery { ignored: true, ..query("^two$") }), ["x.log:1:1:two"]);
        assert_eq!(
            found(dir.path(), &GrepQuery { glob: Some("b/*".into()), ..query("t") }),
            ["b/c.txt:1:3:\u{fffd} two"]
        );
        assert_eq!(found(&dir.path().join("a.txt"), &query("^o")), ["a.txt:1:1:one"]);
        assert_eq!(found(&dir.path().join("a.txt"), &query("ee$")), ["a.txt:3:4:three"]);
    }

    #[test]
    fn context_is_told_with_its_match() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "1\n2\nX\n4\nX\n6\n7\n8\n9\nX\n").unwrap();
        let query = GrepQuery { before: 2, after: 1, ..query("X") };
        let matches = grep(&file, &query, &Stop::never()).unwrap().matches;
        let contexts: Vec<_> =
            matches.iter().map(|found| (found.before.join(""), found.after.join(""))).collect();
        let told = |before: &str, after: &str| (before.to_owned(), after.to_owned());
        assert_eq!(contexts, [told("12", "4"), told("", "6"), told("89", "")]);
    }

    #[test]
    fn everything_is_bounded_and_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "x\n".repeat(20)).unwrap();
        fs::write(dir.path().join("long"), format!("x{}\n", "y".repeat(100_000))).unwrap();
        let some = grep(dir.path(), &GrepQuery { max_matches: 20, ..query("^x$") }, &Stop::never()).unwrap();
        assert_eq!((some.matches.len(), some.truncated), (20, false));
        let some = grep(dir.path(), &GrepQuery { max_matches: 19, ..query("x") }, &Stop::never()).unwrap();
        assert_eq!((some.matches.len(), some.truncated), (19, true));
        let long = grep(&dir.path().join("long"), &query("x"), &Stop::never()).unwrap();
        assert_eq!(long.matches[0].text.len(), 4096);
        for wrong in
            [query("("), query("a\nb"), query("(a{1000}){1000}"), GrepQuery { before: 51, ..query("a") }]
        {
            assert!(
                matches!(grep(dir.path(), &wrong, &Stop::never()), Err(FileError::Parameter { .. })),
                "{wrong:?}"
            );
        }
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let none = grep(dir.path(), &query("x"), &Stop::new(cancelled, Duration::from_secs(60))).unwrap();
        assert_eq!((none.matches.len(), none.truncated), (0, true));
    }
}
