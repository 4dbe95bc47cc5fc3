//! Probes the software of a sandbox with a short script. Its output is untrusted: only known names
//! are accepted, each once, with short values without control characters.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sandbox::{Sandbox, SandboxError, Script, ScriptResult};

/// Prints one line per fact. Runs in any POSIX shell. Code that is appended may use its functions.
pub const PROBE: &str = include_str!("probe.sh");

/// The fact that Python 3.8 or later is installed. Its value is the version.
pub const PYTHON: &str = "python3";

/// The fact that Python 3 has IPython. Its value is the version.
pub const IPYTHON: &str = "ipython";

/// The fact that an executable Chromium is installed. Its value is the version.
pub const CHROMIUM: &str = "chromium";

/// The names of Chromium that the script searches for.
pub const BROWSERS: &str = "chromium chromium-browser google-chrome google-chrome-stable chrome";

/// The facts that tools require.
const NAMES: [&str; 3] = [PYTHON, IPYTHON, CHROMIUM];

/// The start of a line of the probe.
const LINE_PREFIX: &str = "glovebox-probe ";

/// Maximum length of a value, in characters.
const MAX_VALUE_CHARS: usize = 200;

/// Maximum length of the probe's output, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 10;

/// The timeout of the script: programs that it runs may hang.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The facts about a sandbox, by name.
pub type SandboxFacts = BTreeMap<&'static str, String>;

/// Parses the lines of the probe with these names, and ignores all others. The first line of a name
/// counts.
pub fn facts(text: &str, names: impl IntoIterator<Item = &'static str> + Clone) -> SandboxFacts {
    let mut facts = SandboxFacts::new();
    for line in text.lines() {
        let Some((name, value)) = line
            .strip_prefix(LINE_PREFIX)
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let known = names.clone().into_iter().find(|known| *known == name);
        let value: String = value
            .trim()
            .chars()
            .filter(|character| !character.is_control())
            .take(MAX_VALUE_CHARS)
            .collect();
        if let (Some(name), false) = (known, value.is_empty()) {
            facts.entry(name).or_insert(value);
        }
    }
    facts
}

/// Probes a sandbox. Returns no facts after a timeout, or of an output that is too long.
pub(super) async fn probe(sandbox: &dyn Sandbox) -> Result<SandboxFacts, SandboxError> {
    let script = Script {
        text: PROBE,
        arguments: &[],
        timeout: PROBE_TIMEOUT,
        max_output_bytes: MAX_OUTPUT_BYTES,
    };
    Ok(match script.run(sandbox).await? {
        ScriptResult::Exited { output, .. } => facts(&String::from_utf8_lossy(&output), NAMES),
        ScriptResult::TooMuchOutput | ScriptResult::TimedOut => SandboxFacts::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_script_searches_the_same_browsers() {
        assert!(PROBE.contains(&format!("for browser in {BROWSERS}; do")));
    }

    #[test]
    fn unknown_probe_lines_are_ignored() {
        let long = "x".repeat(100_000);
        let output = format!(
            "noise\nglovebox-probe shell /bin/sh\nglovebox-probe shell /second\nglovebox-probe wings yes\nglovebox-probe git\n\
             glovebox-probe node \u{1b}[2Jv1\u{7}\nglovebox-probe python {long}\nglovebox-probe libc \n x glovebox-probe uid 0\n"
        );
        let facts = facts(&output, ["git", "libc", "node", "python", "shell", "uid"]);
        assert_eq!(
            facts.keys().copied().collect::<Vec<_>>(),
            ["node", "python", "shell"]
        );
        assert_eq!(
            (facts["shell"].as_str(), facts["node"].as_str()),
            ("/bin/sh", "[2Jv1")
        );
        assert_eq!(facts["python"].len(), MAX_VALUE_CHARS);
    }
}
