//! The command line, parsed once into types that allow only valid combinations. It never contains
//! the key, because commands can read the arguments and the environment of the server.

mod parse;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::unistd::Pid;
use tracing_subscriber::filter::Targets;

use parse::EarlyExit;

/// The command to run.
pub(crate) enum ProgramCommand {
    Serve(ProcessRole, ServeConfig),
    /// Start again as V0's server, without the key in the environment.
    LaunchV0(LaunchConfig),
    Dial {
        socket: PathBuf,
        /// The process that must listen on the socket. `None`: any process.
        server: Option<Pid>,
    },
}

/// The role of this process among those of `serve`.
pub(crate) enum ProcessRole {
    /// Starts the supervisor in its own session, and exits.
    Launcher,
    /// Starts the server, outlives it, and kills the processes that it has left.
    Supervisor,
    /// Serves as long as its supervisor runs.
    Server { supervisor: Pid },
}

/// Configuration of the server.
pub(crate) struct ServeConfig {
    pub(crate) dialect: ApiDialect,
    pub(crate) address: ListenAddress,
    pub(crate) working_dir: PathBuf,
    /// `HOME` of commands if the user has no home that is a writable folder.
    pub(crate) fallback_home: Option<PathBuf>,
    /// The folder that file operations are confined to.
    pub(crate) root: Option<PathBuf>,
    /// Whether the first line of standard input is the key.
    pub(crate) has_key: bool,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) no_change_timeout: Duration,
    pub(crate) log_level: Option<Targets>,
    pub(crate) log_format: LogFormat,
    /// Started by a launcher: leave its session, and release its streams once the socket listens.
    pub(crate) is_detached: bool,
}

/// Format of the log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The API that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiDialect {
    /// The native API.
    Native,
    /// The API of OpenHands V0.
    V0,
}

/// Configuration of the launcher of V0's server.
pub(crate) struct LaunchConfig {
    pub(crate) address: SocketAddr,
    pub(crate) working_dir: PathBuf,
    pub(crate) username: Option<String>,
    pub(crate) user_id: Option<u32>,
}

/// The address to listen on.
#[derive(Debug, Clone)]
pub(crate) enum ListenAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Parses the command line. On `--help` or an error it prints a text and returns the exit code.
pub(crate) fn from_command_line() -> Result<ProgramCommand, ExitCode> {
    parse::parse(std::env::args_os().skip(1)).map_err(|exit| match exit {
        // A reader that closes the pipe early is not an error.
        EarlyExit::Help(text) => {
            _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        EarlyExit::Error(text) => {
            _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(2)
        }
    })
}

/// Returns the arguments of this process with `more` inserted after the command. Not appended,
/// because the arguments may end with a list of names, or with values after `--`.
pub(crate) fn arguments_with(more: &[&str]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let behind_command = arguments.len().min(1);
    arguments.splice(
        behind_command..behind_command,
        more.iter().map(OsString::from),
    );
    arguments
}
