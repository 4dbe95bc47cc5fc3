//! What the shell is told, in its own language: the script that makes it take commands from its
//! [channel](super::channel) and report there how they ended.
//!
//! Pure: values in, text out. All the session's shell code stands here and in [`super::loan`]. It is the same for bash, dash
//! and ash.
//!
//! What is typed at the prompt is always the same line, which sources a file that never changes. That reports *ready*, reads
//! one command from the channel, evaluates it and reports its end. Where the end is lost, because the command was interrupted
//! or left the script by `return`, the shell comes to its prompt all the same; the line is typed again, and *ready* says for
//! which command no end was reported. So an end that is lost costs time and is never wrong.
//!
//! The command's nonce is a variable of the shell, for this command alone. It keeps apart the reports of two commands, and is in
//! the mark after the command's output; that a report is the shell's own, the channel proves.
//!
//! - The exit status of the user's last command is carried through everything of ours, so that `$?` is theirs. `&&:` keeps
//!   that status and yet is no failure under `set -e`.
//! - What is ours stands in groups whose redirection holds before a trace (`set -x`) is written, and as one group in all,
//!   so that `set -v` shows none of it. `set -x` and `set -a` are off while a command is read: the first would show how it is
//!   evaluated, the second export it.
//! - `command` keeps apart what a user has defined (`eval() { … }`), and keeps a syntax error from ending our script in dash
//!   and ash.
//! - The blank before the text keeps `eval` from reading options in it.
//! - `exit` is silent in a sourced file, and says `exit` in bash at a prompt.
//! - With `execfail` an `exec` that fails leaves the bash, as it does when it is typed.

use super::loan::Loan;
use super::marks;
use super::program::Dialect;

/// Which session a process belongs to, for as long as it keeps its environment.
pub(crate) const SESSION_VARIABLE: &str = "GLOVEBOX_SESSION";

/// Which descriptor is the shell's end of its channel. dash reads one digit only. Others get a number that no script uses.
pub(super) fn channel_descriptor(dialect: Dialect) -> i32 {
    match dialect {
        Dialect::Dash => 9,
        Dialect::Bash | Dialect::Ash => 251,
    }
}

/// What is in `PS1`. A mark only once it is expanded: a command may print its variables.
pub(super) fn prompt_variable(name: &str) -> String {
    marks::mark(name, "${__glovebox_nothing-}")
}

/// The shell's side of the protocol. `name` is that of its [mark](marks::mark).
pub(super) fn script(dialect: Dialect, name: &str) -> String {
    let channel = channel_descriptor(dialect);
    let prompt = format!("\\command unset PS1;PS1='{}' PS2=", prompt_variable(name));
    let start = match dialect {
        Dialect::Bash => format!("shopt -s execfail;{prompt}"),
        Dialect::Dash | Dialect::Ash => prompt.clone(),
    };
    format!(
        r#"{{
{{ __glovebox_last=$?
case ${{__glovebox_nonce-}} in
?*) __glovebox_status=$__glovebox_last;__glovebox_take;;
esac
case ${{__glovebox_status-}} in
'') __glovebox_status=0;{start};;
esac
__glovebox_text=
case $- in
*x*) set +x;__glovebox_text='set -x
';;
esac
case $- in
*a*) set +a;__glovebox_text="set -a
$__glovebox_text";;
esac
__glovebox_return() {{ return "$__glovebox_status"; }}
__glovebox_take() {{ :; }}
\command printf 'R;%s;%d;%s\0' "${{__glovebox_nonce-}}" "$__glovebox_status" "${{PWD-}}" >&{channel}
while IFS= \command read -r __glovebox_line <&{channel};do
case $__glovebox_line in {name}*) break;; esac
done
__glovebox_nonce=${{__glovebox_line#{name}}}
while IFS= \command read -r __glovebox_line <&{channel} && \command [ "$__glovebox_line" != "$__glovebox_nonce" ];do
__glovebox_text=$__glovebox_text$__glovebox_line'
'
done
}} 2>/dev/null
__glovebox_return&&:
\command eval " $__glovebox_text" {channel}>&-
{{ __glovebox_status=$?
\command printf '\033]{name};%s\007' "$__glovebox_nonce" >/dev/tty
__glovebox_take
\command printf 'E;%s;%d;%s\0' "$__glovebox_nonce" "$__glovebox_status" "${{PWD-}}" >&{channel}
\command unset __glovebox_nonce
{prompt}
}} 2>/dev/null
}}
"#
    )
}

/// What is sent for one command: its lines, after one that names the session and the nonce, and before one that is the nonce.
/// So a shell that was interrupted while it read one finds the start of the next. A shell's text holds no NUL.
pub(super) fn frame(name: &str, nonce: &str, command: &str, loan: Loan<'_>) -> String {
    let lending = loan.lending();
    format!("{name}{nonce}\n{lending}{}\n{nonce}\n", command.replace('\0', ""))
}

/// A command that does nothing, not even to `$?`.
pub(super) const PROBE: &str = "__glovebox_return&&:";

/// What is typed to have the script read from `path` run.
pub(super) fn line(path: &str) -> String {
    format!(". {}\n", quote(path))
}

/// `text` as one word.
pub(super) fn quote(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte)) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Programs must neither page, nor draw, nor ask a person for a password that no one will type.
pub(crate) const PLAIN_TERMINAL: [(&str, &str); 8] = [
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("AWS_PAGER", ""),
    ("GH_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];
