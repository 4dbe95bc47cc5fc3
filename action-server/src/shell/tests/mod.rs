//! The contract of a shell. Each case runs on bash, dash and busybox ash, if the machine has them.
//!
//! A case never sleeps to let something happen. It waits for a condition for at most
//! [`TEST_TIMEOUT`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::observation::{CommandMetadata, ObservationKind};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::skip::{Requirement, skip, skip_without};

mod cancelling;
mod command_variables;
mod completion;
mod continuation;
mod damage;
mod forging;
mod load;
mod lost_reports;
mod output;
mod startup_files;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Declares cases that run on every shell.
macro_rules! on_every_shell {
    ($($(#[$meta:meta])* async fn $name:ident($fixture:ident) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn case($fixture: Fixture) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_bash() {
                $crate::shell::tests::run_on("bash", case).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_dash() {
                $crate::shell::tests::run_on("dash", case).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_busybox_ash() {
                $crate::shell::tests::run_on("busybox", case).await;
            }
        }
    )*};
}
use on_every_shell;

/// A shell in its own folder.
struct Fixture {
    shell: Shell,
    folder: Arc<TempDir>,
}

/// The observation of a command.
#[derive(Debug)]
struct CommandObservation {
    content: String,
    metadata: CommandMetadata,
}

async fn run_on<F: Future<Output = ()>>(name: &'static str, case: impl FnOnce(Fixture) -> F) {
    let Some(path) = find_shell(name) else { return };
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let folder = Arc::new(TempDir::new().unwrap());
    let shell = Shell::start_program(config(folder.path()), ShellProgram::at(path));
    case(Fixture {
        shell: shell.clone(),
        folder,
    })
    .await;
    timeout(Duration::from_secs(2), shell.shut_down())
        .await
        .expect("the shell shuts down within 2 s");
}

/// Returns the path of a shell. `None`, and the test is skipped, if the machine does not have it.
fn find_shell(name: &'static str) -> Option<PathBuf> {
    let path = program::find_executable(name, std::env::var_os("PATH").as_deref());
    if path.is_none() {
        skip(Requirement::Program(name), "not found in PATH");
    }
    path
}

/// The folder is the home too: the start-up files of the tester must not change the result of a
/// test.
fn config(folder: &Path) -> ShellConfig {
    let own = std::env::vars_os().filter(|(name, _)| name != "HOME");
    ShellConfig {
        working_dir: folder.canonicalize().unwrap(),
        environment: crate::environment::Environment::new(
            own.chain([("HOME".into(), folder.into())]).collect(),
        ),
        no_change_timeout: TEST_TIMEOUT,
    }
}

fn action(command: &str) -> RunAction {
    RunAction {
        command: command.to_owned(),
        is_input: false,
        thought: String::new(),
        blocking: false,
        is_static: false,
        cwd: None,
        hidden: false,
        confirmation_state: Default::default(),
        security_risk: Default::default(),
    }
}

fn environment(variables: &[(&str, &str)]) -> CommandEnvironment {
    CommandEnvironment(
        variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
    )
}

fn command_observation(observation: Observation) -> CommandObservation {
    match observation.kind {
        ObservationKind::Run(run) => CommandObservation {
            content: observation.content,
            metadata: run.metadata,
        },
        other => panic!("not a run observation: {other:?}, {}", observation.content),
    }
}

fn completed(status: i64) -> String {
    format!("\n[The command completed with exit code {status}.]")
}

/// Waits until `condition` holds.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process is running and not a zombie.
fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        !state.starts_with('Z') && !state.starts_with('X')
    })
}

impl Fixture {
    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    async fn act(
        &self,
        action: RunAction,
        limit: Option<Duration>,
        cancel: CancellationToken,
    ) -> CommandObservation {
        self.act_with(&[], action, limit, cancel).await
    }

    /// Runs an action with these variables for its command.
    async fn act_with(
        &self,
        variables: &[(&str, &str)],
        action: RunAction,
        limit: Option<Duration>,
        cancel: CancellationToken,
    ) -> CommandObservation {
        let run = self.shell.run(
            action.clone(),
            environment(variables),
            limit,
            Box::new(|_| {}),
            cancel,
        );
        command_observation(
            timeout(TEST_TIMEOUT * 2, run)
                .await
                .unwrap_or_else(|_| panic!("no observation of {action:?}")),
        )
    }

    /// Runs a command to completion.
    async fn run(&self, command: &str) -> CommandObservation {
        self.act(action(command), None, CancellationToken::new())
            .await
    }

    /// Runs a command that must exit with 0 and returns its output.
    async fn succeed(&self, command: &str) -> String {
        let result = self.run(command).await;
        assert_eq!(
            result.metadata.suffix,
            completed(0),
            "{command}: {}",
            result.content
        );
        result.content
    }

    /// Runs a command with a timeout.
    async fn run_for(&self, command: &str, limit: Duration) -> CommandObservation {
        self.act(action(command), Some(limit), CancellationToken::new())
            .await
    }

    /// Types text to the running command.
    async fn type_in(&self, text: &str) -> CommandObservation {
        self.act(
            RunAction {
                is_input: true,
                ..action(text)
            },
            None,
            CancellationToken::new(),
        )
        .await
    }

    /// Starts `command` and waits until its output contains `sign`. The handle returns the
    /// observation.
    async fn start_running(
        &self,
        command: &str,
        sign: &str,
        cancel: CancellationToken,
    ) -> tokio::task::JoinHandle<CommandObservation> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let shell = self.shell.clone();
        let action = RunAction {
            blocking: true,
            ..action(command)
        };
        let running = tokio::spawn(async move {
            let output: OutputSink =
                Box::new(move |bytes| sink.lock().unwrap().extend_from_slice(bytes));
            command_observation(
                shell
                    .run(action, environment(&[]), None, output, cancel)
                    .await,
            )
        });
        eventually(sign, || {
            String::from_utf8_lossy(&seen.lock().unwrap()).contains(sign)
        })
        .await;
        running
    }

    /// Waits for a file that a command writes and returns the process id in it.
    async fn pid_in(&self, file: &str) -> i32 {
        let path = self.path().join(file);
        let read = || {
            std::fs::read_to_string(&path)
                .ok()?
                .strip_suffix('\n')?
                .parse()
                .ok()
        };
        eventually(file, || read().is_some()).await;
        read().unwrap()
    }
}
