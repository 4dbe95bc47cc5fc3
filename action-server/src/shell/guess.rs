//! What a command may do to its shell, guessed from its text.
//!
//! A guess chooses between a cheap and a careful way of handing a command over. Where it is wrong, as with a script that is
//! sourced by a name of the user's own making, a line of ours is in the output, or an end is not heard.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Any of some signs, all looked for at once.
struct Signs(LazyLock<Option<AhoCorasick>>);

impl Signs {
    fn are_in(&self, command: &str) -> bool {
        // Refused are only more signs than there are numbers for; care would harm nobody.
        self.0.as_ref().is_none_or(|signs| signs.is_match(command))
    }
}

/// What changes a shell for good, or names something that may: text without any of these leaves prompt and streams alone,
/// in a shell where none of it was ever used. `()` defines a function, the dots source a file.
static CHANGES: Signs = Signs(LazyLock::new(|| {
    let signs = [
        "()",
        "function",
        "alias",
        "source",
        ". ",
        ".\t",
        "eval",
        "PS1",
        "PROMPT",
        "unset",
        "declare",
        "typeset",
        "read",
        "printf -v",
        "enable",
        "builtin",
        "trap",
        "export $",
        "coproc",
        "<(",
        ">(",
    ];
    AhoCorasick::new(signs).ok()
}));

/// What begins a trace or moves the standard streams.
static HIDES: Signs = Signs(LazyLock::new(|| AhoCorasick::new(["set -", "xtrace", "exec", "shopt"]).ok()));

/// Words that begin what may not end on its line.
const RESERVED: [&str; 17] = [
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done",
    "in", "function", "time", "coproc",
];

/// Whether the prompt may be another after `command`, or come late for the notice of a job.
pub(super) fn may_change_the_prompt(command: &str) -> bool {
    CHANGES.are_in(command) || begins_a_job(command)
}

/// Whether `command` could begin a trace, in which our part of the line would show, or move the standard streams, where
/// the prompt goes and the next command comes from.
pub(super) fn may_hide_the_prompt(command: &str) -> bool {
    HIDES.are_in(command)
}

/// Whether `command` is words alone, or a pipeline of such, so that it means the same wherever it stands: no quote that could
/// be left open, no other operator, no comment, nothing of the history, no word that opens a block.
pub(super) fn is_words(command: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-./=:,@%+~$*?|".contains(&byte);
    let is_command =
        |words: &str| words.split_ascii_whitespace().next().is_some_and(|first| !RESERVED.contains(&first));
    command.bytes().all(is_plain) && command.split('|').all(is_command)
}

/// Whether `command` surely ends where its text does. Of one that does not, bash's prompt tells the status of the command
/// before it, where it was handed over by `eval`.
pub(super) fn is_closed(command: &str) -> bool {
    let count = |part: &str| command.matches(part).count();
    let are_paired = |open, close| count(open) <= count(close);
    are_paired("${", "}")
        && are_paired("((", "))")
        && count("`") % 2 == 0
        && !command.contains("[[")
        && ends_unquoted(command)
}

fn ends_unquoted(command: &str) -> bool {
    let (mut quote, mut bytes) = (None, command.bytes());
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', None | Some(b'"')) => drop(bytes.next()),
            (b'\'' | b'"', None) => quote = Some(byte),
            (_, Some(open)) if byte == open => quote = None,
            _ => {}
        }
    }
    quote.is_none()
}

/// A `&` that is neither half of `&&` nor part of a redirection.
fn begins_a_job(command: &str) -> bool {
    let bytes = command.as_bytes();
    let is_one = |byte: Option<&u8>, of: &[u8]| byte.is_some_and(|byte| of.contains(byte));
    bytes.iter().enumerate().any(|(at, byte)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        *byte == b'&' && !is_one(before, b"&<>") && !is_one(bytes.get(at + 1), b"&>")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_found_wherever_they_stand() {
        for change in ["eval ls", "f() { :; }", "cd x; . ./env", "a=1 source x", "unset x", "diff <(a) b"] {
            assert!(may_change_the_prompt(change) && !may_hide_the_prompt(change), "{change}");
        }
        for hides in ["set -x", "ls; exec 2>log", "shopt -s x", "set -o xtrace"] {
            assert!(may_hide_the_prompt(hides), "{hides}");
        }
        for other in ["echo hi", "ls -la | wc", "git settle", "./run.sh"] {
            assert!(!may_change_the_prompt(other) && !may_hide_the_prompt(other), "{other}");
        }
    }

    #[test]
    fn jobs_are_told_from_redirections() {
        for job in ["sleep 9 &", "sleep 9&", "a & b", "(a&)", "a 2>&1 &", "a >f & b && c"] {
            assert!(may_change_the_prompt(job), "{job}");
        }
        for other in ["a && b", "a 2>&1", "a &>f", "a &>>f", "a <&3", "a >&2 && b"] {
            assert!(!may_change_the_prompt(other), "{other}");
        }
    }

    #[test]
    fn what_is_left_open_is_told() {
        let quoted = r#"echo "a 'b" \' "\"" it\'s"#;
        for closed in ["echo 'a \"b'", quoted, "echo ${a} $(b) `c`", "((a+1))"] {
            assert!(is_closed(closed), "{closed}");
        }
        for open in
            ["echo \"a", "echo 'a", "echo it's", "[[ a", "echo `a", "echo ${a", "((1+", r#"echo "a\""#]
        {
            assert!(!is_closed(open), "{open}");
        }
    }

    #[test]
    fn only_words_are_words() {
        for words in ["echo hi", "A=b ls -la ~/x", "ls *.rs", "echo $HOME", "ls | wc -l"] {
            assert!(is_words(words), "{words}");
        }
        let others =
            ["", " ", "if true", " while x", "a;b", "a 'b", "a #b", "a\\", "[[ a", "{ a", "! a", "(a"];
        for other in others.into_iter().chain(["a |", "| a", "a || b", "a | while b"]) {
            assert!(!is_words(other), "{other}");
        }
    }
}
