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

/// Number of commands between two prompts. The shell parses the script, which contains each of
/// them, at every prompt. More than a hundred, so that this is not the slowest hundredth.
const COMMANDS: usize = 128;

/// Makes bash's end of the channel close on exec. bash saves the target of a redirection in a
/// descriptor that is closed on exec, and so is a copy of that. The alternative, a redirection for
/// each command, would keep the channel in descriptor 10 meanwhile, which scripts use.
const START_BASH: &str = "shopt -s execfail
__glovebox_keep() {
for __glovebox_line in 10 11 12 13 14 15 16 17 18 19;do
[ -S /proc/self/fd/$__glovebox_line ]&&eval \"exec 252<&$__glovebox_line\"&&return
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
    // bash need not make the channel its standard input for `-u`, and its programs do not inherit
    // it.
    let (start, own, from, to, closed) = match dialect {
        ShellDialect::Bash => (
            START_BASH,
            "builtin",
            format!("-u {channel} "),
            String::new(),
            String::new(),
        ),
        ShellDialect::Dash | ShellDialect::Ash => (
            if dialect == ShellDialect::Ash {
                "set -o ignoreeof"
            } else {
                ":"
            },
            "command",
            String::new(),
            format!(" <&{channel}"),
            format!(" {channel}>&-"),
        ),
    };
    // The functions have the exit status of the last command as their argument and result.
    let functions = format!(
        r#"__glovebox_newline='
'
__glovebox_next() {{
case $-,${{__glovebox_undo-}}${{__glovebox_options-}}${{PS1-}}${{PS2-}} in
*[akx]*,*) __glovebox_restore "$1";;
*,'{prompt}') ;;
*) __glovebox_restore "$1";;
esac
__glovebox_saved=$1 __glovebox_line= __glovebox_turn=$((${{__glovebox_turn-0}}+1))
\{own} printf '%s\0' "$__glovebox_turn;${{__glovebox_ended-}};$1;${{2-}}${{PROMPT_COMMAND:+p}}${{!:+p}};${{PWD-}}" >&{channel}&&
while IFS= \{own} read -r {from}__glovebox_line{to};do
case $__glovebox_line in
__glovebox_*";$__glovebox_turn") \{own} eval "${{__glovebox_line%;*}}"||break;;
*";$__glovebox_turn") __glovebox_line=${{__glovebox_line%;*}};;
'') break;;
*) continue;;
esac
__glovebox_saved=
__glovebox_ended=$__glovebox_turn
return "$1"
done
__glovebox_line='\return 0'
return "$1"
}}
__glovebox_restore() {{
case ${{__glovebox_saved-}} in '') __glovebox_options=;; esac
case $- in *x*) set +x;__glovebox_options="set -x$__glovebox_newline";; esac
case $- in *k*) set +k;__glovebox_options="set -k$__glovebox_newline$__glovebox_options";; esac
case $- in *a*) set +a;__glovebox_options="set -a$__glovebox_newline$__glovebox_options";; esac
case ${{__glovebox_undo-}} in ?*) \{own} eval "$__glovebox_undo";; esac
__glovebox_undo=
\{own} unset PS1 PS2&&PS1='{prompt}' PS2=||:
}}"#
    );
    let run = format!("\\{own} eval \" ${{__glovebox_options-}}$__glovebox_line\"{closed}\n");
    let next = "{ __glovebox_next \"$?\";} 2>&-&&:\n";
    format!(
        r#"{{
{{ __glovebox_line=${{__glovebox_saved:-$?}}
{functions}
case ${{__glovebox_turn-}} in '') {start};; esac
__glovebox_next "$__glovebox_line"
}} 2>/dev/null&&:
{commands}{{ __glovebox_next "$?" p;}} 2>/dev/null&&:
{run}}}
"#,
        commands = vec![run.as_str(); COMMANDS].join(next)
    )
}

/// Returns the line that responds to `turn`: the shell code `command`, with variables for it only.
///
/// A command of one line is sent as it is, after a space. Otherwise the line is code of ours, which
/// sets the variables and stores the command. NUL bytes are removed, because a shell's text cannot
/// contain any.
pub(super) fn command_line(command: &str, variables: CommandVariables<'_>, turn: u64) -> String {
    let assignments = variables.assignments();
    let command = command.replace('\0', "");
    if assignments.is_empty() && !command.contains('\n') {
        return format!(" {command};{turn}\n");
    }
    // All newlines are in single quotes. Without the variable, the code fails.
    let code = format!(
        "__glovebox_line=;{assignments}__glovebox_line={}",
        quote(&command)
    );
    let code = code.replace('\n', "'\"${__glovebox_newline?}\"'");
    format!("{code};{turn}\n")
}

/// Returns the line that responds to `turn` and makes the shell return to its prompt: code of ours
/// that fails.
pub(super) fn leave_line(turn: u64) -> String {
    format!("__glovebox_line=;! :;{turn}\n")
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
