//! `glovebox sandbox shell`: connects this terminal to a terminal in a sandbox.
//!
//! Output is written unchanged, as by any remote shell, so the sandbox controls the terminal. If
//! this program exits, the shell is terminated.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use engine::sandbox::{ByteStream, StreamTarget};
use protocol::sandbox_api::{
    FrameDecoder, ProcessExit, TerminalInput, TerminalOutput, TerminalQuery,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::arguments::SandboxChoice;
use super::terminal_mode::{RawMode, size};
use crate::cli::program::{exit_of_program, script};
use crate::cli::{interrupts::Interrupts, print};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};

/// Size of a read.
const READ_BYTES: usize = 16 << 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every key is passed on, including ^C. Leave with `exit` or ^D. Closing this terminal terminates the shell.
Examples:
  glovebox sandbox shell box
  glovebox sandbox shell box -- 'top -d 1'")]
pub(super) struct ShellArguments {
    #[command(flatten)]
    sandbox: SandboxChoice,

    /// Script to run instead of an interactive shell. Several words are quoted for the shell.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ShellArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let text = "standard input and output must be a terminal: without one, use `glovebox sandbox exec`";
        return Err(UsageError(text.to_owned()).into());
    }
    let (_, sandbox) = arguments.sandbox.connect(overrides).await?;
    let mut interrupts = Interrupts::listen()?;
    let resized = signal(SignalKind::window_change())?;
    let stream = sandbox
        .streams()?
        .open(&StreamTarget::Terminal(query(&arguments.command)?))
        .await?;
    let raw = RawMode::enter().context("cannot set the terminal to raw mode")?;
    let result = interrupts.unless_interrupted(relay(stream, resized)).await;
    drop(raw);
    match result.transpose()? {
        Some(exit) => exit_of_program(&exit),
        None => Ok(Exit::Interrupted),
    }
}

fn query(command: &[String]) -> anyhow::Result<TerminalQuery> {
    let command = (!command.is_empty()).then(|| script(command)).transpose()?;
    let default = TerminalQuery::default();
    let (columns, rows) = size().unwrap_or((default.columns, default.rows));
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    Ok(TerminalQuery {
        columns,
        rows,
        term: term.unwrap_or(default.term),
        command,
    })
}

/// Relays keys, sizes and output until the program in the sandbox exits.
async fn relay(stream: Box<dyn ByteStream>, resized: Signal) -> anyhow::Result<ProcessExit> {
    let (from, to) = tokio::io::split(stream);
    tokio::select! {
        exit = show_output(from) => exit,
        // Returns only errors: the end of our input does not end the program in the sandbox.
        error = send_input(to, resized) => Err(error),
    }
}

async fn show_output(mut from: impl AsyncRead + Unpin) -> anyhow::Result<ProcessExit> {
    let mut decoder = FrameDecoder::<TerminalOutput>::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = from
            .read(&mut buffer)
            .await
            .context("the connection to the sandbox broke")?;
        if count == 0 {
            anyhow::bail!("the sandbox closed the terminal without reporting an exit code");
        }
        decoder.push(buffer.get(..count).unwrap_or_default());
        while let Some(output) = decoder
            .next_frame()
            .context("cannot decode the terminal's output")?
        {
            match output {
                TerminalOutput::Output(bytes) => print::bytes(&bytes)?,
                TerminalOutput::Exit(exit) => return Ok(*exit),
            }
        }
    }
}

async fn send_input(mut to: impl AsyncWrite + Unpin, mut resized: Signal) -> anyhow::Error {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; READ_BYTES];
    let mut is_open = true;
    loop {
        let input = tokio::select! {
            read = stdin.read(&mut buffer), if is_open => match read {
                Ok(0) => {
                    is_open = false;
                    continue;
                }
                Ok(count) => TerminalInput::Keys(buffer.get(..count).unwrap_or_default().to_vec()),
                Err(error) => return anyhow::Error::new(error).context("cannot read the keys"),
            },
            _ = resized.recv() => match size() {
                Some((columns, rows)) => TerminalInput::Resize { columns, rows },
                None => continue,
            },
        };
        let mut frame = Vec::new();
        if let Err(error) = input.encode(&mut frame) {
            return error.into();
        }
        let sent = async {
            to.write_all(&frame).await?;
            to.flush().await
        };
        if let Err(error) = sent.await {
            return anyhow::Error::new(error).context("the connection to the sandbox broke");
        }
    }
}
