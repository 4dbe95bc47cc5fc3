//! The scripts that run on the other side, as one command line each, and what they answer.
//!
//! The text of a script is fixed; what differs comes as quoted arguments. It is one line in single quotes, so that any
//! login shell hands it on to `/bin/sh` untouched. An answer is the last line that begins with our word: what a login
//! shell's own files print before it is passed over.

use std::fmt::Write as _;

const PRELUDE: &str = include_str!("scripts/prelude.sh");
const MARK: &str = "\nglovebox ";

/// One of the scripts.
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

    /// The command line that runs this script.
    pub(super) fn command(self, arguments: &[&str]) -> String {
        let text: Vec<&str> = PRELUDE.lines().chain(self.body().lines()).map(str::trim).collect();
        let text: Vec<&str> =
            text.into_iter().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let mut command = format!("exec /bin/sh -c '{}' sh", text.join(" "));
        for argument in arguments {
            let _ = write!(command, " {}", quoted(argument)); // a String takes everything
        }
        command
    }
}

/// A word for any shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// One line of an answer: its word, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    pub(super) word: &'a str,
    pub(super) rest: &'a str,
    /// What comes after the line.
    pub(super) after: &'a str,
}

/// The lines of an answer, without what others printed.
pub(super) fn answers(output: &str) -> impl Iterator<Item = Answer<'_>> {
    let mut left = output;
    std::iter::from_fn(move || {
        let (_, line) = left.split_once(MARK)?;
        let (line, after) = line.split_once('\n').unwrap_or((line, ""));
        // The line's own end may be the next one's beginning.
        left = left.get(left.len().saturating_sub(after.len() + 1)..).unwrap_or_default();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(Answer { word, rest: rest.trim_end_matches('\r'), after })
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Answer, Script, answers, quoted};

    const ALL: [Script; 6] =
        [Script::Start, Script::Install, Script::State, Script::Remove, Script::List, Script::Logs];

    #[test]
    fn a_script_is_one_line_that_every_shell_takes() {
        for script in ALL {
            let command = script.command(&[]);
            let text = command.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix("' sh").unwrap();
            assert!(!text.contains(['\n', '\'', '!', '`']), "{script:?}");
            assert!(
                Command::new("/bin/sh").args(["-n", "-c", text]).status().unwrap().success(),
                "{script:?}"
            );
        }
    }

    #[test]
    fn a_quoted_word_stays_what_it_was() {
        for text in ["", "a b", "it's", "$(id)", "`id`", "\\", "a\nb", "-n", "\"", "!!"] {
            let output =
                Command::new("/bin/sh").args(["-c", &format!("printf %s {}", quoted(text))]).output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), text);
        }
    }

    #[test]
    fn answers_are_found_between_greetings() {
        let output =
            "Welcome!\nglovebox 1\n\nglovebox missing Linux x86_64 /a b\n\nglovebox failed 3\nboom\nbang\n";
        let found: Vec<Answer<'_>> = answers(output).collect();
        assert_eq!(found.len(), 3);
        assert_eq!((found[1].word, found[1].rest), ("missing", "Linux x86_64 /a b"));
        assert_eq!((found[2].word, found[2].rest, found[2].after), ("failed", "3", "boom\nbang\n"));
        assert_eq!(answers("nothing\n").count(), 0);
    }
}
