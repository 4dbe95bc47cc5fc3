//! What the shell is told, in its own language: the script that makes it take commands from its
//! [channel](super::channel) and report there how they ended.
//!
//! Pure: values in, text out. All the session's shell code stands here and in [`super::loan`]. It is the same for bash, dash
//! and ash.
//!
//! What is typed at the prompt is always the same line, which sources a file that never changes. The script in it reports *ready*
//! and reads one command from the channel, evaluates it, and does the same again, [`COMMANDS`] times; then, or where something
//! of the user's waits for a prompt, it reports the *end* and leaves for the prompt, and the line is typed again. Each *ready* says which
//! command has ended before it. So where a command was interrupted or left the script by `return`, the shell comes to its prompt,
//! and the next *ready* says how the command ended. An end that is lost costs time and is never wrong.
//!
//! - Each *ready* has a number, its turn. A [frame] is the answer to one turn, and the shell runs none that answers another. So
//!   a command whose frame was lost can be sent again, and never runs twice. That a report is the shell's own, the channel
//!   proves; the turn need not be secret.
//! - It is no loop, in which a command's `break` would have a meaning and SIGINT another.
//! - The prompt is gone to where `PROMPT_COMMAND` is set, and once a background job was started, which may have to be announced.
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
//! - An ash that edits a line while its terminal is reset takes that for the end of its input: with `ignoreeof` it goes on.
//! - Where a function of the user's has the name `command`, nothing works, but nothing loops. A report of the program `printf`
//!   (`enable -n printf`) would not be the shell's own, and the shell would wait in vain for the answer.
//! - Lines are collected in pieces: a text that grows by a line at a time is copied for each.

use super::loan::Loan;
use super::marks;
use super::program::Dialect;

/// How many commands are run between two prompts. Each makes the script longer, which the shell parses whole.
const COMMANDS: usize = 16;

/// bash saves what a redirection replaces in a descriptor that programs do not inherit, and neither do they a copy of that.
/// So commands need no redirection, in which the channel would be where a script may look for a file of its own (10).
const START_BASH: &str = "shopt -s execfail
__glovebox_keep() {
for __glovebox_left in 10 11 12 13 14 15 16 17 18 19;do
[ -S /proc/self/fd/$__glovebox_left ]&&eval \"exec 252<&$__glovebox_left\"&&return
done
}
__glovebox_keep 251>&-
exec 251<&252 252<&-";

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
    let prompt = prompt_variable(name);
    let (start, builtin) = match dialect {
        Dialect::Bash => (START_BASH, "builtin "),
        Dialect::Dash => (":", ""),
        Dialect::Ash => ("set -o ignoreeof", ""),
    };
    // bash need not make the channel its standard input for `-u`, and its programs do not inherit it.
    let (from, to, closed) = match dialect {
        Dialect::Bash => (format!("-u {channel} "), String::new(), String::new()),
        Dialect::Dash | Dialect::Ash => (String::new(), format!(" <&{channel}"), format!(" {channel}>&-")),
    };
    let functions = format!(
        r#"__glovebox_return() {{ return "$__glovebox_status"; }}
__glovebox_fail() {{ return 1; }}
__glovebox_report() {{
\command {builtin}printf '%s;%s;%s;%d;%s\0' "$1" "$__glovebox_turn" "${{__glovebox_ended-}}" "$__glovebox_status" "${{PWD-}}" >&{channel}
}}
__glovebox_restore() {{
case ${{__glovebox_back-}} in ?*) \command eval "$__glovebox_back";; esac
__glovebox_back=
\command unset PS1 PS2&&PS1='{prompt}' PS2=||:
}}
__glovebox_next() {{
__glovebox_status=$1
case ${{__glovebox_started-}} in -) ;; *) __glovebox_ended=$__glovebox_turn __glovebox_started=-;; esac
case ${{__glovebox_back-}}${{PS1-}}${{PS2-}} in '{prompt}') ;; *) __glovebox_restore;; esac
case ${{2-${{PROMPT_COMMAND-}}${{!-}}}} in ?*) __glovebox_leave;return 1;; esac
__glovebox_turn=$((${{__glovebox_turn-0}}+1))
__glovebox_report R||return 1
__glovebox_text= __glovebox_piece= __glovebox_lent=
case $- in *[akx]*) __glovebox_unset;; esac
until
__glovebox_line=-
IFS= \command read -r {from}__glovebox_line{to}||return 1
case $__glovebox_line in
"{name}$__glovebox_turn;"*) __glovebox_text=${{__glovebox_line#*;}};;
"{name}$__glovebox_turn") __glovebox_long||return 1;;
-) return 1;;
*) __glovebox_fail;;
esac
do __glovebox_line=;done
__glovebox_started=x
case ${{__glovebox_lent-}}${{__glovebox_options-}} in ?*) __glovebox_lend;; esac
}}
__glovebox_unset() {{
case $- in *x*) set +x;__glovebox_options='set -x
';; esac
case $- in *k*) set +k;__glovebox_options="set -k
${{__glovebox_options-}}";; esac
case $- in *a*) set +a;__glovebox_options="set -a
${{__glovebox_options-}}";; esac
}}
__glovebox_long() {{
IFS=\; \command read -r {from}__glovebox_lent __glovebox_count{to}||return 1
__glovebox_lines "$__glovebox_lent"||return 1
__glovebox_lent=$__glovebox_text
__glovebox_lines "$__glovebox_count"
}}
__glovebox_lines() {{
__glovebox_text= __glovebox_piece= __glovebox_left=$1
while case $__glovebox_left in 0) __glovebox_fail;; esac;do
IFS= \command read -r {from}__glovebox_line{to}||return 1
__glovebox_piece=$__glovebox_piece$__glovebox_line'
'
__glovebox_left=$((__glovebox_left-1))
case $__glovebox_left in *00) __glovebox_text=$__glovebox_text$__glovebox_piece __glovebox_piece=;; esac
done
__glovebox_text=$__glovebox_text$__glovebox_piece __glovebox_piece= __glovebox_line=
}}
__glovebox_lend() {{
\command eval "${{__glovebox_lent-}}"
__glovebox_text=${{__glovebox_options-}}$__glovebox_text __glovebox_lent= __glovebox_options=
}}
__glovebox_leave() {{
\command printf '\033]{name};%s\007' "$__glovebox_ended" >/dev/tty
__glovebox_report E
}}"#
    );
    let run = format!("__glovebox_return&&:\n\\command eval \" $__glovebox_text\"{closed}\n");
    let next = "{ __glovebox_next \"$?\"||\\return 0;} 2>/dev/null\n";
    format!(
        r#"{{
{{ __glovebox_last=$?
{functions}
case ${{__glovebox_status-}} in '') __glovebox_status=0 __glovebox_started=-;__glovebox_restore;{start};; esac
case ${{__glovebox_started-}} in -) ;; *) __glovebox_status=$__glovebox_last;; esac
__glovebox_next "$__glovebox_status" ''||\return 0
}} 2>/dev/null
{commands}{{ __glovebox_next "$?" leave||:;}} 2>/dev/null
}}
"#,
        commands = vec![run; COMMANDS].join(next)
    )
}

/// A command as the shell reads it: what is lent to it, and its text.
#[derive(Debug)]
pub(super) struct Frame {
    lending: String,
    command: String,
}

impl Frame {
    /// Of a command that has what is lent to it. A shell's text holds no NUL.
    pub(super) fn new(command: &str, loan: Loan<'_>) -> Self {
        Self { lending: loan.lending(), command: command.replace('\0', "") }
    }

    /// Its bytes in answer to `turn` of the shell whose marks have this `name`. A command that is one line, and is lent nothing,
    /// stands in the first line; of others the second says how many lines follow. What a shell that was interrupted has left of
    /// another frame it skips.
    pub(super) fn answering(&self, name: &str, turn: u64) -> String {
        let Self { lending, command } = self;
        if lending.is_empty() && !command.contains('\n') {
            return format!("{name}{turn};{command}\n");
        }
        let count = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count();
        format!("{name}{turn}\n{};{}\n{lending}{command}\n", count(lending), count(command) + 1)
    }
}

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
