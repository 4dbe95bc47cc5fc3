//! What the shell is told, in its own language: the environment that makes it announce its prompt, the line that is
//! typed to run a script, and the line before the script that announces its start.
//!
//! Pure: values in, text out. All the session's shell code stands here.
//!
//! How a command runs: the script lies in a file that the shell can open ([`super::script`]). One short line is typed,
//! which sources it. So nothing depends on the length of a terminal's line, on continuation prompts or on quoting, and
//! an unclosed quote ends with the file. After the script the rest of the typed line puts the prompt right again, should
//! the script have changed it; a script that was interrupted or could not be parsed loses that rest, and there the
//! prompt itself still announces the end.
//!
//! The exit status of the user's last command is carried through everything of ours, so that `$?` is theirs. `&&:` keeps
//! that status and yet is no failure under `set -e`. What may be traced (`set -x`) is silenced by a group, whose
//! redirection holds before the trace is written.

use std::ffi::OsString;
use std::path::Path;

use super::program::Dialect;

/// Which session a process belongs to, for as long as it keeps its environment.
pub(super) const SESSION_VARIABLE: &str = "GLOVEBOX_SESSION";

/// A session's private words.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    dialect: Dialect,
    nonce: String,
    prompt: String,
}

impl Prompt {
    /// The prompt of a shell on `terminal`. bash announces itself on that terminal only: a bash which an expect script
    /// drives on a terminal of its own has the same environment, and its prompts mean nothing to us.
    pub(super) fn new(dialect: Dialect, nonce: String, terminal: &Path) -> Self {
        let prompt = match dialect {
            Dialect::Bash => format!(
                "{{ __glovebox_status=$?; PS1= PS2=; [[ /dev/fd/0 -ef {terminal} ]] && \
                 builtin printf '\\033]{nonce};E;%d;%s\\007' \"$__glovebox_status\" \"$PWD\" >/dev/tty; }} 2>/dev/null",
                terminal = terminal.display()
            ),
            // Neither expands an escape here; `$?` and `$PWD` they do expand, at every prompt.
            Dialect::Dash | Dialect::Ash => format!("\x1b]{nonce};E;$?;$PWD\x07"),
        };
        Self { dialect, nonce, prompt }
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
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        match self.dialect {
            Dialect::Bash => vec![("PROMPT_COMMAND", self.prompt.clone().into())],
            Dialect::Dash | Dialect::Ash => {
                vec![("PS1", self.prompt.clone().into()), ("PS2", OsString::new())]
            }
        }
    }

    /// The line before the user's text. It announces the start, and leaves behind what the typed line calls at the end:
    /// that announces it before the prompt does, which is sooner, and also where `exec 2>file` hides the prompt.
    pub(super) fn first_line(&self, sequence: u64) -> String {
        let Self { nonce, .. } = self;
        let prompt = quote(&self.prompt);
        let restored = match self.dialect {
            Dialect::Bash => format!("PROMPT_COMMAND={prompt}"),
            Dialect::Dash | Dialect::Ash => format!("PS1={prompt} PS2="),
        };
        format!(
            "{{ __glovebox_status=$?;__glovebox() {{ __glovebox_status=$?;{restored};\
             printf '\\033]{nonce};E;%d;%s\\007' \"$__glovebox_status\" \"$PWD\" >/dev/tty;return $__glovebox_status; }};\
             __glovebox_start() {{ printf '\\033]{nonce};S;{sequence}\\007' >/dev/tty;return $__glovebox_status; }};\
             __glovebox_start&&:;}} 2>/dev/null\n"
        )
    }

    /// What is typed at a prompt. Short: ash reads it key by key, and draws each.
    pub(super) fn typed_line(script: &Path) -> String {
        format!(". {};{{ __glovebox&&:;}} 2>/dev/null\n", quote(&script.to_string_lossy()))
    }
}

/// `text` as one word.
fn quote(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte)) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Programs must neither page, nor draw, nor ask a person for a password that no one will type.
pub(super) const PLAIN_TERMINAL: [(&str, &str); 8] = [
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("AWS_PAGER", ""),
    ("GH_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];
