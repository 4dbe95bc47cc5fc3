//! The shell's side of the protocol: the script that reads commands from the
//! [channel](super::channel), runs them, and reports their end there.
//!
//! Pure. All shell code of the session is here and in [`super::command_variables`]. It is the same
//! for bash, dash and ash.
//!
//! The server always types the same line at the prompt, which sources a file that never changes.
//! The script in it reports, reads a line from the channel and evaluates it, [`COMMANDS`] times. A
//! report states that the shell waits for a command, which one has ended before, with its status,
//! and whether the shell needs its prompt: because `PROMPT_COMMAND` is set, because a background
//! job was started, which may have to be announced, or because the script ends. Then the server
//! sends a [line](leave_line) that makes the shell leave the script. An interrupt or `return` does
//! so too. At the prompt the line is typed again, and the next report contains the end of the
//! command. A lost report causes a delay, but never a wrong result.
//!
//! Each report has a number, its turn, and a line of the channel ends with the turn that it
//! responds to. The shell skips other lines, so a command that was lost can be sent again and never
//! runs twice. What is left of a line that was read in part ends with an old turn. The turn need
//! not be secret, because the channel proves that a report is the shell's.
//!
//! What each statement is for, and its test:
//!
//! | statement | keeps | test |
//! |---|---|---|
//! | `case $-,…`, `set +x` | traces are the user's | `trace_shows_only_the_user_s_commands` |
//! | `set +a`, `set +k` | `export` is as usual | `variables_are_injected_when_bash_reads_…` |
//! | `eval "$__glovebox_undo"` | variables of one command | `variables_are_visible_to_one_…` |
//! | `PS1=`, `PS2=` | a prompt is not output, and is seen | `user_prompt_changes_nothing` |
//! | `__glovebox_saved=$1` | `$?` outlives a prompt | `status_of_the_last_command_outlives_a_…` |
//! | `__glovebox_turn=` | no command runs twice | `stray_interrupts_lose_and_repeat_no_command` |
//! | `printf` | completion cannot be forged | all of `forging` |
//! | `${PROMPT_COMMAND:+p}` | `PROMPT_COMMAND` runs | `prompt_command_runs_after_each_command` |
//! | `${!:+p}` | jobs are announced | `ended_jobs_are_announced_at_the_prompt` |
//! | `IFS=` | any separator | `exit_status_survives_any_separator` |
//! | `read` | commands are not typed | `input_of_a_command_is_not_read_by_the_shell` |
//! | `eval "${__glovebox_line%;*}"` | several lines, variables | `many_lines_arrive_completely` |
//! | `'') break` | no endless loop | `shell_that_cannot_report_is_replaced` |
//! | `*) continue` | the rest of a line is skipped | `secret_of_a_command_cancelled_unread_…` |
//! | `__glovebox_ended=` | lost and ended differ | `command_that_changes_our_variables_runs_once` |
//! | `return "$1"`, `&&:` | `$?` and `set -e` | `status_of_the_last_command_is_available` |
//! | `command`, `builtin` | functions of the user | `commands_of_any_text_run` |
//! | `eval " …"` | errors and `-x` are harmless | `syntax_error_is_reported_and_the_shell_…` |
//! | `shopt -s execfail` | `exec` fails as if typed | `bash_reports_status_and_errors_as_usual` |
//! | `__glovebox_keep`, `9>&-` | secrets | `programs_do_not_inherit_the_channel` |
//! | `set -o ignoreeof` | ash survives a reset terminal | `terminal_settings_are_repaired` |
//!
//! - `__glovebox_saved` is cleared before `__glovebox_ended` is set. In between, an interrupted
//!   command is lost. In the other order, it would have the status of the command before.
//! - It is not a loop, which would change the meaning of `break` in a command and of SIGINT.
//! - Our commands are in groups whose redirection applies before a trace (`set -x`) is written, and
//!   in one group in total, so that `set -v` shows none of them.
//! - `command` also keeps a syntax error from ending our script in dash and ash.
//! - `exit` prints nothing in a sourced file, but prints `exit` in bash at a prompt.
//! - If the user has a function named `command`, dash and ash are replaced, but nothing loops. In
//!   bash, variables are not injected then. A report of the program `printf` (`enable -n printf`)
//!   would not be the shell's own, and the shell would wait forever for a response.
//! - A command that sets `__glovebox_ended` back counts as lost, and is sent again.
//! - bash reads the channel byte by byte, which takes 0.3 µs for each. A memory file that only the
//!   server can write is faster for commands of more than 50 bytes, but every process can read it.

use super::command_variables::CommandVariables;
use super::marks;
use super::program::ShellDialect;

/// Number of commands between two prompts. The shell parses the script, which contains each of
/// them, at every prompt. A shell that is interrupted all the time never gets through a long one.
const COMMANDS: usize = 32;

/// Makes bash's end of the channel close on exec. bash saves the target of a redirection in a
/// descriptor that is closed on exec, and so is a copy of that. The alternative, a redirection for
/// each command, would keep the channel in descriptor 10 meanwhile, which scripts use.
const START_BASH: &str = "shopt -s execfail
__glovebox_keep() {
local fd
for fd in 10 11 12 13 14 15 16 17 18 19;do
[ -S /proc/self/fd/$fd ]&&eval \"exec 252<&$fd\"&&return
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
    let next = "{ __glovebox_next \"$?\";} 2>/dev/null&&:\n";
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
