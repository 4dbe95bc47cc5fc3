//! The shell's side of the protocol: the script that reads commands from the
//! [channel](super::channel), runs them, and reports their end there.
//!
//! Pure. All shell code of the session is here and in [`super::command_variables`]. It is the same
//! for bash, dash and ash.
//!
//! The server always types the same line at the prompt, which sources a file that never changes.
//! The script in it reports *ready*, reads one line from the channel and evaluates its command. It
//! repeats that [`COMMANDS`] times. Then, or if something of the user's requires a prompt, it
//! reports the *end* and returns to the prompt, and the line is typed again. Each *ready* contains
//! the command that has ended before it. So if a command was interrupted, or has left the script by
//! `return`, the shell returns to its prompt, and the next *ready* reports the end of the command.
//! A lost report causes a delay, but never a wrong result.
//!
//! Most of a command's cost is bash's time, so each statement that runs for every command keeps a
//! promise. Its test is in `tests/`:
//!
//! | statement | promise | test |
//! |---|---|---|
//! | `{ … } 2>/dev/null` | no trace or error of ours | `trace_shows_only_the_user_s_commands` |
//! | `case $2,…` | options work as usual | `variables_are_injected_with_any_shell_options` |
//! | | injected variables are restored | `variables_are_forgotten_however_the_command_ends` |
//! | | marks are found | `user_prompt_changes_nothing` |
//! | | prompts show jobs | `ended_jobs_are_announced_at_the_prompt` |
//! | | prompts run the user's code | `prompt_command_runs_after_each_command` |
//! | `printf … >&` | no process can complete a command | all of `forging` |
//! | `__glovebox_turn+=1` | no command runs twice | `stray_interrupts_lose_and_repeat_no_command` |
//! | `read` | a command is not input | `input_of_a_command_is_not_read_by_the_shell` |
//! | `case $__glovebox_line` | an unread rest is skipped | `secret_of_a_command_cancelled_unread_is_forgotten` |
//! | `__glovebox_ended=` | lost and ended differ | `command_that_changes_our_variables_runs_once` |
//! | `__glovebox_saved=$1` | `$?` outlives a prompt | `status_outlives_the_prompt` |
//! | `return "$1"`, `&&:` | `$?` is the command's | `status_of_the_last_command_is_available` |
//! | `eval` | syntax errors are harmless | `syntax_error_is_reported_and_the_shell_continues` |
//!
//! - Each *ready* has a number, its turn. A [line](CommandScript::encode) ends with the turn that
//!   it responds to, and the shell ignores lines for other turns. So a command whose line was lost
//!   can be sent again and never runs twice. The rest of a line that was read in part ends with an
//!   old turn. The turn need not be secret, because the channel proves that a report is the
//!   shell's.
//! - bash reads the channel byte by byte. A command that is long or has several lines is in the
//!   [`CommandFile`] instead, unless that does not exist.
//! - It is not a loop, which would change the meaning of `break` in a command and of SIGINT.
//! - It returns to the prompt if `PROMPT_COMMAND` is set, or if a background job was started, which
//!   may have to be announced.
//! - bash copies a function for each call, so what few commands need has a function of its own.
//! - Our commands are in groups whose redirection applies before a trace (`set -x`) is written, and
//!   in one group in total, so that `set -v` shows none of them. `set -x`, `set -a` and `set -k`
//!   are off while a command is read: they would show how it is evaluated, export our variables,
//!   and change what `export` does. The server makes the command set them again.
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

use super::command_file::{self, CommandFile};
use super::command_variables::CommandVariables;
use super::marks;
use super::program::ShellDialect;

/// Number of commands between two prompts. Each makes the script longer, and the shell parses all
/// of it.
const COMMANDS: usize = 32;

/// Maximum length of a command in the line. bash takes as long to read 50 bytes of the channel as
/// to read the file.
const MAX_LINE_BYTES: usize = 50;

/// The options that are off while a command is read, and that the next command sets again.
const SUSPENDED_OPTIONS: [char; 3] = ['a', 'k', 'x'];

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
    let file = command_file::PATH;
    let (start, builtin, options) = match dialect {
        ShellDialect::Bash => (START_BASH, "builtin ", "akx"),
        ShellDialect::Dash => (":", "", "ax"),
        ShellDialect::Ash => ("set -o ignoreeof", "", "ax"),
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
    // The arguments of the functions are the status of the last command, the options and, unless
    // the variables decide, whether to return to the prompt.
    let functions = format!(
        r#"__glovebox_newline='
'
__glovebox_next() {{
__glovebox_saved=$1 __glovebox_line='\return 0'
case $2,${{__glovebox_undo-}}${{PS1-}}${{PS2-}}${{3-${{PROMPT_COMMAND-}}${{!-}}}} in
*[akx]*,*) ! :;;
*,'{prompt}') ;;
*) ! :;;
esac||__glovebox_restore "$@"||return "$1"
\command {builtin}printf '%s\0' "R;$((__glovebox_turn+=1));${{__glovebox_ended-}};$1;$2;${{PWD-}}" >&{channel}||return "$1"
until
IFS= \command read -r {from}__glovebox_line{to}||{{ __glovebox_line='\return 0';return "$1"; }}
case $__glovebox_line in
";$__glovebox_turn") \. {file}||__glovebox_line='\return 0';;
__glovebox_*";$__glovebox_turn") \command eval "${{__glovebox_line%;*}}"||__glovebox_line='\return 0';;
*";$__glovebox_turn") __glovebox_line=${{__glovebox_line%;*}} __glovebox_ended=$__glovebox_turn __glovebox_saved=;;
'\return 0') return "$1";;
*) ! :;;
esac
do :;done
return "$1"
}}
__glovebox_restore() {{
case ${{__glovebox_undo-}} in ?*) \command eval "$__glovebox_undo";; esac
__glovebox_undo=
\command unset PS1 PS2&&PS1='{prompt}' PS2=||:
case ${{3-${{PROMPT_COMMAND-}}${{!-}}}} in ?*)
\command printf '\033]{name};%s\007' "${{__glovebox_ended-}}" >/dev/tty
\command {builtin}printf '%s\0' "E;${{__glovebox_turn-}};${{__glovebox_ended-}};$1;$2;${{PWD-}}" >&{channel}
return 1;;
esac
case $2 in *[akx]*) set +{options};; esac
}}"#
    );
    let run = format!("\\command eval \"$__glovebox_line\"{closed}\n");
    let next = "{ __glovebox_next \"$?\" \"$-\";} 2>/dev/null&&:\n";
    format!(
        r#"{{
{{ __glovebox_last=${{__glovebox_saved:-$?}}
{functions}
case ${{__glovebox_turn-}} in '') __glovebox_turn=0;{start};; esac
__glovebox_next "$__glovebox_last" "$-" ''
}} 2>/dev/null&&:
{commands}{{ __glovebox_next "$?" "$-" leave;}} 2>/dev/null||:
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
    /// Creates a script. NUL bytes are removed from the command, because a shell's text cannot
    /// contain any.
    pub(super) fn new(command: &str, variables: CommandVariables<'_>) -> Self {
        Self {
            assignments: variables.assignments(),
            command: command.replace('\0', ""),
        }
    }

    /// Returns the line that responds to `turn`: a short command, or the code that stores the
    /// command in a variable. `options` are set before the command. Only the text of the command is
    /// in `file`, which other processes can read.
    pub(super) fn encode(
        &self,
        options: &SuspendedOptions,
        turn: u64,
        file: &mut CommandFile,
    ) -> String {
        let Self {
            assignments,
            command,
        } = self;
        let text = format!(" {}{command}", options.script());
        let is_simple = assignments.is_empty() && !text.contains('\n');
        if is_simple && text.len() <= MAX_LINE_BYTES {
            return format!("{text};{turn}\n");
        }
        let code = format!(
            "__glovebox_line={} __glovebox_ended={turn} __glovebox_saved=",
            quote(&text)
        );
        let assignments = on_one_line(assignments);
        if !file.write(&format!("{code}\n\\return\n")) {
            return format!("{assignments}{};{turn}\n", on_one_line(&code));
        }
        match assignments.as_str() {
            "" => format!(";{turn}\n"),
            _ => format!("{assignments}\\. {};{turn}\n", command_file::PATH),
        }
    }
}

/// Replaces the newlines in code where all of them are in single quotes. The code fails if the
/// variable is not set.
fn on_one_line(code: &str) -> String {
    code.replace('\n', "'\"${__glovebox_newline?}\"'")
}

/// The options of the user that are off while the shell waits for a command.
#[derive(Debug, Default)]
pub(super) struct SuspendedOptions(String);

impl SuspendedOptions {
    /// Processes the value of `$-` in a report. `is_complete` if the user's options were on.
    pub(super) fn on_report(&mut self, options: &str, is_complete: bool) {
        if is_complete {
            self.0.clear();
        }
        let suspended = SUSPENDED_OPTIONS
            .into_iter()
            .filter(|&option| options.contains(option));
        for option in suspended {
            if !self.0.contains(option) {
                self.0.push(option);
            }
        }
    }

    /// Returns lines that set the options again, `x` last.
    fn script(&self) -> String {
        SUSPENDED_OPTIONS
            .into_iter()
            .filter(|&option| self.0.contains(option))
            .map(|option| format!("set -{option}\n"))
            .collect()
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

#[cfg(test)]
mod tests {
    use protocol::sandbox_api::CommandEnvironment;

    use super::*;

    fn encode(command: &str, variables: &[(&str, &str)], options: &str, has_file: bool) -> String {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let mut suspended = SuspendedOptions::default();
        suspended.on_report(options, true);
        let mut file = CommandFile::create();
        if !has_file {
            file.close();
        }
        CommandScript::new(command, CommandVariables(&CommandEnvironment(variables)))
            .encode(&suspended, 7, &mut file)
    }

    #[test]
    fn short_command_is_in_the_line() {
        assert_eq!(
            encode("echo 'a;b'\0", &[], "himBs", true),
            " echo 'a;b';7\n"
        );
    }

    #[test]
    fn long_command_is_in_the_file() {
        let long = "x".repeat(MAX_LINE_BYTES);
        for (command, options) in [("a\nb", ""), (&long, ""), ("a", "himxBs")] {
            assert_eq!(encode(command, &[], options, true), ";7\n", "{command}");
        }
    }

    #[test]
    fn value_of_a_variable_is_only_in_the_line() {
        let line = encode("a\nb", &[("T", "secret\nvalue")], "", true);
        assert!(line.starts_with("__glovebox_undo="), "{line}");
        assert!(
            line.contains("'secret'\"${__glovebox_newline?}\"'value'"),
            "{line}"
        );
        assert!(line.ends_with(";\\. /proc/self/fd/249;7\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn command_of_several_lines_is_one_line_without_a_file() {
        let expected = "__glovebox_line=' set -a'\"${__glovebox_newline?}\"'set -x'\"${__glovebox_newline?}\"'it'\\''s' \
                        __glovebox_ended=7 __glovebox_saved=;7\n";
        assert_eq!(encode("it's", &[], "hxa", false), expected);
    }

    #[test]
    fn options_are_suspended_until_a_command_has_run() {
        let mut options = SuspendedOptions::default();
        options.on_report("himxBs", true);
        options.on_report("himBs", false);
        assert_eq!(options.script(), "set -x\n");
        options.on_report("himBs", true);
        assert_eq!(options.script(), "");
    }
}
