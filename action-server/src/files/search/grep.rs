//! Searches for lines that match a pattern. A file is searched up to its first NUL byte.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use protocol::sandbox_api::{GrepMatches, GrepQuery};

use super::found::MatchCollector;
use super::lines::{Context, LineSearch};
use super::matcher::Matcher;
use super::pattern::PathPattern;
use super::{WalkFilter, below, kind_of, walk};
use crate::files::error::FileError;
use crate::files::stop::StopSignal;
use crate::files::{Files, open};

/// Maximum number of lines of context.
const MAX_CONTEXT: usize = 50;

/// Maximum number of matches that can be requested.
const MAX_MATCHES: usize = 10_000;

/// Searches the file at `path`, or all files below it.
pub(crate) fn grep(
    files: &Files,
    path: &Path,
    query: &GrepQuery,
    stop: &StopSignal,
) -> Result<GrepMatches, FileError> {
    let glob = query
        .glob
        .as_deref()
        .map(|glob| PathPattern::new("glob", glob, query.case_insensitive));
    let glob = glob.transpose()?;
    let mut search = Search::new(query, stop)?;
    let resolved = files.resolve(path)?;
    if kind_of(&resolved)?.is_dir() {
        let filter = WalkFilter {
            hidden: query.hidden,
            ignored: query.ignored,
        };
        for entry in walk(files, &resolved, filter, stop) {
            let below = below(resolved.path(), entry.path());
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if is_file && glob.as_ref().is_none_or(|glob| glob.matches(&below))
                // Skips a file that was removed or may not be read.
                && let Ok(entry) = resolved.entry(&below)
                && let Ok((file, _)) = open::regular(&entry)
            {
                search.search_file(file, &below);
            }
            if search.found.is_full {
                break;
            }
        }
    } else {
        let (file, _) = open::regular(&resolved)?;
        search.search_file(file, Path::new(path.file_name().unwrap_or_default()));
    }
    Ok(GrepMatches {
        truncated: search.found.is_full || stop.is_set(),
        matches: search.found.matches,
    })
}

struct Search<'a> {
    matcher: Matcher,
    context: Context,
    found: MatchCollector,
    stop: &'a StopSignal,
}

impl<'a> Search<'a> {
    fn new(query: &GrepQuery, stop: &'a StopSignal) -> Result<Self, FileError> {
        let context = Context {
            before: within("before", query.before, MAX_CONTEXT)?,
            after: within("after", query.after, MAX_CONTEXT)?,
        };
        Ok(Self {
            matcher: Matcher::new(&query.pattern, query.fixed, query.case_insensitive)?,
            context,
            found: MatchCollector::new(within("max_matches", query.max_matches, MAX_MATCHES)?),
            stop,
        })
    }

    /// Searches a file. If reading fails, the matches so far are kept.
    fn search_file(&mut self, file: File, shown: &Path) {
        let shown = shown.to_string_lossy();
        let search = LineSearch::new(&shown, &self.matcher, self.context, &mut self.found);
        _ = search.run(StoppableFile {
            file,
            stop: self.stop,
        });
    }
}

fn within(name: &'static str, number: usize, max: usize) -> Result<usize, FileError> {
    if number <= max {
        return Ok(number);
    }
    Err(FileError::Parameter {
        name,
        problem: format!("{number} is more than {max}"),
    })
}

/// A file whose reads fail when the search is stopped.
struct StoppableFile<'a> {
    file: File,
    stop: &'a StopSignal,
}

impl Read for StoppableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
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

    fn grep(path: &Path, query: &GrepQuery, stop: &StopSignal) -> Result<GrepMatches, FileError> {
        super::grep(&Files::unconfined(), path, query, stop)
    }

    fn query(pattern: &str) -> GrepQuery {
        serde_json::from_value(serde_json::json!({"path": "", "pattern": pattern})).unwrap()
    }

    fn texts(matches: &[GrepMatch]) -> Vec<String> {
        let text = |found: &GrepMatch| {
            format!(
                "{}:{}:{}:{}",
                found.path, found.line, found.column, found.text
            )
        };
        matches.iter().map(text).collect()
    }

    fn search(path: &Path, query: &GrepQuery) -> Vec<String> {
        texts(&grep(path, query, &StopSignal::never()).unwrap().matches)
    }

    #[test]
    fn matches_have_the_path_line_and_column() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("a.txt"), "one\r\nTwo two\nthree").unwrap();
        fs::write(dir.path().join("b/c.txt"), b"\xff two\n").unwrap();
        fs::write(dir.path().join("b/binary"), b"two\0two\n").unwrap();
        fs::write(dir.path().join(".gitignore"), "x.log\n").unwrap();
        fs::write(dir.path().join("x.log"), "two\n").unwrap();
        assert_eq!(
            search(dir.path(), &query("two")),
            ["a.txt:2:5:Two two", "b/c.txt:1:3:\u{fffd} two"]
        );
        let insensitive = GrepQuery {
            case_insensitive: true,
            ..query("TWO$")
        };
        assert_eq!(
            search(dir.path(), &insensitive),
            ["a.txt:2:5:Two two", "b/c.txt:1:3:\u{fffd} two"]
        );
        assert_eq!(
            search(
                dir.path(),
                &GrepQuery {
                    fixed: true,
                    ..query("t.o")
                }
            ),
            [""; 0]
        );
        assert_eq!(
            search(
                dir.path(),
                &GrepQuery {
                    ignored: true,
                    ..query("^two$")
                }
            ),
            ["x.log:1:1:two"]
        );
        assert_eq!(
            search(
                dir.path(),
                &GrepQuery {
                    glob: Some("b/*".into()),
                    ..query("t")
                }
            ),
            ["b/c.txt:1:3:\u{fffd} two"]
        );
        assert_eq!(
            search(&dir.path().join("a.txt"), &query("^o")),
            ["a.txt:1:1:one"]
        );
        assert_eq!(
            search(&dir.path().join("a.txt"), &query("ee$")),
            ["a.txt:3:4:three"]
        );
    }

    #[test]
    fn context_is_returned_with_its_match() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "1\n2\nX\n4\nX\n6\n7\n8\n9\nX\n").unwrap();
        let query = GrepQuery {
            before: 2,
            after: 1,
            ..query("X")
        };
        let matches = grep(&file, &query, &StopSignal::never()).unwrap().matches;
        let contexts: Vec<_> = matches
            .iter()
            .map(|found| (found.before.join(""), found.after.join("")))
            .collect();
        let context = |before: &str, after: &str| (before.to_owned(), after.to_owned());
        assert_eq!(
            contexts,
            [context("12", "4"), context("", "6"), context("89", "")]
        );
    }

    #[test]
    fn matches_in_later_blocks_have_their_context() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let text: String = (1..=200_000)
            .map(|number| format!("line {number}\n"))
            .collect();
        fs::write(&file, &text).unwrap();
        let query = GrepQuery {
            before: 1,
            after: 1,
            max_matches: 10_000,
            ..query(r"^line \d+77$")
        };
        let matches = grep(&file, &query, &StopSignal::never()).unwrap().matches;
        // 77 itself has nothing before its sevens.
        let expected: Vec<u64> = (1..=200_000)
            .filter(|number| number % 100 == 77 && *number > 100)
            .collect();
        assert_eq!(
            matches.iter().map(|found| found.line).collect::<Vec<_>>(),
            expected
        );
        for found in matches {
            assert_eq!(found.text, format!("line {}", found.line));
            assert_eq!(found.before, [format!("line {}", found.line - 1)]);
            assert_eq!(found.after, [format!("line {}", found.line + 1)]);
        }
    }

    #[test]
    fn pattern_does_not_match_across_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "a\nb\na b\nx.y\nxzy\n\nw\u{e4}\n").unwrap();
        assert_eq!(search(&file, &query(r"a\sb")), ["f:3:1:a b"]);
        assert_eq!(search(&file, &query("^$")), ["f:6:1:"]);
        assert_eq!(
            search(
                &file,
                &GrepQuery {
                    fixed: true,
                    ..query("x.y")
                }
            ),
            ["f:4:1:x.y"]
        );
        assert_eq!(
            search(
                &file,
                &GrepQuery {
                    case_insensitive: true,
                    ..query(r"^W\w$")
                }
            ),
            ["f:7:1:w\u{e4}"]
        );
        assert_eq!(search(&file, &query("x*")).len(), 7);
    }

    #[test]
    fn result_is_truncated_when_a_limit_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "x\n".repeat(20)).unwrap();
        fs::write(
            dir.path().join("long"),
            format!("x{}\n", "y".repeat(100_000)),
        )
        .unwrap();
        let some = grep(
            dir.path(),
            &GrepQuery {
                max_matches: 20,
                ..query("^x$")
            },
            &StopSignal::never(),
        )
        .unwrap();
        assert_eq!((some.matches.len(), some.truncated), (20, false));
        let some = grep(
            dir.path(),
            &GrepQuery {
                max_matches: 19,
                ..query("x")
            },
            &StopSignal::never(),
        )
        .unwrap();
        assert_eq!((some.matches.len(), some.truncated), (19, true));
        let long = grep(&dir.path().join("long"), &query("x"), &StopSignal::never()).unwrap();
        assert_eq!(long.matches[0].text.len(), 4096);
        for wrong in [
            query("("),
            query("a\nb"),
            query("(\\w{1000}){1000}"),
            query("a\\nb"),
            GrepQuery {
                before: 51,
                ..query("a")
            },
        ] {
            assert!(
                matches!(
                    grep(dir.path(), &wrong, &StopSignal::never()),
                    Err(FileError::Parameter { .. })
                ),
                "{wrong:?}"
            );
        }
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let none = grep(
            dir.path(),
            &query("x"),
            &StopSignal::new(cancelled, Duration::from_secs(60)),
        )
        .unwrap();
        assert_eq!((none.matches.len(), none.truncated), (0, true));
    }
}
