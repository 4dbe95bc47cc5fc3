//! Runs a program in a sandbox with the standard streams of this process.

mod output;

use std::time::Duration;

use engine::sandbox::{ByteSource, OutputChunk, SandboxError, SandboxProcesses};
use engine::secrets::Redactor;
use protocol::ProcessId;
use protocol::sandbox_api::{ExitReason, ProcessExit, ProcessRequest};
use tokio::time::{sleep, timeout};

use super::interrupts::Interrupts;
use super::print;
use crate::exit::{Exit, UsageError};
use output::ProgramOutput;

/// Exit codes that a shell reports for a program that it does not find, and for one that it may not
/// execute.
const PROGRAM_NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Timeout of killing a program. Its sandbox may be paused, or unreachable.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for the remaining output of a killed program. If it flooded its output, tens of
/// megabytes are buffered.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a program until it exits. It is killed on an interrupt, and when its output cannot be
/// written. After an interrupt, its remaining output is shown for up to two seconds or until a
/// second interrupt. It reads standard input if `reads_stdin`. Secrets are redacted in its output.
pub(super) async fn run(
    processes: &dyn SandboxProcesses,
    id: &ProcessId,
    request: &ProcessRequest,
    reads_stdin: bool,
    redactor: &Redactor,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let stdin = reads_stdin.then(|| Box::new(tokio::io::stdin()) as ByteSource);
    let output = ProgramOutput::new(redactor, interrupts.observer());
    let on_output = |stream, chunk: OutputChunk<'_>| output.on_chunk(stream, chunk);
    let mut executing = processes.exec(id, request, stdin, &on_output);
    let mut completed = std::pin::pin!(async {
        let exit = executing.as_mut().await;
        output.finish().await;
        exit
    });
    tokio::select! {
        exit = &mut completed => match exit {
            Ok(_) if let Some(exit) = output.write_status.failure() => exit,
            Err(error @ SandboxError::NoProgram { exists, .. }) => {
                print::error(&error.to_string());
                Ok(Exit::OfCommand(if exists { NOT_EXECUTABLE } else { PROGRAM_NOT_FOUND }))
            }
            exit => exit_of(exit?, &output),
        },
        exit = output.write_status.failed() => {
            kill(processes, id).await;
            exit
        }
        () = interrupts.next() => {
            let remaining_output = async {
                kill(processes, id).await;
                sleep(LAST_OUTPUT_TIMEOUT).await;
            };
            tokio::select! {
                _ = &mut completed => {}
                () = remaining_output => {}
                _ = output.write_status.failed() => {}
                () = interrupts.next() => {}
            }
            Ok(Exit::Interrupted)
        }
    }
}

async fn kill(processes: &dyn SandboxProcesses, id: &ProcessId) {
    match timeout(KILL_TIMEOUT, processes.kill_process(id)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => print::warning(&format!("cannot terminate the program: {error}")),
        Err(_) => print::warning("cannot terminate the program: the sandbox does not respond"),
    }
}

/// Returns a new unique id.
pub(super) fn new_id() -> anyhow::Result<ProcessId> {
    Ok(format!("exec-{}", uuid::Uuid::now_v7().simple()).try_into()?)
}

/// Converts words to a script. A single word is a script.
pub(super) fn script(words: &[String]) -> Result<String, UsageError> {
    match words {
        [script] => Ok(script.clone()),
        words => quoted(words.iter().map(String::as_str)),
    }
}

/// Quotes words for a shell.
pub(super) fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String, UsageError> {
    shlex::try_join(words).map_err(|error| UsageError(format!("cannot quote the command: {error}")))
}

fn exit_of(exit: ProcessExit, output: &ProgramOutput) -> anyhow::Result<Exit> {
    match output.lost_bytes() {
        0 => exit_of_program(&exit),
        // Silently incomplete output would be worse than a failure.
        bytes => anyhow::bail!(
            "{bytes} bytes of output are lost, because the connection to the sandbox broke for too long"
        ),
    }
}

/// Returns the start of a text of a sandbox.
fn start_of(text: &str) -> String {
    const MAX_CHARS: usize = 1024;
    text.chars().take(MAX_CHARS).collect()
}

/// Converts the exit as a shell does: 128 plus the signal if a signal terminated the program.
pub(super) fn exit_of_program(exit: &ProcessExit) -> anyhow::Result<Exit> {
    let code = match (exit.reason, exit.code, exit.signal) {
        (ExitReason::Failed, ..) => {
            anyhow::bail!(
                "the sandbox cannot observe the program: {}",
                exit.error
                    .as_deref()
                    .map_or("unknown cause".to_owned(), start_of)
            )
        }
        (_, Some(code), _) => code,
        (_, None, Some(signal)) => signal.checked_abs().unwrap_or(0).saturating_add(128),
        (_, None, None) => 1,
    };
    Ok(Exit::OfCommand(u8::try_from(code).unwrap_or(1)))
}
