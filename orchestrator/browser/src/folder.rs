//! The browser's folder in the sandbox, named after the boot id of the action server. It contains
//! the browser's profile, its pipes, and the ids of started actions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{OutputChunk, Sandbox, SandboxError};
use engine::sandbox_tools::BROWSERS;
use protocol::sandbox_api::{OutputStream, ProcessExit, ProcessRequest, ProcessStdin};
use protocol::{ActionId, ProcessId};
use tokio::time::timeout;

const SCRIPT: &str = include_str!("folder.sh");

/// Command line of the browser. Its own sandbox is disabled, since containers do not permit one.
/// Its shared memory is in files, since `/dev/shm` is small in containers.
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
    pub(crate) is_repeated: bool,
    pub(crate) browser: BrowserState,
}

/// State of the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrowserState {
    Running,
    Exited,
    NotStarted,
}

impl BrowserFolder {
    /// Records the start of an action, and inspects the browser.
    pub(crate) async fn start_action(&self, id: &ActionId) -> Result<ActionStart, SandboxError> {
        let output = self.step("start_action", id.as_str()).await?;
        let has = |word| output.lines().any(|line| line == word);
        let browser = match (has("running"), has("exited")) {
            (true, _) => BrowserState::Running,
            (_, true) => BrowserState::Exited,
            _ => BrowserState::NotStarted,
        };
        Ok(ActionStart {
            is_repeated: has("repeated"),
            browser,
        })
    }

    /// Terminates the browser if it runs.
    pub(crate) async fn kill_browser(&self) -> Result<(), SandboxError> {
        self.step("kill", "").await.map(drop)
    }

    /// Terminates the browser and removes its folder.
    pub(crate) async fn remove(&self) -> Result<(), SandboxError> {
        self.step("remove", "").await.map(drop)
    }

    /// Returns the command that runs the browser until it exits.
    pub(crate) fn launch_request(&self) -> ProcessRequest {
        self.request("launch", &ARGUMENTS, ProcessStdin::Null)
    }

    /// Returns the command that forwards the pipes of the browser.
    pub(crate) fn link_request(&self) -> ProcessRequest {
        self.request("link", &[], ProcessStdin::Pipe)
    }

    async fn step(&self, step: &str, argument: &str) -> Result<String, SandboxError> {
        let id = process_id()?;
        let (stdout, stderr) = (OutputTail::default(), OutputTail::default());
        let on_output = |stream: OutputStream, chunk: OutputChunk<'_>| match stream {
            OutputStream::Stdout => stdout.push(chunk),
            OutputStream::Stderr => stderr.push(chunk),
        };
        let request = ProcessRequest {
            timeout_seconds: Some(STEP_TIMEOUT.as_secs_f64()),
            ..self.request(step, &[argument], ProcessStdin::Null)
        };
        let processes = self.sandbox.processes()?;
        match timeout(
            STEP_TIMEOUT + STEP_TIMEOUT,
            processes.exec(&id, &request, None, &on_output),
        )
        .await
        {
            Ok(Ok(ProcessExit { code: Some(0), .. })) => Ok(stdout.to_text()),
            Ok(Ok(_)) => Err(SandboxError::Refused {
                detail: format!("the browser's folder: {}", stderr.to_text()),
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SandboxError::Refused {
                detail: "the browser's folder: no response".to_owned(),
            }),
        }
    }

    fn request(&self, step: &str, arguments: &[&str], stdin: ProcessStdin) -> ProcessRequest {
        let boot_id = self.sandbox.lease().boot_id.as_str();
        let command = ["sh", "-c", SCRIPT, "browser", step, boot_id];
        ProcessRequest {
            env: BTreeMap::from([("PROGRAMS".to_owned(), BROWSERS.to_owned())]),
            stdin,
            ..ProcessRequest::new(command.iter().chain(arguments).copied())
        }
    }
}

/// Returns a new process id.
pub(crate) fn process_id() -> Result<ProcessId, SandboxError> {
    let id = format!("browser-{}", uuid::Uuid::now_v7().simple());
    ProcessId::try_from(id).map_err(|error| SandboxError::Malformed {
        detail: error.to_string(),
    })
}

/// End of a program's output.
#[derive(Clone, Default)]
pub(crate) struct OutputTail(Arc<Mutex<Vec<u8>>>);

impl OutputTail {
    pub(crate) fn push(&self, chunk: OutputChunk<'_>) {
        let OutputChunk::Bytes { bytes, .. } = chunk else {
            return;
        };
        // The lock is held only to copy a bounded number of bytes.
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(
            bytes
                .iter()
                .skip(bytes.len().saturating_sub(MAX_OUTPUT_BYTES)),
        );
        let excess = tail.len().saturating_sub(MAX_OUTPUT_BYTES);
        tail.drain(..excess);
    }

    /// Returns the output, trimmed.
    pub(crate) fn to_text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}
