//! What the start-up files of a shell in a sandbox (`.bashrc`) do to its environment: conda, nvm or
//! cargo on the `PATH`.
//!
//! A session's shell reads them itself. A script has a shell that is not interactive, for which
//! most of them do nothing, so it gets the environment that they give to an interactive one.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::sandbox::{Sandbox, SandboxError, Script, ScriptResult};

use super::print;

/// Starts an interactive shell that only prints its environment. What the files print is dropped.
const PRINT_ENVIRONMENT: &str = r#"exec 3>&1 >/dev/null
exec "$(command -v bash || command -v sh)" -ic '\exec cat /proc/self/environ >&3'"#;

/// As for the shell of a session.
const TIMEOUT: Duration = Duration::from_secs(10);

const MAX_BYTES: usize = 256 << 10;

/// Variables of the shell that printed them.
const OWN_VARIABLES: [&str; 4] = ["_", "OLDPWD", "PWD", "SHLVL"];

/// Returns the environment of an interactive shell. It is empty, with a warning, if the files do
/// not leave a shell.
pub(super) async fn environment(
    sandbox: &dyn Sandbox,
) -> Result<BTreeMap<String, String>, SandboxError> {
    let script = Script {
        text: PRINT_ENVIRONMENT,
        arguments: &[],
        timeout: TIMEOUT,
        max_output_bytes: MAX_BYTES,
    };
    let problem = match script.run(sandbox).await? {
        ScriptResult::Exited { code: 0, output } if output.last() == Some(&0) => {
            return Ok(variables(&output));
        }
        ScriptResult::Exited { .. } => "did not leave a shell that works",
        ScriptResult::TooMuchOutput => "set too large an environment",
        ScriptResult::TimedOut => "did not end in time",
    };
    print::warning(&format!(
        "the start-up files of the shell (such as ~/.bashrc) {problem}, so the command runs without them"
    ));
    Ok(BTreeMap::new())
}

/// Reads `/proc/self/environ`. A value that is not UTF-8 stays as the sandbox has it.
fn variables(output: &[u8]) -> BTreeMap<String, String> {
    let lines = output
        .split(|byte| *byte == 0)
        .filter_map(|line| std::str::from_utf8(line).ok());
    let variables = lines.filter_map(|line| line.split_once('='));
    let variables = variables.filter(|(name, _)| !name.is_empty() && !OWN_VARIABLES.contains(name));
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
