//! A private `dockerd` that a test can stop, kill and restart, unlike the shared engine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::skip::{Requirement, skip, skip_without};

/// Starting takes two seconds on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The engine grants its containers ten seconds to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// A private engine, removed completely on drop.
pub struct OwnEngine {
    folder: TempDir,
    process: Option<Child>,
    live_restore: bool,
}

impl OwnEngine {
    /// Starts an engine. `None`, and the test is skipped, if this user cannot run one. With
    /// `live_restore`, containers continue while the engine is stopped.
    pub fn start(live_restore: bool) -> Option<Self> {
        if skip_without("dockerd") {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skip(Requirement::Root, "only root can run dockerd");
            return None;
        }
        // In /tmp and not in TMPDIR, because the paths of sockets must be short.
        let folder = tempfile::Builder::new()
            .prefix("gbe")
            .tempdir_in("/tmp")
            .unwrap();
        std::fs::write(folder.path().join("daemon.json"), "{}").unwrap();
        let mut engine = Self {
            folder,
            process: None,
            live_restore,
        };
        engine.restart();
        Some(engine)
    }

    /// Returns the address, in the format of `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    /// Sends a signal to the engine and waits for its exit.
    pub fn end(&mut self, signal: Signal) {
        let mut process = self.process.take().unwrap();
        kill_process(Pid::from_child(&process), signal).unwrap();
        let deadline = Instant::now() + STOP_TIMEOUT;
        while process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "dockerd does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        if signal == Signal::KILL {
            // The kernel killed its containerd too. If no process reaps that, the next engine
            // considers it alive.
            let _ = std::fs::remove_file(self.path("exec/containerd/containerd.pid"));
        }
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.path("log")).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Restarts the engine with the same folder and waits until it answers.
    pub fn restart(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let mut dockerd = Command::new("dockerd");
        dockerd
            .arg("--config-file")
            .arg(self.path("daemon.json"))
            .args(["--host", &self.host()]);
        for (option, name) in [
            ("--data-root", "data"),
            ("--exec-root", "exec"),
            ("--pidfile", "pid"),
        ] {
            dockerd.arg(option).arg(self.path(name));
        }
        for (option, what) in [
            ("--containerd-namespace", "c"),
            ("--containerd-plugins-namespace", "p"),
        ] {
            dockerd
                .arg(option)
                .arg(format!("glovebox-test-{what}-{}", std::process::id()));
        }
        dockerd.args(["--bridge=none", "--iptables=false"]);
        dockerd.args(self.live_restore.then_some("--live-restore"));
        dockerd
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.process = Some(dockerd.spawn().unwrap());
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.docker(&["version"]).status.success() {
            assert!(Instant::now() < deadline, "{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Copies an image from the shared engine.
    pub fn copy_image(&self, image: &str) {
        let mut save = Command::new("docker")
            .args(["save", image])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut load = self.command(&["load", "--quiet"]);
        assert!(
            load.stdin(save.stdout.take().unwrap())
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        assert!(save.wait().unwrap().success());
    }

    /// Returns the ids of its containers, running or not.
    pub fn containers(&self) -> String {
        String::from_utf8(self.docker(&["ps", "--all", "--quiet"]).stdout).unwrap()
    }

    fn docker(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command
            .args(arguments)
            .env("DOCKER_HOST", self.host())
            .env_remove("DOCKER_CONTEXT");
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the processes of this engine. Daemons have its folder in their arguments.
    fn daemons(&self) -> Vec<Pid> {
        let folder = format!("{}/", self.folder.path().display());
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let ours = entries.filter(|entry| {
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(&folder)
        });
        ours.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    fn unmount_all(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(4));
        for mount in mounts.filter(|mount| Path::new(mount).starts_with(self.folder.path())) {
            let _ = Command::new("umount").args(["--lazy", mount]).status();
        }
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        if self.process.is_some() {
            let left = self.containers();
            if !left.is_empty() {
                let mut remove = vec!["rm", "--force", "--volumes"];
                remove.extend(left.lines());
                println!("removing: {:?}", self.docker(&remove));
            }
        }
        if let Some(process) = &mut self.process {
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
            let deadline = Instant::now() + STOP_TIMEOUT;
            while process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        for daemon in self.daemons() {
            let _ = kill_process(daemon, Signal::KILL);
        }
        if let Some(process) = &mut self.process {
            let _ = process.wait();
        }
        self.unmount_all();
    }
}
