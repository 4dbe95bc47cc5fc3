//! `glovebox sandbox …` with the real program, in local sandboxes and in containers.

mod copies;
mod forks;
mod lists;
mod ports;
mod programs;
mod shells;
mod startup_files;

use std::process::{Child, Stdio};

use serde_json::Value;
use tests::glovebox::{CompletedRun, Home};
use tests::sandbox_contract::Backend as _;
use tests::sandbox_contract::docker::DockerBackend;

/// A home with one sandbox, named `box`, of one runtime.
struct SandboxFixture {
    home: Home,
    runtime: &'static str,
}

impl SandboxFixture {
    fn local() -> Self {
        Self::create(Home::new(), "local", &[])
    }

    /// Returns `None` without an engine.
    fn docker() -> Option<Self> {
        let image = DockerBackend::busybox()?.image()?;
        Some(Self::create(Home::new(), "docker", &["--image", &image]))
    }

    fn all() -> Vec<Self> {
        [Some(Self::local()), Self::docker()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn create(home: Home, runtime: &'static str, more: &[&str]) -> Self {
        let fixture = Self { home, runtime };
        let name = fixture.name();
        let create = [&["create", &name, "--env", "COLOR=green"], more].concat();
        assert_eq!(fixture.run(&create).expect(0).stdout, format!("{name}\n"));
        fixture
    }

    /// Returns the sandbox's name. It is unique, because all tests share the engine.
    fn name(&self) -> String {
        let folder = self.home.path().file_name().unwrap().to_str().unwrap();
        format!("box{}", folder.trim_start_matches('.'))
    }

    fn path(&self, path: &str) -> String {
        format!("{}:{path}", self.name())
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let (subcommand, more) = arguments.split_first().unwrap();
        self.home
            .glovebox(&[&["sandbox", subcommand, "--runtime", self.runtime], more].concat())
    }

    fn run(&self, arguments: &[&str]) -> CompletedRun {
        wait_for_exit(
            self.command(arguments)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn exec(&self, words: &[&str]) -> CompletedRun {
        self.run(&[&["exec", &self.name(), "--"], words].concat())
    }

    fn list(&self) -> Vec<Value> {
        serde_json::from_str(&self.run(&["ls", "--json"]).expect(0).stdout).unwrap()
    }

    /// Removes the sandbox and checks that nothing is left.
    fn end(self) {
        self.run(&["rm", "--all"]).expect(0);
        assert_eq!(self.list(), Vec::<Value>::new());
        self.home.assert_nothing_runs();
    }
}

/// Removes what a failed test left.
impl Drop for SandboxFixture {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "--all"]);
    }
}

fn wait_for_exit(child: Child) -> CompletedRun {
    let output = child.wait_with_output().unwrap();
    CompletedRun {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[track_caller]
fn refused(ended: &CompletedRun, code: i32, part: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    let lines: Vec<_> = ended
        .stderr
        .lines()
        .filter(|line| !line.contains("warning"))
        .collect();
    assert!(
        ended.stderr.contains(part) && lines.len() == 1,
        "{part} in one line of: {}",
        ended.stderr
    );
}
