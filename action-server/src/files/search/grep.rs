//! Lines that fit a pattern. What has a NUL byte is no text and not looked at from there on.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use protocol::sandbox_api::{GrepMatches, GrepQuery};

use super::found::Found;
use super::lines::{Context, Lines};
use super::matcher::Matcher;
use super::pattern::PathPattern;
use super::{Looked, below, kind_of, walk};
use crate::files::error::FileError;
use crate::files::stop::Stop;
use crate::files::{Files, open};

/// Lines of context.
const MAX_CONTEXT: usize = 50;

/// Matches that may be asked for.
const MAX_MATCHES: usize = 10_000;

/// In `path`, or in the files below it.
pub(crate) fn grep(
    files: &Files,
    path: &Path,
    query: &GrepQuery,
    stop: &Stop,
) -> Result<GrepMatches, FileError> {
    let glob = query.glob.as_deref().map(|glob| PathPattern::new("glob", glob, query.case_insensitive));
    let glob = glob.transpose()?;
    let mut search = Search::new(query, stop)?;
    let place = files.found(path)?;
    if kind_of(&place)?.is_dir() {
        let looked = Looked { at_hidden: query.hidden, at_ignored: query.ignored };
        for entry in walk(files, &place, looked, stop) {
            let below = below(place.path(), entry.path());
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if is_file && glob.as_ref().is_none_or(|glob| glob.fits(&below))
                // A file that is gone or that we may not read is passed over.
                && let Ok(entry) = place.entry(&below)
                && let Ok((file, _)) = open::regular(&entry)
            {
                search.look_through(file, &below);
            }
            if search.found.is_full {
                break;
            }
        }
    } else {
        let (file, _) = open::regular(&place)?;
        search.look_through(file, Path::new(path.file_name().unwrap_or_default()));
    }
    Ok(GrepMatches { truncated: search.found.is_full || stop.is_asked(), matches: search.found.matches })
}

struct Search<'a> {
    matcher: Matcher,
    context: Context,
    found: Found,
    stop: &'a Stop,
}

impl<'a> Search<'a> {
    fn new(query: &GrepQuery, stop: &'a Stop) -> Result<Self, FileError> {
        let context = Context {
            before: within("before", query.before, MAX_CONTEXT)?,
            after: within("after", query.after, MAX_CONTEXT)?,
        };
        Ok(Self {
            matcher: Matcher::new(&query.pattern, query.fixed, query.case_insensitive)?,
            context,
            found: Found::at_most(within("max_matches", query.max_matches, MAX_MATCHES)?),
            stop,
        })
    }

    /// What cannot be read to its end counts as far as it could be.
    fn look_through(&mut self, file: File, shown: &Path) {
        let shown = shown.to_string_lossy();
        let lines = Lines::of(&shown, &self.matcher, self.context, &mut self.found);
        _ = lines.look_through(Stoppable { file, stop: self.stop });
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

    fn grep(path: &Path, query: &GrepQuery, stop: &Stop) -> Result<GrepMatches, FileError> {
        super::grep(&Files::anywhere(), path, query, stop)
    }

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
    fn what_lies_across_blocks_is_found_with_its_context() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let text: String = (1..=200_000).map(|number| format!("line {number}\n")).collect();
        fs::write(&file, &text).unwrap();
        let query = GrepQuery { before: 1, after: 1, max_matches: 10_000, ..query(r"^line \d+77$") };
        let matches = grep(&file, &query, &Stop::never()).unwrap().matches;
        // 77 itself has nothing before its sevens.
        let expected: Vec<u64> = (1..=200_000).filter(|number| number % 100 == 77 && *number > 100).collect();
        assert_eq!(matches.iter().map(|found| found.line).collect::<Vec<_>>(), expected);
        for found in matches {
            assert_eq!(found.text, format!("line {}", found.line));
            assert_eq!(found.before, [format!("line {}", found.line - 1)]);
            assert_eq!(found.after, [format!("line {}", found.line + 1)]);
        }
    }

    #[test]
    fn a_pattern_never_reaches_over_a_line_s_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "a\nb\na b\nx.y\nxzy\n\nw\u{e4}\n").unwrap();
        assert_eq!(found(&file, &query(r"a\sb")), ["f:3:1:a b"]);
        assert_eq!(found(&file, &query("^$")), ["f:6:1:"]);
        assert_eq!(found(&file, &GrepQuery { fixed: true, ..query("x.y") }), ["f:4:1:x.y"]);
        assert_eq!(found(&file, &GrepQuery { case_insensitive: true, ..query(r"^W\w$") }), ["f:7:1:w\u{e4}"]);
        assert_eq!(found(&file, &query("x*")).len(), 7);
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
        for wrong in [
            query("("),
            query("a\nb"),
            query("(\\w{1000}){1000}"),
            query("a\\nb"),
            GrepQuery { before: 51, ..query("a") },
        ] {
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
