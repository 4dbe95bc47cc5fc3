//! A program in a sandbox with this process's input and output.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{ByteSource, OutputChunk, Sandbox, SandboxError};
use engine::secrets::{Redactor, StreamRedactor};
use protocol::ProcessId;
use protocol::sandbox_api::{ExitReason, OutputStream, ProcessExit, ProcessRequest};
use tokio::time::sleep;

use super::interrupts::Interrupts;
use super::print;
use super::written::Written;
use crate::exit::Exit;

/// As a shell tells of a program that it does not find, and of one that it may not run.
const NO_PROGRAM: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// How long the output of a program that was ended may still arrive. Of one that floods, tens of megabytes are on their way.
const LAST_OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// Runs a program until it ends. It is ended by an interrupt, and when its output cannot be written. After an interrupt,
/// what it wrote until then is still shown, for two seconds or until a second interrupt. It reads standard input unless it
/// is given nothing to read. Secrets are redacted in what it writes.
pub(super) async fn run(
    sandbox: &dyn Sandbox,
    id: &ProcessId,
    request: &ProcessRequest,
    reads_stdin: bool,
    redactor: &Redactor,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let stdin = reads_stdin.then(|| Box::new(tokio::io::stdin()) as ByteSource);
    let output = Output::new(redactor);
    let on_output = |stream, chunk: OutputChunk<'_>| output.hear(stream, chunk);
    let mut executing = sandbox.exec(id, request, stdin, &on_output);
    tokio::select! {
        exit = &mut executing => {
            output.finish();
            match exit {
                Ok(_) if let Some(exit) = output.written.failure() => exit,
                Err(error @ SandboxError::NoProgram { exists, .. }) => {
                    print::problem(&error.to_string());
                    Ok(Exit::OfCommand(if exists { NOT_EXECUTABLE } else { NO_PROGRAM }))
                }
                exit => exit_of(exit?, &output),
            }
        }
        exit = output.written.failed() => {
            end(sandbox, id).await;
            exit
        }
        () = interrupts.next() => {
            let ending = async {
                end(sandbox, id).await;
                sleep(LAST_OUTPUT_PATIENCE).await;
            };
            tokio::select! {
                _ = executing => {}
                () = ending => {}
                _ = output.written.failed() => {}
                () = interrupts.next() => {}
            }
            output.finish();
            Ok(Exit::Interrupted)
        }
    }
}

async fn end(sandbox: &dyn Sandbox, id: &ProcessId) {
    if let Err(error) = sandbox.kill_process(id).await {
        print::warning(&format!("ending the program: {error}"));
    }
}

/// A name for a program that no other has.
pub(super) fn new_id() -> anyhow::Result<ProcessId> {
    Ok(format!("exec-{}", uuid::Uuid::now_v7().simple()).try_into()?)
}

/// What the program writes, but for secrets, and how writing that on went.
struct Output {
    stdout: Mutex<StreamRedactor>,
    stderr: Mutex<StreamRedactor>,
    lost_bytes: AtomicU64,
    written: Written,
}

impl Output {
    fn new(redactor: &Redactor) -> Self {
        let hiding = || Mutex::new(StreamRedactor::new(redactor.clone()));
        Self {
            stdout: hiding(),
            stderr: hiding(),
            lost_bytes: AtomicU64::new(0),
            written: Written::default(),
        }
    }

    fn hear(&self, stream: OutputStream, chunk: OutputChunk<'_>) {
        match chunk {
            OutputChunk::Gap { from, to } => {
                self.lost_bytes.fetch_add(to.saturating_sub(from), Ordering::Relaxed);
            }
            OutputChunk::Bytes { bytes, .. } => self.show(stream, |shown| shown.push(bytes)),
        }
    }

    /// No more comes.
    fn finish(&self) {
        self.show(OutputStream::Stdout, StreamRedactor::finish);
        self.show(OutputStream::Stderr, StreamRedactor::finish);
    }

    fn show(&self, stream: OutputStream, take: impl FnOnce(&mut StreamRedactor) -> Vec<u8>) {
        let taken =
            |from: &Mutex<StreamRedactor>| take(&mut from.lock().unwrap_or_else(PoisonError::into_inner));
        self.written.hear(match stream {
            OutputStream::Stdout => print::program_stdout(&taken(&self.stdout)),
            OutputStream::Stderr => print::program_stderr(&taken(&self.stderr)),
        });
    }
}

fn exit_of(exit: ProcessExit, output: &Output) -> anyhow::Result<Exit> {
    match output.lost_bytes.load(Ordering::Relaxed) {
        0 => exit_of_program(&exit),
        // Output with a hole in it is worse than a failure.
        bytes => anyhow::bail!("{bytes} bytes of output came faster than they could be carried and are lost"),
    }
}

/// The exit as a shell tells it.
pub(super) fn exit_of_program(exit: &ProcessExit) -> anyhow::Result<Exit> {
    let code = match (exit.reason, exit.code, exit.signal) {
        (ExitReason::Failed, ..) => {
            anyhow::bail!(
                "the sandbox lost sight of the program: {}",
                exit.error.as_deref().unwrap_or("no reason")
            )
        }
        (_, Some(code), _) => code,
        (_, None, Some(signal)) => signal.saturating_add(128),
        (_, None, None) => 1,
    };
    Ok(Exit::OfCommand(u8::try_from(code).unwrap_or(1)))
}
