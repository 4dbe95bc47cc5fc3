//! The browser's folder in the sandbox, named after the boot id of the action server. It contains the browser's profile, its
//! pipes, and the ids of started actions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{OutputChunk, Sandbox, SandboxError};
use engine::sandbox_tools::BROWSERS;
use protocol::sandbox_api::{OutputStream, ProcessExit, ProcessRequest, ProcessStdin};
use protocol::{ActionId, ProcessId};
use tokio::time::timeout;

const SCRIPT: &str = include_str!("place.sh");

/// Command line of the browser. Its own sandbox is disabled, since containers do not permit one. Its shared memory is in
/// files, since `/dev/shm` is small in containers.
const ARGUMENTS: [&str; 23] = [
    "--remote-debugging-pipe",
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-smooth-scrolling",
    "--window-size=1280,720",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-zygote",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-features=Translate,MediaRouter,OptimizationHints,HttpsUpgrades",
    "--password-store=basic",
    "about:blank",
];

/// Timeout of a short-lived step of the script.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum output that is kept of such a step, and of the browser.
const MAX_OUTPUT_BYTES: usize = 2 << 10;

/// The browser's folder in one sandbox.
#[derive(Clone)]
pub(crate) struct BrowserFolder {
    pub(crate) sandbox: Arc<dyn Sandbox>,
}

/// Result of registering an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActionStart {
    /// The action was started before, and its result is unknown.
    pub(crate) is_again: bool,
    pub(crate) found: BrowserState,
}

/// State of the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrowserState {
    Running,
    /// The browser has exited.
    Ended,
    Nothing,
}

impl BrowserFolder {
    /// Records the start of an action, and detects the browser.
    pub(crate) async fn begin(&self, id: &ActionId) -> Result<ActionStart, SandboxError> {
        let said = self.step("begin", id.as_str()).await?;
        let has = |word| said.lines().any(|line| line == word);
        let found = match (has("runs"), has("ended")) {
            (true, _) => BrowserState::Running,
            (_, true) => BrowserState::Ended,
            _ => BrowserState::Nothing,
        };
        Ok(ActionStart { is_again: has("again"), found })
    }

    /// Terminates the browser if it runs.
    pub(crate) async fn end_browser(&self) -> Result<(), SandboxError> {
        self.step("kill", "").await.map(drop)
    }

    /// Terminates the browser and removes its folder.
    pub(crate) async fn end(&self) -> Result<(), SandboxError> {
        self.step("end", "").await.map(drop)
    }

    /// Command that runs the browser until it exits.
    pub(crate) fn launch(&self) -> ProcessRequest {
        self.request("launch", &ARGUMENTS, ProcessStdin::Null)
    }

    /// Command that forwards its pipes.
    pub(crate) fn link(&self) -> ProcessRequest {
        self.request("link", &[], ProcessStdin::Pipe)
    }

    async fn step(&self, verb: &str, argument: &str) -> Result<String, SandboxError> {
        let id = process_id()?;
        let (stdout, stderr) = (OutputTail::default(), OutputTail::default());
        let on_output = |stream: OutputStream, chunk: OutputChunk<'_>| match stream {
            OutputStream::Stdout => stdout.hear(chunk),
            OutputStream::Stderr => stderr.hear(chunk),
        };
        let request = ProcessRequest {
            timeout_seconds: Some(STEP_TIMEOUT.as_secs_f64()),
            ..self.request(verb, &[argument], ProcessStdin::Null)
        };
        let processes = self.sandbox.processes()?;
        match timeout(STEP_TIMEOUT + STEP_TIMEOUT, processes.exec(&id, &request, None, &on_output)).await {
            Ok(Ok(ProcessExit { code: Some(0), .. })) => Ok(stdout.end()),
            Ok(Ok(_)) => {
                Err(SandboxError::Refused { detail: format!("the browser's folder: {}", stderr.end()) })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(SandboxError::Refused { detail: "the browser's folder: nothing answers".to_owned() })
            }
        }
    }

    fn request(&self, verb: &str, arguments: &[&str], stdin: ProcessStdin) -> ProcessRequest {
        let boot = self.sandbox.lease().boot_id.as_str();
        let words = ["sh", "-c", SCRIPT, "browser", verb, boot];
        ProcessRequest {
            env: BTreeMap::from([("PROGRAMS".to_owned(), BROWSERS.to_owned())]),
            stdin,
            ..ProcessRequest::new(words.iter().chain(arguments).copied())
        }
    }
}

/// Returns a new process id.
pub(crate) fn process_id() -> Result<ProcessId, SandboxError> {
    let id = format!("browser-{}", uuid::Uuid::now_v7().simple());
    ProcessId::try_from(id).map_err(|error| SandboxError::Malformed { detail: error.to_string() })
}

/// End of a program's output.
#[derive(Clone, Default)]
pub(crate) struct OutputTail(Arc<Mutex<Vec<u8>>>);

impl OutputTail {
    pub(crate) fn hear(&self, chunk: OutputChunk<'_>) {
        let OutputChunk::Bytes { bytes, .. } = chunk else { return };
        // The lock is held only to copy a bounded number of bytes.
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(bytes.iter().skip(bytes.len().saturating_sub(MAX_OUTPUT_BYTES)));
        let excess = words.len().saturating_sub(MAX_OUTPUT_BYTES);
        words.drain(..excess);
    }

    /// Returns the output as trimmed text.
    pub(crate) fn end(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).trim().to_owned()
    }
}
