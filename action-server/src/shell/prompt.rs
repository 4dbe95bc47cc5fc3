//! What the shell is told, in its own language: the environment that makes it announce its prompt, and what is typed to
//! run a command.
//!
//! Pure: values in, text out. All the session's shell code stands here.
//!
//! **bash** announces its prompt in `PS1`: an expansion, not a command, so that it costs next to nothing, leaves `$?` alone
//! and is not traced. `PROMPT_COMMAND` is the installer: exported, so that `exec bash` and a bash in the bash have it too.
//! Where all is in place it expands to nothing. A command of one line is typed as it is, quoted for `eval` unless it is
//! words alone; any other lies in a file that the shell can open ([`super::script`]), so that nothing depends on the length
//! of a terminal's line or on continuation prompts.
//!
//! How much is done for the prompt depends on what the text of the commands lets fear ([`super::guess`], [`Care`]). At most
//! the rest of the typed line calls `__glovebox`, which puts the prompt right, should the command have changed it, and
//! announces the end itself where the prompt cannot be seen, as after `exec 2>file`, or comes late, after notices of
//! background jobs. A command that was interrupted loses that rest; for one that may change the prompt, `PROMPT_COMMAND`
//! does the same. (Lost is the end of one that changed both `PS1` and `PROMPT_COMMAND` and was interrupted then; in dash and
//! ash, `PS1` alone.)
//!
//! That much is enough where nobody else writes to the terminal: all that comes is the command's, and the next prompt is its
//! end. Else, and where our part of the line would show in a trace (`set -x`), the command is *guarded*: its start is
//! announced, with a number, and all that is ours stands in groups whose redirection holds before the trace is written.
//!
//! **dash and ash**: their commands are always guarded, in the file.
//!
//! The exit status of the user's last command is carried through everything of ours, so that `$?` is theirs. `&&:` keeps
//! that status and yet is no failure under `set -e`.

use std::ffi::OsString;
use std::path::Path;

use super::guess;
use super::loan::Loan;
use super::program::Dialect;

/// Which session a process belongs to, for as long as it keeps its environment.
pub(crate) const SESSION_VARIABLE: &str = "GLOVEBOX_SESSION";

/// The variable that a bash's installer is in.
const INSTALLER_VARIABLE: &str = "GLOVEBOX_PROMPT";

/// Expands to nothing where it has been installed. Two words, because a user's `IFS` may not split one. A short name: bash
/// reads it anew at each prompt, 150 instructions a letter.
const INSTALL: &str = r#"${__gbox-eval} ${__gbox-"$GLOVEBOX_PROMPT"}"#;

/// The same, and `PS1` is ours too, which its length tells, and no job was begun in the background: that is the one index
/// that is set. Costs as much as three short commands.
const INSPECT: &str =
    r#"${__glovebox_lengths[${#PS1}${!-}]-eval} ${__glovebox_lengths[${#PS1}${!-}]-"$GLOVEBOX_PROMPT"}"#;

/// A terminal takes lines of up to 4,095 bytes, and cuts longer ones silently.
const MAX_TYPED_BYTES: usize = 3 * 1024;

/// What is done for the prompt after a command, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Care {
    /// Nothing: it is as it was.
    None,
    /// It is looked at, because of what was run before.
    Look,
    /// It is looked at, and also if the command is interrupted, because of the command.
    Inspect,
    /// The command is guarded.
    Guard,
}

/// What makes the shell run a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Orders {
    /// The number that its start will be announced with; without one all that comes is its own.
    pub(super) number: Option<u64>,
    /// What the script must hold, if one is read.
    pub(super) script: Option<String>,
    /// What is typed at the prompt. Short: ash reads it key by key, and draws each.
    pub(super) line: String,
}

/// A session's private words.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    dialect: Dialect,
    nonce: String,
    /// In bash the installer, else the prompt itself.
    text: String,
}

impl Prompt {
    /// The prompt of a shell on `terminal`. bash announces itself on that terminal only: a bash which an expect script
    /// drives on a terminal of its own has the same environment, and its prompts mean nothing to us.
    pub(super) fn new(dialect: Dialect, nonce: String, terminal: &Path) -> Self {
        let text = match dialect {
            Dialect::Bash => installer(&nonce, terminal),
            // Neither expands an escape here; `$?` and `$PWD` they do expand, at every prompt.
            Dialect::Dash | Dialect::Ash => format!("\x1b]{nonce};E;$?;~;$PWD\x07"),
        };
        Self { dialect, nonce, text }
    }

    /// The language it is in.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The private word in every mark.
    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// What is set in the shell's environment, over what the configuration gives. Exported, so that `exec bash` and a
    /// shell inside the shell announce themselves too.
    pub(super) fn environment(&self) -> [(&'static str, OsString); 2] {
        match self.dialect {
            Dialect::Bash => {
                [("PROMPT_COMMAND", INSTALL.into()), (INSTALLER_VARIABLE, self.text.clone().into())]
            }
            Dialect::Dash | Dialect::Ash => [("PS1", self.text.clone().into()), ("PS2", OsString::new())],
        }
    }

    /// How to have `command` run, with at least this `care`, by a shell that reads scripts from `script`. What is lent or
    /// owed takes a guarded command.
    pub(super) fn orders(
        &self,
        command: &str,
        number: u64,
        care: Care,
        loan: Loan<'_>,
        script: &Path,
    ) -> Orders {
        let source = || format!(". {}", quote(&script.to_string_lossy()));
        let scripted = |first_line: &str| Some([first_line, command, "\n"].concat());
        if self.dialect != Dialect::Bash {
            return Orders {
                number: Some(number),
                script: scripted(&self.first_line(number, loan)),
                line: format!("{};{{ __glovebox&&:;}} 2>/dev/null\n", source()),
            };
        }
        let unguarded = |before: &str, after: &str| {
            let (script, run) = match typed(command) {
                Some(typed) => (None, typed),
                None => (scripted(""), source()),
            };
            Orders { number: None, script, line: format!("{before}{run}{after}\n") }
        };
        match care {
            Care::None => unguarded("", ""),
            Care::Look => unguarded("", ";__glovebox&&:"),
            Care::Inspect => unguarded("__glovebox_inspect&&:;", ";__glovebox&&:"),
            Care::Guard => Orders {
                number: Some(number),
                script: scripted(&format!(
                    "{{ {}__glovebox_start {number}&&:;}} 2>/dev/null\n",
                    lending(loan)
                )),
                line: match loan.lent.0.is_empty() {
                    true => format!("{};{{ __glovebox 9&&:;}} 9>&2 2>/dev/null\n", source()),
                    false => {
                        format!("{};{{ __glovebox_take&&:;__glovebox 9&&:;}} 9>&2 2>/dev/null\n", source())
                    }
                },
            },
        }
    }

    /// What `command` asks for, in a shell that is as it was begun: `Look` in any other.
    pub(super) fn care(&self, command: &str) -> Care {
        if self.dialect != Dialect::Bash || guess::may_hide_the_prompt(command) {
            Care::Guard
        } else if guess::may_change_the_prompt(command) {
            Care::Inspect
        } else {
            Care::None
        }
    }

    /// The line before the user's text in dash and ash. It announces the start, and leaves behind what the typed
    /// line calls at the end: that announces it before the prompt does, also where `exec 2>file` hides the prompt.
    fn first_line(&self, number: u64, loan: Loan<'_>) -> String {
        let Self { nonce, text, .. } = self;
        let prompt = quote(text);
        let (owed, take, lend) = (loan.take_owed(), loan.take_lent(), loan.lend());
        format!(
            "{{ __glovebox_status=$?;{owed}__glovebox() {{ __glovebox_status=$?;{take}PS1={prompt} PS2=;\
             printf '\\033]{nonce};E;%d;~;%s\\007' \"$__glovebox_status\" \"$PWD\" >/dev/tty;return $__glovebox_status; }};\
             __glovebox_start() {{ printf '\\033]{nonce};S;{number}\\007' >/dev/tty;return $__glovebox_status; }};\
             {lend}__glovebox_start&&:;}} 2>/dev/null\n"
        )
    }
}

/// What a bash does before it announces a command's start, if anything is lent or owed. It leaves behind what the typed
/// line calls at the end.
fn lending(loan: Loan<'_>) -> String {
    if loan.is_none() {
        return String::new();
    }
    let (owed, take, lend) = (loan.take_owed(), loan.take_lent(), loan.lend());
    format!(
        "__glovebox_status=$?;{owed}__glovebox_take() {{ __glovebox_status=$?;{take}return $__glovebox_status; }};\
         {lend}(exit $__glovebox_status)&&:;"
    )
}

/// What a bash runs once to become a session's shell. What is announced is announced first: what follows may be forbidden
/// (`readonly PS1`), which ends the function. With `execfail` an `exec` that fails leaves the shell, as it does when it is
/// typed; ours may come from a script. Where its standard error is the user's is said by descriptor 9.
fn installer(nonce: &str, terminal: &Path) -> String {
    let terminal = terminal.display();
    format!(
        r#"{{ __glovebox_status=$?
if [[ /proc/self/fd/0 -ef {terminal} ]]; then
__glovebox_prompt='\e]{nonce};E;$?;$-;$PWD\a'
__gbox= __glovebox_lengths=([${{#__glovebox_prompt}}]=)
[[ ${{__glovebox_command-}} ]] || __glovebox_command='{INSTALL}'
__glovebox_careful='{{ "${{__glovebox_call-eval}}" "${{__glovebox_nine-$GLOVEBOX_PROMPT}}"&&:;}} 9>&2 2>/dev/null'
__glovebox_call=__glovebox __glovebox_nine=9
__glovebox_start() {{ __glovebox_status=$?
builtin printf '\033]{nonce};S;%d\007' "$1" >/dev/tty
PROMPT_COMMAND=$__glovebox_careful
return $__glovebox_status; }}
__glovebox_inspect() {{ __glovebox_status=$?
__glovebox_command='{INSPECT}'
PROMPT_COMMAND=$__glovebox_command __glovebox_whole=$__glovebox_prompt$__glovebox_command
return $__glovebox_status; }}
__glovebox() {{ __glovebox_status=$?
[[ ${{PS1-}}${{PROMPT_COMMAND-}}${{!-}} == "$__glovebox_whole" && -t ${{1-2}} ]] || __glovebox_mend ${{1-2}}
return $__glovebox_status; }}
__glovebox_mend() {{ builtin printf '\033]{nonce};E;%d;~;%s\007' "$__glovebox_status" "$PWD" >/dev/tty
builtin shopt -s execfail
PS2=
if [[ -t $1 ]]; then
PS1=$__glovebox_prompt PROMPT_COMMAND=$__glovebox_command
__glovebox_whole=$PS1$PROMPT_COMMAND
else
PS1= PROMPT_COMMAND=$__glovebox_careful
fi; }}
__glovebox_mend 9
else
unset PROMPT_COMMAND
fi; }} 9>&2 2>/dev/null"#
    )
}

/// `command` as one typed line, if it can be one. `exit` says so in an interactive shell, but not in a script.
fn typed(command: &str) -> Option<String> {
    if ["exit", "logout"].iter().any(|word| command.contains(word)) || command.chars().any(char::is_control) {
        return None;
    }
    let line = match guess::is_words(command) {
        true => command.to_owned(),
        false if guess::is_closed(command) => format!("eval -- {}", quote(command)),
        false => return None,
    };
    (line.len() <= MAX_TYPED_BYTES).then_some(line)
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
