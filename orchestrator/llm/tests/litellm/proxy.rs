//! The LiteLLM proxy, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::pypi::packages;

const CONFIG: &str = include_str!("config.yaml");
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// What it asks of its users.
pub(crate) const KEY: &str = "sk-canary-1234567890";

/// What uvicorn says when it listens, and where.
const READY: &str = "Uvicorn running on ";

/// Ends when it is dropped.
pub(crate) struct Proxy {
    /// As in `http://127.0.0.1:1234`.
    pub(crate) address: String,
    process: Child,
    _config: tempfile::NamedTempFile,
}

impl Proxy {
    /// Nothing, with a line that says so, on a user's machine that does not have it.
    pub(crate) fn start() -> Option<Self> {
        // What of all that is ever loaded Python compiles by itself.
        let packages = packages("litellm", REQUIREMENTS, &["--no-compile"])?;
        let config = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(config.path(), CONFIG).unwrap();
        let mut process = Command::new("python3")
            .args(["-c", "from litellm import run_server; run_server()", "--host", "127.0.0.1"])
            .args(["--port", "0", "--config"])
            .arg(config.path())
            .env("PYTHONPATH", packages)
            .env("LITELLM_MASTER_KEY", KEY)
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_TELEMETRY", "False")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = lines.find_map(|line| {
            let address = line.split_once(READY).map(|(_, rest)| rest);
            let address = address.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
            said.push(line);
            address
        });
        // It is not to wait until somebody reads what it says.
        std::thread::spawn(|| lines.for_each(drop));
        let proxy = Self { address: address.unwrap_or_default(), process, _config: config };
        assert!(!proxy.address.is_empty(), "the proxy ended before it was ready:\n{}", said.join("\n"));
        Some(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
