//! `glovebox sandbox exec`: one program in a sandbox that is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{ByteSource, OutputChunk, Sandbox, SandboxError};
use engine::secrets::{Redactor, StreamRedactor};
use protocol::ProcessId;
use protocol::sandbox_api::{ExitReason, OutputStream, ProcessExit, ProcessRequest};

use super::create::variables;
use super::host::At;
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::follow::Interrupts;
use crate::cli::written::Written;
use crate::cli::{completions, print};
use crate::compose;
use crate::config::Overrides;
use crate::exit::Exit;

/// As a shell tells of a program that it does not find, and of one that it may not run.
const NO_PROGRAM: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The words are the program's as they are; no shell reads them. What a signal ended exits with 128 and its number; 127 is
a program that is not there, 126 one that cannot be run.
Values of [secrets] are hidden in the output; `glovebox sandbox cp` copies what holds them.
Examples:
  glovebox sandbox exec box -- python3 -m http.server 8080
  glovebox sandbox exec box -- sh -c 'cd /tmp && ls | wc -l'
  tar cz . | glovebox sandbox exec box -- tar xz -C /tmp")]
pub(super) struct ExecArguments {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(completions::sandboxes))]
    name: Name,

    /// A variable for the program; without a value, this shell's.
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Where it begins; without it where shells of the sandbox do.
    #[arg(short = 'w', long, value_name = "DIR")]
    workdir: Option<String>,

    /// As whom it runs: USER or USER:GROUP, each a name or a number. Takes a sandbox that runs as root.
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,

    /// Give it nothing to read, instead of standard input.
    #[arg(short = 'n', long)]
    no_stdin: bool,

    #[command(flatten)]
    at: At,

    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ExecArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let mut interrupts = Interrupts::listen()?;
    let stdin: Option<ByteSource> =
        if arguments.no_stdin { None } else { Some(Box::new(tokio::io::stdin())) };
    let request = ProcessRequest {
        env: variables(&arguments.env)?,
        cwd: arguments.workdir,
        user: arguments.user,
        ..ProcessRequest::new(arguments.command)
    };
    let (host, sandbox) = hosts.connect(&arguments.name).await?;
    let id: ProcessId = format!("exec-{}", uuid::Uuid::now_v7().simple()).try_into()?;
    let output = Output::new(&compose::redactor(&host.config)?);
    let on_output = |stream, chunk: OutputChunk<'_>| output.hear(stream, chunk);
    let ended = tokio::select! {
        exit = sandbox.exec(&id, &request, stdin, &on_output) => {
            output.finish();
            return match exit {
                Ok(_) if let Some(exit) = output.written.failure() => exit,
                Err(error @ SandboxError::NoProgram { exists, .. }) => {
                    print::problem(&error.to_string());
                    Ok(Exit::OfCommand(if exists { NOT_EXECUTABLE } else { NO_PROGRAM }))
                }
                exit => exit_of(exit?, &output),
            };
        }
        exit = output.written.failed() => exit,
        () = interrupts.next() => Ok(Exit::Interrupted),
    };
    end(sandbox.as_ref(), &id).await;
    ended
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

async fn end(sandbox: &dyn Sandbox, id: &ProcessId) {
    if let Err(error) = sandbox.end_program(id).await {
        print::warning(&format!("ending the program: {error}"));
    }
}

fn exit_of(exit: ProcessExit, output: &Output) -> anyhow::Result<Exit> {
    match output.lost_bytes.load(Ordering::Relaxed) {
        0 => of_program(&exit),
        // Output with a hole in it is worse than a failure.
        bytes => anyhow::bail!("{bytes} bytes of output came faster than they could be carried and are lost"),
    }
}

/// The exit as a shell tells it.
pub(super) fn of_program(exit: &ProcessExit) -> anyhow::Result<Exit> {
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
