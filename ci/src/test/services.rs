//! Services that tests share (`tests/services`). They end when this program closes their standard
//! input, also by being killed.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::packages;

/// The running services.
pub(super) struct Services {
    process: Child,
    variables: Vec<(String, String)>,
}

impl Services {
    /// Starts the services and waits until all are ready. Tests start their own for what is
    /// missing.
    pub(super) fn start(program: &Path, packages: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(program);
        command.envs(packages.map(|folder| (packages::VARIABLE, folder)));
        // Not in our process group: ^C must not end them before the tests.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let process = command
            .spawn()
            .context("cannot start the services of the tests")?;
        let mut services = Self {
            process,
            variables: Vec::new(),
        };
        let output = services
            .process
            .stdout
            .take()
            .context("the services have no standard output")?;
        for line in BufReader::new(output).lines() {
            match line
                .context("cannot read from the services of the tests")?
                .split_once('=')
            {
                Some((name, value)) => services.variables.push((name.to_owned(), value.to_owned())),
                None => break,
            }
        }
        Ok(services)
    }

    /// Returns the environment variables by which tests find them.
    pub(super) fn variables(&self) -> &[(String, String)] {
        &self.variables
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // Fails only if the process was reaped elsewhere.
        let _ = self.process.wait();
    }
}
