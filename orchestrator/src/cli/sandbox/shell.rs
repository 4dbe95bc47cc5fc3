//! `glovebox sandbox shell`: a terminal inside, shown on the one here.
//!
//! What is shown is what comes of the sandbox, byte for byte, as with any remote shell: it can write what it likes on the
//! terminal. Ends with the shell, or with this program, which takes the shell with it.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{ByteStream, StreamTarget};
use protocol::sandbox_api::{FrameDecoder, ProcessExit, TerminalInput, TerminalOutput, TerminalQuery};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::host::At;
use super::hosts::Hosts;
use super::name::Name;
use super::terminal_mode::{RawMode, size};
use crate::cli::program::exit_of_program;
use crate::cli::{candidates, interrupts::Interrupts, print};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};

/// What is carried at once.
const PIECE: usize = 16 << 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every key goes inside, ^C too; `exit` or ^D leave. Closing this terminal ends what runs in the shell.
Examples:
  glovebox sandbox shell box
  glovebox sandbox shell box -- 'top -d 1'")]
pub(super) struct ShellArguments {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    name: Name,

    #[command(flatten)]
    at: At,

    /// Shell text to run on the terminal instead of a shell; several words are quoted for the shell.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ShellArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let text = "standard input and output must be a terminal: without one, use `glovebox sandbox exec`";
        return Err(UsageError(text.to_owned()).into());
    }
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let (_, sandbox) = hosts.connect(&arguments.name).await?;
    let mut interrupts = Interrupts::listen()?;
    let resized = signal(SignalKind::window_change())?;
    let stream = sandbox.streams()?.open(&StreamTarget::Terminal(query(&arguments.command)?)).await?;
    let raw = RawMode::enter().context("setting the terminal to pass every key on")?;
    let ended = tokio::select! {
        exit = carry(stream, resized) => exit.map(Some),
        () = interrupts.next() => Ok(None),
    };
    drop(raw);
    match ended? {
        Some(exit) => exit_of_program(&exit),
        None => Ok(Exit::Interrupted),
    }
}

fn query(command: &[String]) -> anyhow::Result<TerminalQuery> {
    let command = match command {
        [] => None,
        [text] => Some(text.clone()),
        words => Some(
            shlex::try_join(words.iter().map(String::as_str))
                .map_err(|error| UsageError(format!("the command: {error}")))?,
        ),
    };
    let usual = TerminalQuery::default();
    let (columns, rows) = size().unwrap_or((usual.columns, usual.rows));
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    Ok(TerminalQuery { columns, rows, term: term.unwrap_or(usual.term), command })
}

/// Carries keys and sizes in and the screen out, until the program inside has ended.
async fn carry(stream: Box<dyn ByteStream>, resized: Signal) -> anyhow::Result<ProcessExit> {
    let (from, to) = tokio::io::split(stream);
    tokio::select! {
        exit = show(from) => exit,
        // It ends only with an error: the end of our own input says nothing about the program inside.
        failed = type_on(to, resized) => Err(failed),
    }
}

async fn show(mut from: impl AsyncRead + Unpin) -> anyhow::Result<ProcessExit> {
    let mut decoder = FrameDecoder::<TerminalOutput>::default();
    let mut buffer = vec![0; PIECE];
    loop {
        let count = from.read(&mut buffer).await.context("the connection to the sandbox broke")?;
        if count == 0 {
            anyhow::bail!("the sandbox closed the terminal without a word on its program's end");
        }
        decoder.push(buffer.get(..count).unwrap_or_default());
        while let Some(output) = decoder.next_frame().context("reading what the terminal shows")? {
            match output {
                TerminalOutput::Output(bytes) => print::bytes(&bytes)?,
                TerminalOutput::Exit(exit) => return Ok(*exit),
            }
        }
    }
}

async fn type_on(mut to: impl AsyncWrite + Unpin, mut resized: Signal) -> anyhow::Error {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; PIECE];
    let mut is_open = true;
    loop {
        let input = tokio::select! {
            read = stdin.read(&mut buffer), if is_open => match read {
                Ok(0) => {
                    is_open = false;
                    continue;
                }
                Ok(count) => TerminalInput::Keys(buffer.get(..count).unwrap_or_default().to_vec()),
                Err(error) => return anyhow::Error::new(error).context("reading the keys"),
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
