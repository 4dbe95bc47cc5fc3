//! A server of the S3 protocol: moto, of PyPI, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Variable with the URL of a server that `cargo ci test` has started for all tests.
pub const SHARED_SERVER_VARIABLE: &str = "GLOVEBOX_TEST_MOTO";

/// The start of the server's line with its address.
const READY: &str = "Running on ";

/// A running server, killed on drop.
pub struct MotoServer {
    process: Child,
    url: String,
}

impl MotoServer {
    /// Starts a server with the packages of this folder.
    ///
    /// # Errors
    /// What it printed before it ended.
    pub fn start(packages: &Path) -> Result<Self, String> {
        let mut process = Command::new("python3")
            .args(["-m", "moto.server", "--host", "127.0.0.1", "--port", "0"])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(process.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut output = Vec::new();
        let url = lines.find_map(|line| {
            let url = line
                .split_once(READY)
                .map(|(_, rest)| rest.trim().to_owned());
            output.push(line);
            url
        });
        // A full pipe would block the server.
        std::thread::spawn(|| lines.for_each(drop));
        match url {
            Some(url) => Ok(Self { process, url }),
            None => Err(format!(
                "moto ended before it was ready:\n{}",
                output.join("\n")
            )),
        }
    }

    /// Returns its URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for MotoServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
