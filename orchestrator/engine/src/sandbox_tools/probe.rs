//! What a sandbox has: one short script, and what its lines say. They are the sandbox's word: known names only, each once,
//! each value short and without control characters.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use protocol::ProcessId;
use protocol::sandbox_api::{OutputStream, ProcessRequest};
use tokio::time::timeout;

use crate::sandbox::{OutputChunk, Sandbox, SandboxError};

/// Answers one line a fact; whatever shell reads it, and with more after it that uses its functions.
pub const PROBE: &str = include_str!("probe.sh");

/// The fact that there is Python, from 3.8 on; its version.
pub const PYTHON: &str = "python3";

/// The fact that Python 3 has IPython; its version.
pub const IPYTHON: &str = "ipython";

/// The fact that there is a Chromium that can be run; its version.
pub const CHROMIUM: &str = "chromium";

/// The names under which one is looked for, as the script has them.
pub const BROWSERS: &str = "chromium chromium-browser google-chrome google-chrome-stable chrome";

/// The facts that tools ask for.
const NAMES: [&str; 3] = [PYTHON, IPYTHON, CHROMIUM];

/// What a line of the probe's begins with.
const MARK: &str = "glovebox-probe ";

/// The longest value, in characters.
const LONGEST_VALUE: usize = 200;

/// Of the probe's output, in bytes.
const MOST_OUTPUT: usize = 16 << 10;

/// How long the script may take: what it calls may hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long more the answer may take.
const GRACE: Duration = Duration::from_secs(5);

/// SandboxFacts by name.
pub type SandboxFacts = BTreeMap<&'static str, String>;

/// Reads the probe's lines about facts of these names and passes over all others. The first word on a fact counts.
pub fn facts(text: &str, names: impl IntoIterator<Item = &'static str> + Clone) -> SandboxFacts {
    let mut facts = SandboxFacts::new();
    for line in text.lines() {
        let Some((name, value)) = line.strip_prefix(MARK).and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let known = names.clone().into_iter().find(|known| *known == name);
        let value: String =
            value.trim().chars().filter(|letter| !letter.is_control()).take(LONGEST_VALUE).collect();
        if let (Some(name), false) = (known, value.is_empty()) {
            facts.entry(name).or_insert(value);
        }
    }
    facts
}

/// Asks a sandbox. One that takes too long has nothing.
pub(super) async fn ask(sandbox: &dyn Sandbox) -> Result<SandboxFacts, SandboxError> {
    let id = format!("probe-{}", uuid::Uuid::now_v7().simple());
    let Ok(id) = ProcessId::try_from(id) else { return Ok(SandboxFacts::new()) };
    let request = ProcessRequest {
        timeout_seconds: Some(PATIENCE.as_secs_f64()),
        ..ProcessRequest::new(["sh", "-c", PROBE])
    };
    let output = Mutex::new(Vec::new());
    let heard = |stream: OutputStream, chunk: OutputChunk<'_>| {
        if let (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }, Ok(mut output)) =
            (stream, chunk, output.lock())
        {
            let room = MOST_OUTPUT.saturating_sub(output.len());
            output.extend(bytes.iter().take(room));
        }
    };
    match timeout(PATIENCE + GRACE, sandbox.exec(&id, &request, None, &heard)).await {
        Ok(exit) => drop(exit?),
        Err(_) => return Ok(SandboxFacts::new()),
    }
    let output = output.into_inner().unwrap_or_default();
    Ok(facts(&String::from_utf8_lossy(&output), NAMES))
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
        let said = format!(
            "noise\nglovebox-probe shell /bin/sh\nglovebox-probe shell /second\nglovebox-probe wings yes\nglovebox-probe git\n\
             glovebox-probe node \u{1b}[2Jv1\u{7}\nglovebox-probe python {long}\nglovebox-probe libc \n x glovebox-probe uid 0\n"
        );
        let facts = facts(&said, ["git", "libc", "node", "python", "shell", "uid"]);
        assert_eq!(facts.keys().copied().collect::<Vec<_>>(), ["node", "python", "shell"]);
        assert_eq!((facts["shell"].as_str(), facts["node"].as_str()), ("/bin/sh", "[2Jv1"));
        assert_eq!(facts["python"].len(), LONGEST_VALUE);
    }
}
