//! The scripts that run on the remote host, one command line each, and the parser of their replies.
//!
//! The text of a script is constant; parameters are quoted arguments. A script is one line in
//! single quotes, so that any login shell passes it to `/bin/sh` unchanged. A reply is a line that
//! starts with the marker `glovebox`. Other output, such as that of the login shell's profile, is
//! ignored.

use std::fmt::Write as _;

const PRELUDE: &str = include_str!("scripts/prelude.sh");
const MARK: &str = "\nglovebox ";

#[derive(Debug, Clone, Copy)]
pub(super) enum Script {
    Start,
    Install,
    State,
    Remove,
    List,
    Logs,
}

impl Script {
    fn body(self) -> &'static str {
        match self {
            Self::Start => include_str!("scripts/start.sh"),
            Self::Install => include_str!("scripts/install.sh"),
            Self::State => include_str!("scripts/state.sh"),
            Self::Remove => include_str!("scripts/remove.sh"),
            Self::List => include_str!("scripts/list.sh"),
            Self::Logs => include_str!("scripts/logs.sh"),
        }
    }

    /// Builds the command line that runs this script.
    pub(super) fn command(self, arguments: &[&str]) -> String {
        let text: Vec<&str> = PRELUDE
            .lines()
            .chain(self.body().lines())
            .map(str::trim)
            .collect();
        let text: Vec<&str> = text
            .into_iter()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut command = format!("exec /bin/sh -c '{}' sh", text.join(" "));
        for argument in arguments {
            let _ = write!(command, " {}", shell_quote(argument)); // writing to a String cannot fail
        }
        command
    }
}

/// Quotes a word for any POSIX shell.
pub(super) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A line of a script's output that starts with the marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    pub(super) status: &'a str,
    pub(super) rest: &'a str,
    /// The output after this line.
    pub(super) after: &'a str,
}

/// Returns the replies in a script's output, and skips all other lines.
pub(super) fn parse_replies(output: &str) -> impl Iterator<Item = Reply<'_>> {
    let mut left = output;
    std::iter::from_fn(move || {
        let (_, line) = left.split_once(MARK)?;
        let (line, after) = line.split_once('\n').unwrap_or((line, ""));
        // The newline that ends this reply may also start the marker of the next one.
        left = left
            .get(left.len().saturating_sub(after.len() + 1)..)
            .unwrap_or_default();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(Reply {
            status: word,
            rest: rest.trim_end_matches('\r'),
            after,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Reply, Script, parse_replies, shell_quote};

    const ALL: [Script; 6] = [
        Script::Start,
        Script::Install,
        Script::State,
        Script::Remove,
        Script::List,
        Script::Logs,
    ];

    #[test]
    fn script_is_one_valid_line_without_special_characters() {
        for script in ALL {
            let command = script.command(&[]);
            let text = command
                .strip_prefix("exec /bin/sh -c '")
                .unwrap()
                .strip_suffix("' sh")
                .unwrap();
            assert!(!text.contains(['\n', '\'', '!', '`']), "{script:?}");
            assert!(
                Command::new("/bin/sh")
                    .args(["-n", "-c", text])
                    .status()
                    .unwrap()
                    .success(),
                "{script:?}"
            );
        }
    }

    #[test]
    fn word_is_unchanged_when_it_was_quoted() {
        for text in [
            "", "a b", "it's", "$(id)", "`id`", "\\", "a\nb", "-n", "\"", "!!",
        ] {
            let output = Command::new("/bin/sh")
                .args(["-c", &format!("printf %s {}", shell_quote(text))])
                .output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), text);
        }
    }

    #[test]
    fn replies_are_parsed_when_other_output_surrounds_them() {
        let output = "Welcome!\nglovebox 1\n\nglovebox missing Linux x86_64 /a b\n\nglovebox failed 3\nboom\nbang\n";
        let found: Vec<Reply<'_>> = parse_replies(output).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(
            (found[1].status, found[1].rest),
            ("missing", "Linux x86_64 /a b")
        );
        assert_eq!(
            (found[2].status, found[2].rest, found[2].after),
            ("failed", "3", "boom\nbang\n")
        );
        assert_eq!(parse_replies("nothing\n").count(), 0);
    }
}
