//! The contract of sandbox backends, as cases that run on each of them.
//!
//! A case receives a [`Backend`], creates the sandboxes it needs, and leaves nothing behind.
//! `sandbox_contract!` generates a test per case.

pub mod access;
pub mod commands;
pub mod docker;
pub mod faults;
pub mod files;
pub mod local;
pub mod own_sockets;
pub mod random_aborts;
pub mod recovery;
pub mod remote;
pub mod removal;
pub mod ssh;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use embedded_server::EmbeddedServer;
use engine::sandbox::{
    OutputChunk, ResourceLimits, Sandbox, SandboxError, SandboxProvider, SandboxSpec,
};
use protocol::action::{RunAction, WriteAction};
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, Observation, ObservationKind, SandboxId};
use sandbox_client::ServerBinary;

/// Returns the action server of this build, which is unpacked into `folder` on first use.
pub fn embedded_server(folder: impl AsRef<Path>) -> ServerBinary {
    let server = EmbeddedServer::get().unwrap();
    ServerBinary::embedded(server.content, folder.as_ref().join(server.file_name()))
}

/// A backend under test: its provider and the information that the cases need.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Returns a new provider, as a restarted host program would create it.
    fn provider(&self) -> Box<dyn SandboxProvider>;

    /// Returns a provider with another program in place of the action server.
    fn provider_with(&self, server: ServerBinary) -> Box<dyn SandboxProvider>;

    /// Returns the image of sandboxes. `None` if the backend uses none.
    fn image(&self) -> Option<String>;

    /// Returns the remains of a sandbox: containers, folders and processes.
    async fn remains(&self, sandbox: &SandboxId) -> Vec<String>;
}

/// Generates a test for every case of the contract on `$backend`. No case can be skipped.
#[macro_export]
macro_rules! sandbox_contract {
    ($backend:expr) => {
        $crate::sandbox_contract!($backend;
            commands::output_is_streamed_and_observed,
            commands::shell_keeps_its_folder_and_variables,
            commands::exit_code_is_observed,
            commands::megabyte_of_output_arrives_completely,
            commands::cancel_kills_the_process_tree_and_completes_the_action,
            files::file_is_written_read_and_edited,
            files::folder_is_made_and_its_files_renamed,
            access::process_streams_are_exact_and_separate,
            access::killed_process_ends_with_its_process_tree,
            access::commands_have_the_requested_environment,
            access::terminal_has_size_keys_and_an_exit_code,
            access::files_and_folders_are_transferred,
            access::connect_fails_when_the_port_has_no_listener,
            recovery::repeated_action_runs_once,
            recovery::restarted_host_attaches_to_a_running_action,
            recovery::killed_server_is_lost_within_five_seconds,
            removal::destroy_leaves_nothing_and_is_idempotent,
            removal::failed_start_leaves_nothing_and_quotes_the_output,
            removal::cancelled_start_leaves_nothing,
            removal::leftover_sandbox_is_replaced,
        );
    };
    ($backend:expr; $($module:ident::$case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            if let Some(backend) = $backend {
                $crate::sandbox_contract::$module::$case(&backend).await;
            }
        })*
    };
}

/// Generates a test for every case with injected faults on `$backend`.
#[macro_export]
macro_rules! sandbox_faults {
    ($backend:expr) => {
        $crate::sandbox_contract!($backend;
            faults::output_is_exact_when_the_connection_is_cut,
            faults::idle_connection_is_established_again_when_cut,
            faults::killed_sandbox_is_lost_once_within_five_seconds,
            faults::action_continues_after_ten_seconds_of_suspension,
            faults::server_survives_when_the_disk_is_full,
            random_aborts::starts_aborted_at_random_moments_leave_nothing,
        );
    };
}

/// Returns the spec of a sandbox with a unique conversation.
pub fn spec(backend: &dyn Backend) -> SandboxSpec {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    SandboxSpec {
        image: backend.image(),
        resources: ResourceLimits {
            memory_bytes: 512 << 20,
            pids: 512,
            ..ResourceLimits::default()
        },
        ..SandboxSpec::new(
            format!("test-{}-{number}", std::process::id())
                .parse()
                .unwrap(),
        )
    }
}

/// Creates a sandbox for one case.
pub async fn create_sandbox(backend: &dyn Backend) -> Box<dyn Sandbox> {
    backend
        .provider()
        .create(&spec(backend), &|_| {})
        .await
        .unwrap()
}

/// Removes a sandbox and checks that nothing remains.
pub async fn remove(backend: &dyn Backend, sandbox: Box<dyn Sandbox>) {
    remove_with(backend.provider().as_ref(), backend, sandbox).await;
}

/// Like [`remove`], with the provider that has created it.
pub async fn remove_with(
    provider: &dyn SandboxProvider,
    backend: &dyn Backend,
    sandbox: Box<dyn Sandbox>,
) {
    let id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    provider.destroy(&id).await.unwrap();
    assert_eq!(backend.remains(&id).await, Vec::<String>::new());
}

/// Returns a request that runs a shell command.
pub fn command(text: &str) -> ActionRequest {
    let action = RunAction {
        command: text.into(),
        blocking: true,
        ..RunAction::default()
    };
    ActionRequest::new(SandboxAction::Run(action), Some(60.0))
}

/// Returns a request that writes a file.
pub fn write(path: &str, content: &str) -> ActionRequest {
    let action = WriteAction {
        path: path.into(),
        content: content.into(),
        start: 0,
        end: -1,
        thought: String::new(),
        security_risk: protocol::SecurityRisk::default(),
    };
    ActionRequest::new(SandboxAction::Write(action), Some(60.0))
}

/// Returns the action id for a number.
pub fn id(number: u32) -> ActionId {
    format!("action.{number}").parse().unwrap()
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandResult {
    /// The observation's text.
    pub content: String,
    /// The exit code.
    pub exit_code: i64,
    /// The output that was streamed while it ran.
    pub streamed: Vec<u8>,
}

/// Runs a command to completion.
pub async fn run(sandbox: &dyn Sandbox, number: u32, text: &str) -> CommandResult {
    let output = OutputRecorder::default();
    let observation = sandbox
        .execute(&id(number), &command(text), &output.listener())
        .await
        .unwrap();
    command_result(observation, &output)
}

/// Returns the parts of a command's observation.
pub fn command_result(observation: Observation, output: &OutputRecorder) -> CommandResult {
    match observation.kind {
        ObservationKind::Run(run) => CommandResult {
            content: observation.content,
            exit_code: run.metadata.exit_code,
            streamed: output.bytes(),
        },
        other => panic!(
            "not a command's observation: {other:?}: {}",
            observation.content
        ),
    }
}

/// Collects output and checks that each byte arrives once and in order.
#[derive(Debug, Clone, Default)]
pub struct OutputRecorder(Arc<Mutex<Vec<u8>>>);

impl OutputRecorder {
    /// Returns the callback that receives output.
    pub fn listener(&self) -> impl Fn(OutputChunk<'_>) + Send + Sync + use<> {
        let output = self.clone();
        move |chunk| {
            let mut output = output.0.lock().unwrap();
            match chunk {
                OutputChunk::Bytes { offset, bytes } => {
                    assert_eq!(offset, output.len() as u64, "output out of order");
                    output.extend_from_slice(bytes);
                }
                OutputChunk::Gap { from, to } => panic!("a gap from {from} to {to}"),
            }
        }
    }

    /// Returns all output so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until the output contains a text.
    pub async fn wait_for(&self, text: &str) {
        while !String::from_utf8_lossy(&self.bytes()).contains(text) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// Returns the error of an operation that must fail.
pub fn error<T>(result: Result<T, SandboxError>) -> SandboxError {
    result.err().expect("this must fail")
}
