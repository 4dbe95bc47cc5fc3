//! Where the browser is: a folder of its own in the sandbox, named after the life of the sandbox's server. It holds the
//! browser's profile, the pipes that it is driven through, and the ids of the actions that were begun.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{OutputChunk, Sandbox, SandboxError};
use engine::sandbox_tools::BROWSERS;
use protocol::sandbox_api::{OutputStream, ProcessExit, ProcessRequest, ProcessStdin};
use protocol::{ActionId, ProcessId};
use tokio::time::timeout;

const SCRIPT: &str = include_str!("place.sh");

/// How a browser is started. Without a sandbox of its own: it is in one, and containers let it make none. It keeps its shared
/// memory in files, because containers have little of it.
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

/// How long a step of the script may take that does not stay.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is kept of what such a step writes, and of the browser's last words, in bytes.
const MOST_WORDS: usize = 2 << 10;

/// The browser's folder in one sandbox.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) sandbox: Arc<dyn Sandbox>,
}

/// How an action begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    /// It was begun before, and what came of it is not known.
    pub(crate) is_again: bool,
    pub(crate) found: Found,
}

/// What there is of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Running,
    /// There was one, and it has ended.
    Ended,
    Nothing,
}

impl Place {
    /// Writes down that an action begins, and looks for the browser.
    pub(crate) async fn begin(&self, id: &ActionId) -> Result<Begun, SandboxError> {
        let said = self.step("begin", id.as_str()).await?;
        let has = |word| said.lines().any(|line| line == word);
        let found = match (has("runs"), has("ended")) {
            (true, _) => Found::Running,
            (_, true) => Found::Ended,
            _ => Found::Nothing,
        };
        Ok(Begun { is_again: has("again"), found })
    }

    /// Ends the browser, if there is one.
    pub(crate) async fn end_browser(&self) -> Result<(), SandboxError> {
        self.step("kill", "").await.map(drop)
    }

    /// The same, and removes its folder.
    pub(crate) async fn end(&self) -> Result<(), SandboxError> {
        self.step("end", "").await.map(drop)
    }

    /// What runs the browser itself, to its end.
    pub(crate) fn launch(&self) -> ProcessRequest {
        self.request("launch", &ARGUMENTS, ProcessStdin::Null)
    }

    /// What carries its pipes.
    pub(crate) fn link(&self) -> ProcessRequest {
        self.request("link", &[], ProcessStdin::Pipe)
    }

    async fn step(&self, verb: &str, argument: &str) -> Result<String, SandboxError> {
        let id = process_id()?;
        let (stdout, stderr) = (Words::default(), Words::default());
        let heard = |stream: OutputStream, chunk: OutputChunk<'_>| match stream {
            OutputStream::Stdout => stdout.hear(chunk),
            OutputStream::Stderr => stderr.hear(chunk),
        };
        let request = ProcessRequest {
            timeout_seconds: Some(PATIENCE.as_secs_f64()),
            ..self.request(verb, &[argument], ProcessStdin::Null)
        };
        match timeout(PATIENCE + PATIENCE, self.sandbox.exec(&id, &request, None, &heard)).await {
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

/// An id that no process had before.
pub(crate) fn process_id() -> Result<ProcessId, SandboxError> {
    let id = format!("browser-{}", uuid::Uuid::now_v7().simple());
    ProcessId::try_from(id).map_err(|error| SandboxError::Malformed { detail: error.to_string() })
}

/// The end of what a program writes.
#[derive(Clone, Default)]
pub(crate) struct Words(Arc<Mutex<Vec<u8>>>);

impl Words {
    pub(crate) fn hear(&self, chunk: OutputChunk<'_>) {
        let OutputChunk::Bytes { bytes, .. } = chunk else { return };
        // Held for a copy of bounded length only.
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(bytes.iter().skip(bytes.len().saturating_sub(MOST_WORDS)));
        let excess = words.len().saturating_sub(MOST_WORDS);
        words.drain(..excess);
    }

    /// The end of it as text, without white space around.
    pub(crate) fn end(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).trim().to_owned()
    }
}
