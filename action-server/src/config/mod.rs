//! The command line, read once into types that hold only what makes sense. The key is never part of it: arguments and
//! environments can be read by what the server runs.

mod parse;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::unistd::Pid;
use tracing_subscriber::filter::Targets;

use parse::Answer;

/// What the program is asked to do.
pub(crate) enum Command {
    Serve(Role, ServeConfig),
    /// Start over as V0's server, without the key in the environment.
    LaunchV0(LaunchConfig),
    Dial {
        socket: PathBuf,
        /// The process that must listen there. `None`: any.
        server: Option<Pid>,
    },
}

/// Which of the processes of `serve` this one is.
pub(crate) enum Role {
    /// Starts the others in a session of their own, and goes.
    Launcher,
    /// Starts the server, outlives it and ends what it left behind.
    Supervisor,
    /// Serves, as long as its supervisor lives.
    Server { supervisor: Pid },
}

/// How to serve.
pub(crate) struct ServeConfig {
    pub(crate) dialect: Dialect,
    pub(crate) address: Address,
    pub(crate) working_dir: PathBuf,
    /// What the file interface is kept in.
    pub(crate) root: Option<PathBuf>,
    /// The key comes as the first line of standard input.
    pub(crate) has_key: bool,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) no_change_timeout: Duration,
    pub(crate) log_level: Option<Targets>,
    /// Started by a launcher: leave its session, and its streams once it need not be told anything any more.
    pub(crate) is_detached: bool,
}

/// Whose API is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Ours.
    Native,
    /// OpenHands V0's.
    V0,
}

/// What has to be known before V0's server starts.
pub(crate) struct LaunchConfig {
    pub(crate) address: SocketAddr,
    pub(crate) working_dir: PathBuf,
    pub(crate) username: Option<String>,
    pub(crate) user_id: Option<u32>,
}

/// Where to listen.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Reads the command line. Where that asks for help, or has a mistake, it says so; the process then ends with this code.
pub(crate) fn from_command_line() -> Result<Command, ExitCode> {
    parse::parse(std::env::args_os().skip(1)).map_err(|answer| match answer {
        // A reader that has seen enough of it is no failure.
        Answer::Told(text) => {
            _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Answer::Refused(text) => {
            _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(2)
        }
    })
}

/// The same command line for the next process of the same command, which is told this besides: before the rest, which may end
/// with names for a list, or with words after `--`.
pub(crate) fn arguments_with(more: &[&str]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let behind_command = arguments.len().min(1);
    arguments.splice(behind_command..behind_command, more.iter().map(OsString::from));
    arguments
}
