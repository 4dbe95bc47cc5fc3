//! The LiteLLM proxy in a separate process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::pypi::packages;

const CONFIG: &str = include_str!("config.yaml");
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// The key of the proxy.
pub(crate) const KEY: &str = "sk-canary-1234567890";

/// The start of uvicorn's line with its address.
const READY: &str = "Uvicorn running on ";

/// A running proxy. Stops when it is dropped.
pub(crate) struct Proxy {
    /// The URL, such as `http://127.0.0.1:1234`.
    pub(crate) address: String,
    process: Child,
    _config: tempfile::NamedTempFile,
}

impl Proxy {
    /// Starts the proxy. `None`, and the test is skipped, if it is not installed on a developer's
    /// machine.
    pub(crate) fn start() -> Option<Self> {
        // Python compiles the few modules that it loads.
        let packages = packages("litellm", REQUIREMENTS, &["--no-compile"])?;
        let config = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(config.path(), CONFIG).unwrap();
        let mut process = Command::new("python3")
            .args([
                "-c",
                "from litellm import run_server; run_server()",
                "--host",
                "127.0.0.1",
            ])
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
        let mut lines = BufReader::new(process.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut output = Vec::new();
        let address = lines.find_map(|line| {
            let address = line.split_once(READY).map(|(_, rest)| rest);
            let address = address
                .and_then(|rest| rest.split_whitespace().next())
                .map(str::to_owned);
            output.push(line);
            address
        });
        // A full pipe would block the proxy.
        std::thread::spawn(|| lines.for_each(drop));
        let proxy = Self {
            address: address.unwrap_or_default(),
            process,
            _config: config,
        };
        assert!(
            !proxy.address.is_empty(),
            "the proxy ended before it was ready:\n{}",
            output.join("\n")
        );
        Some(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
