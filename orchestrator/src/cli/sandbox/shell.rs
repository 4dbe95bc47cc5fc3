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
use tokio::sync::mpsc;

use super::arguments::SandboxChoice;
use super::terminal_mode::{RawMode, size};
use crate::cli::program::{exit_of_program, script};
use crate::cli::{interrupts::Interrupts, print};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};

/// Size of a read.
const READ_BYTES: usize = 16 << 10;

/// Size of a read of keys. A terminal returns at most this much at once.
const KEY_READ_BYTES: usize = 4 << 10;

/// Maximum number of reads of keys that wait to be sent: more than a user types into a sandbox that
/// does not respond, before the keys to leave.
const KEY_QUEUE: usize = 4096;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every key is passed on, including ^C. Leave with `exit` or ^D, or, if the sandbox does not respond, with `~.` at the start of \
a line, as with ssh (`~~` is one `~`). Closing this terminal terminates the shell.
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
    match result.transpose()?.flatten() {
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

/// Relays keys, sizes and output until the program in the sandbox exits. `None` if the user leaves
/// it.
async fn relay(
    stream: Box<dyn ByteStream>,
    resized: Signal,
) -> anyhow::Result<Option<ProcessExit>> {
    let (from, to) = tokio::io::split(stream);
    // Not within `send_input`: a sandbox that does not respond takes no input.
    let (keys, typed) = mpsc::channel(KEY_QUEUE);
    tokio::select! {
        exit = show_output(from) => exit.map(Some),
        // Returns only errors: the end of our input does not end the program in the sandbox.
        error = send_input(to, typed, resized) => Err(error),
        left = read_keys(keys) => left.map(|()| None),
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

/// Reads keys until the user leaves the shell.
async fn read_keys(keys: mpsc::Sender<Vec<u8>>) -> anyhow::Result<()> {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; KEY_READ_BYTES];
    let mut escape = Escape::LineStart;
    loop {
        let count = stdin
            .read(&mut buffer)
            .await
            .context("cannot read the keys")?;
        if count == 0 {
            return std::future::pending().await;
        }
        let Some(typed) = escape.filter(buffer.get(..count).unwrap_or_default()) else {
            return Ok(());
        };
        // The receiver ends with this future.
        let _ = keys.send(typed).await;
    }
}

/// State of the keys to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// The next key starts a line.
    LineStart,
    /// A line starts with `~`, which is not yet sent.
    Tilde,
    InLine,
}

impl Escape {
    /// Returns the keys to send. `None` if the user leaves.
    fn filter(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut sent = Vec::with_capacity(typed.len() + 1);
        for key in typed {
            match (*self, key) {
                (Self::LineStart, b'~') => {
                    *self = Self::Tilde;
                    continue;
                }
                (Self::Tilde, b'.') => return None,
                (Self::Tilde, b'~') | (Self::LineStart | Self::InLine, _) => {}
                (Self::Tilde, _) => sent.push(b'~'),
            }
            sent.push(*key);
            *self = match key {
                b'\r' | b'\n' => Self::LineStart,
                _ => Self::InLine,
            };
        }
        Some(sent)
    }
}

async fn send_input(
    mut to: impl AsyncWrite + Unpin,
    mut typed: mpsc::Receiver<Vec<u8>>,
    mut resized: Signal,
) -> anyhow::Error {
    loop {
        let input = tokio::select! {
            Some(keys) = typed.recv() => TerminalInput::Keys(keys),
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

#[cfg(test)]
mod tests {
    use super::Escape;

    #[test]
    fn tilde_and_point_at_the_start_of_a_line_leave_the_shell() {
        let filter = |reads: &[&str]| {
            let mut escape = Escape::LineStart;
            let mut sent = Vec::new();
            for read in reads {
                sent.extend(escape.filter(read.as_bytes())?);
            }
            Some(String::from_utf8(sent).unwrap())
        };
        for leaves in [&["~."][..], &["ls\r~", "."], &["~x\r", "~."]] {
            assert_eq!(filter(leaves), None, "{leaves:?}");
        }
        for (typed, sent) in [
            (&["ls ~.\r"][..], "ls ~.\r"),
            (&["~", "~.\r"], "~.\r"),
            (&["~/bin\r"], "~/bin\r"),
            (&["~\r~a"], "~\r~a"),
        ] {
            assert_eq!(filter(typed).as_deref(), Some(sent));
        }
    }
}
