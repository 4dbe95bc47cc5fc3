//! The shell's side of the protocol: the script that reads commands from the
//! [channel](super::channel), runs them, and reports their end there.
//!
//! Pure. All shell code of the session is here and in [`super::command_variables`]. It is the same
//! for bash, dash and ash.
//!
//! The server always types the same line at the prompt, which sources a file that never changes.
//! The script in it reports *ready*, reads one command from the channel and evaluates it. It
//! repeats that [`COMMANDS`] times. Then, or if something of the user's requires a prompt, it
//! reports the *end* and returns to the prompt, and the line is typed again. Each *ready* contains
//! the command that has ended before it. So if a command was interrupted, or has left the script by
//! `return`, the shell returns to its prompt, and the next *ready* reports the end of the command.
//! A lost report causes a delay, but never a wrong result.
//!
//! - Each *ready* has a number, its turn. A [frame] responds to one turn, and the shell ignores
//!   frames for other turns. So a command whose frame was lost can be sent again and never runs
//!   twice. The turn need not be secret, because the channel proves that a report is the shell's.
//! - It is not a loop, which would change the meaning of `break` in a command and of SIGINT.
//! - It returns to the prompt if `PROMPT_COMMAND` is set, or if a background job was started, which
//!   may have to be announced.
//! - The exit status of the user's last command is preserved, so that `$?` is correct. `&&:` keeps
//!   the status without failing under `set -e`.
//! - Our commands are in groups whose redirection applies before a trace (`set -x`) is written, and
//!   in one group in total, so that `set -v` shows none of them. `set -x`, `set -a` and `set -k`
//!   are off while a command is read: they would show how it is evaluated, export our variables,
//!   and change what `export` does.
//! - `command` bypasses functions of the user (`eval() { … }`), and keeps a syntax error from
//!   ending our script in dash and ash.
//! - The space before the text prevents `eval` from parsing options in it.
//! - `exit` prints nothing in a sourced file, but prints `exit` in bash at a prompt.
//! - With `execfail`, a failed `exec` does not end bash, as if it was typed.
//! - An ash that edits a line treats a reset of its terminal as the end of input. With `ignoreeof`
//!   it continues.
//! - If the user has a function named `command`, nothing works, but nothing loops. A report of the
//!   program `printf` (`enable -n printf`) would not be the shell's own, and the shell would wait
//!   forever for a response.
//! - Lines are collected in chunks, because appending to a text copies it.

use super::command_variables::CommandVariables;
use super::marks;
use super::program::ShellDialect;

/// Number of commands between two prompts. Each makes the script longer, and the shell parses all
/// of it.
const COMMANDS: usize = 16;

/// Makes bash's end of the channel close on exec. bash saves the target of a redirection in a
/// descriptor that is closed on exec, and so is a copy of that. The alternative, a redirection for
/// each command, would keep the channel in descriptor 10 meanwhile, which scripts use.
const START_BASH: &str = "shopt -s execfail
__glovebox_keep() {
for __glovebox_left in 10 11 12 13 14 15 16 17 18 19;do
[ -S /proc/self/fd/$__glovebox_left ]&&eval \"exec 252<&$__glovebox_left\"&&return
done
}
__glovebox_keep 251>&-
exec 251<&252 252<&-";

/// Returns the descriptor of the shell's end of the channel. dash only supports one digit. The
/// others use a number that scripts do not use.
pub(super) fn channel_descriptor(dialect: ShellDialect) -> i32 {
    match dialect {
        ShellDialect::Dash => 9,
        ShellDialect::Bash | ShellDialect::Ash => 251,
    }
}

/// Returns the value of `PS1`. It only becomes a mark when it is expanded, because a command may
/// print its variables.
pub(super) fn prompt_variable(name: &str) -> String {
    marks::mark(name, "${__glovebox_nothing-}")
}

/// Returns the script. `name` is the name of the session's [marks](marks::mark).
pub(super) fn script(dialect: ShellDialect, name: &str) -> String {
    let channel = channel_descriptor(dialect);
    let prompt = prompt_variable(name);
    let (start, builtin) = match dialect {
        ShellDialect::Bash => (START_BASH, "builtin "),
        ShellDialect::Dash => (":", ""),
        ShellDialect::Ash => ("set -o ignoreeof", ""),
    };
    // bash need not make the channel its standard input for `-u`, and its programs do not inherit
    // it.
    let (from, to, closed) = match dialect {
        ShellDialect::Bash => (format!("-u {channel} "), String::new(), String::new()),
        ShellDialect::Dash | ShellDialect::Ash => (
            String::new(),
            format!(" <&{channel}"),
            format!(" {channel}>&-"),
        ),
    };
    let functions = format!(
        r#"__glovebox_return() {{ return "$__glovebox_status"; }}
__glovebox_fail() {{ return 1; }}
__glovebox_report() {{
\command {builtin}printf '%s;%s;%s;%d;%s\0' "$1" "$__glovebox_turn" "${{__glovebox_ended-}}" "$__glovebox_status" "${{PWD-}}" >&{channel}
}}
__glovebox_restore() {{
case ${{__glovebox_undo-}} in ?*) \command eval "$__glovebox_undo";; esac
__glovebox_undo=
\command unset PS1 PS2&&PS1='{prompt}' PS2=||:
}}
__glovebox_next() {{
__glovebox_status=$1
case ${{__glovebox_started-}} in -) ;; *) __glovebox_ended=$__glovebox_turn __glovebox_started=-;; esac
case ${{__glovebox_undo-}}${{PS1-}}${{PS2-}} in '{prompt}') ;; *) __glovebox_restore;; esac
case ${{2-${{PROMPT_COMMAND-}}${{!-}}}} in ?*) __glovebox_leave;return 1;; esac
__glovebox_turn=$((${{__glovebox_turn-0}}+1))
__glovebox_report R||return 1
__glovebox_text= __glovebox_piece= __glovebox_vars=
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
case ${{__glovebox_vars-}}${{__glovebox_options-}} in ?*) __glovebox_assign;; esac
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
IFS=\; \command read -r {from}__glovebox_vars __glovebox_count{to}||return 1
__glovebox_lines "$__glovebox_vars"||return 1
__glovebox_vars=$__glovebox_text
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
__glovebox_assign() {{
\command eval "${{__glovebox_vars-}}"
__glovebox_text=${{__glovebox_options-}}$__glovebox_text __glovebox_vars= __glovebox_options=
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

/// A command in the format that the script reads: its variables and its text.
#[derive(Debug)]
pub(super) struct CommandScript {
    assignments: String,
    command: String,
}

impl CommandScript {
    /// Creates a frame. NUL bytes are removed from the command, because a shell's text cannot
    /// contain any.
    pub(super) fn new(command: &str, variables: CommandVariables<'_>) -> Self {
        Self {
            assignments: variables.assignments(),
            command: command.replace('\0', ""),
        }
    }

    /// Encodes the frame as the response to `turn` of the shell with these marks. A command of one
    /// line without variables is in the first line. Otherwise the second line contains the number
    /// of lines that follow. The shell skips what an interrupt has left of another frame.
    pub(super) fn encode(&self, name: &str, turn: u64) -> String {
        let Self {
            assignments,
            command,
        } = self;
        if assignments.is_empty() && !command.contains('\n') {
            return format!("{name}{turn};{command}\n");
        }
        let count = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count();
        format!(
            "{name}{turn}\n{};{}\n{assignments}{command}\n",
            count(assignments),
            count(command) + 1
        )
    }
}

/// Returns the line to type, which runs the script in `path`.
pub(super) fn line(path: &str) -> String {
    format!(". {}\n", quote(path))
}

/// Quotes `text` as one word.
pub(super) fn quote(text: &str) -> String {
    if text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
    {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Variables that keep programs from paging, drawing, and prompting for passwords.
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
