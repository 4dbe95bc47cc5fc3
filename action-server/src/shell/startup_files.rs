//! The start-up files of an interactive shell: the user's `.bashrc` and the system's, or the file
//! of `ENV`.
//!
//! The shell is started without them and then runs a [`command`] that reads them, as if it was
//! typed. So a file that exits, hangs or replaces the shell is detected like any other command, and
//! a new shell without them takes its place.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::program::ShellDialect;
use super::prompt::{PLAIN_TERMINAL, quote};

/// Files that distributions make bash read before the user's: Debian, Arch and SUSE, and Alpine.
const SYSTEM_FILES: [&str; 2] = ["/etc/bash.bashrc", "/etc/bash/bashrc"];

/// Returns the command that reads the files. `None` if there are none. `terminal` is the path of
/// the shell's terminal.
///
/// - The files have the terminal as their standard streams. Their own redirections are undone
///   (`exec >file`).
/// - `set -e` would end the shell with the first command that fails.
/// - Programs must not page or draw, and the folder is not for the files to choose.
/// - The last line is the Python interpreter, which the files may have changed.
pub(super) fn command(
    dialect: ShellDialect,
    environment: &[(OsString, OsString)],
    working_dir: &Path,
    terminal: &Path,
) -> Option<String> {
    let read = match dialect {
        ShellDialect::Bash => read_bash_files(environment)?,
        ShellDialect::Dash | ShellDialect::Ash => read_env_file(environment)?,
    };
    let terminal = quote(terminal.to_str()?);
    let exports: String = PLAIN_TERMINAL
        .map(|(name, value)| format!(" {name}={}", quote(value)))
        .concat();
    let folder = quote(working_dir.to_str()?);
    Some(format!(
        "{{ {read}\n}} <{terminal} >{terminal} 2>&1\n\
         {{ \\command set +e;\\command export{exports}\n\
         \\command test \"$PWD\" = {folder}||\\command cd {folder}\n\
         \\command printf '\\n';\\command -v python3||\\command -v python||\\command printf -; }} 2>/dev/null"
    ))
}

fn read_bash_files(environment: &[(OsString, OsString)]) -> Option<String> {
    let home = variable(environment, "HOME").map(|home| Path::new(home).join(".bashrc"));
    let files = SYSTEM_FILES.into_iter().map(PathBuf::from).chain(home);
    let readable =
        files.filter(|file| file.is_absolute() && file.is_file() && File::open(file).is_ok());
    let lines: Vec<String> = readable
        .filter_map(|file| Some(format!(". {}", quote(file.to_str()?))))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// POSIX expands the variables in `ENV`, and ignores a file that does not exist.
fn read_env_file(environment: &[(OsString, OsString)]) -> Option<String> {
    let file = variable(environment, "ENV").and_then(OsStr::to_str)?;
    file.starts_with(['/', '$']).then(|| {
        format!(
            "export ENV={}\n\\command eval \"__glovebox_left=\\\"$ENV\\\"\"\n\
             \\command test ! -f \"$__glovebox_left\"||. \"$__glovebox_left\"",
            quote(file)
        )
    })
}

fn variable<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    environment
        .iter()
        .rev()
        .find(|(found, _)| found == name)
        .map(|(_, value)| value.as_os_str())
}

/// What the shell prints while it reads the files.
#[derive(Debug, Default)]
pub(super) struct StartupOutput {
    /// The end of it, which contains the last line.
    tail: Vec<u8>,
}

impl StartupOutput {
    /// Longer than a path.
    const MAX_BYTES: usize = 8 << 10;

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.tail
            .drain(..self.tail.len().saturating_sub(Self::MAX_BYTES));
    }

    /// Returns whether the files have printed anything.
    pub(super) fn is_of_files(&self) -> bool {
        !self.split().0.trim_ascii().is_empty()
    }

    /// Returns the path of the Python interpreter. `None` if there is none.
    pub(super) fn python(&self) -> Option<String> {
        let path = std::str::from_utf8(self.split().1).ok()?;
        (path.starts_with('/') && Path::new(path).is_file()).then(|| path.to_owned())
    }

    /// Splits it before its last line.
    fn split(&self) -> (&[u8], &[u8]) {
        let text = self.tail.trim_ascii_end();
        text.split_at(memchr::memrchr(b'\n', text).map_or(0, |at| at + 1))
    }
}
