//! The command line, read once into types that hold only what makes sense. The key is never part of it: arguments and
//! environments can be read by what the server runs.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use nix::unistd::Pid;

/// Longer is a mistake, and still far from where arithmetic on times would end.
const MAX_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;

/// What the program is asked to do.
pub(crate) enum Command {
    Serve(Role, ServeConfig),
    /// Start over as V0's server, without the key in the environment.
    LaunchV0(LaunchConfig),
    Dial {
        socket: PathBuf,
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
    pub(crate) log_level: Option<String>,
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

/// Reads the command line; on a mistake it says which and ends the process with code 2.
pub(crate) fn from_command_line() -> Command {
    CommandLine::parse().command.into()
}

/// The same command line, for the next process of `serve`.
pub(crate) fn arguments_for(role: Role) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match role {
        Role::Launcher => {}
        Role::Supervisor => {
            for argument in arguments.iter_mut().filter(|argument| *argument == "--detach") {
                *argument = "--detached".into();
            }
        }
        Role::Server { supervisor } => {
            arguments.extend(["--supervisor".into(), supervisor.to_string().into()]);
        }
    }
    arguments
}

/// Runs commands and edits files inside a sandbox, for a host that speaks HTTP to it.
#[derive(Parser)]
#[command(name = "action-server", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    Serve(Box<ServeArguments>),
    V0(Box<V0Arguments>),
    Dial(DialArguments),
}

/// Serve one host until SIGTERM, SIGINT or the idle timeout.
///
/// Speaks HTTP/1.1 and HTTP/2 (prior knowledge) on one socket. At the end everything that it started is ended too, and
/// the socket removed, within 2 seconds. Works as PID 1 of a container.
///
/// Exit codes: 0 ended as asked, 1 failed (one line on stderr), 2 wrong usage.
#[derive(Args)]
#[command(group(ArgGroup::new("address").required(true).args(["socket", "listen"])))]
struct ServeArguments {
    /// Listen on this unix socket
    ///
    /// The socket gets mode 0600; its folder is made with mode 0700 when it is missing. A socket that a dead server
    /// left behind is replaced, one with a living server is not.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Listen on this TCP address; needs --key-stdin
    ///
    /// ADDR is an IP address, never a name; without one it is 127.0.0.1.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = listen_address, requires = "key_stdin")]
    listen: Option<SocketAddr>,

    /// Where shells begin and relative paths are resolved; must exist
    #[arg(long, value_name = "DIR")]
    working_dir: PathBuf,

    /// Keep the file interface in this folder: routes of files and file actions reach nothing else
    ///
    /// The kernel keeps to it (openat2, Linux 5.6; without it the server does not start). Absolute paths must begin with
    /// DIR, and the working directory must be beneath it. `..` and relative links are followed as long as they stay
    /// beneath; absolute links are refused, and so is what leads out, with 403. Shells and processes are not kept in it.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Read the key as the first line of standard input
    ///
    /// Every request but /alive must then carry it in the header x-session-api-key. It is never read from arguments
    /// or the environment, which commands in the sandbox can see. Without this option there is no key: only the mode
    /// of the unix socket guards the server.
    #[arg(long)]
    key_stdin: bool,

    /// End after this long without a connection and without a running action
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    idle_timeout: Option<Duration>,

    /// Answer a command that prints nothing for this long; the command goes on
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    no_change_timeout: Duration,

    /// What to log to stderr, as in RUST_LOG, which it overrides: error, warn, info, debug, trace
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,

    /// Go on in the background, in a session of its own
    ///
    /// Returns when the server listens, after printing one line such as {"pid":7,"socket":"/run/x.sock"}. A signal to
    /// that pid ends the server. What it logs after that is dropped.
    #[arg(long, conflicts_with = "listen")]
    detach: bool,

    /// Set by --detach on the process that it starts
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,

    /// Set by the supervisor on the server
    #[arg(long, hide = true, value_name = "PID")]
    supervisor: Option<i32>,
}

/// Serve as OpenHands V0's server in its sandboxes does, to its clients, until SIGTERM or SIGINT.
///
/// Takes that server's arguments. The key is what the environment variable SESSION_API_KEY holds; it is gone from the
/// environment before anything is started. Without it there is no key, and only this machine is listened to.
#[derive(Args)]
struct V0Arguments {
    /// Listen on this TCP port
    port: u16,

    /// Listen on this IP address; needs SESSION_API_KEY unless it is this machine's own
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    host: IpAddr,

    /// Where shells begin and relative paths are resolved; made if it is missing
    #[arg(long, value_name = "DIR")]
    working_dir: PathBuf,

    /// Accepted and without effect: what a missing plugin would do is answered with an error that says so
    #[arg(long, value_name = "NAME", num_args = 1..)]
    plugins: Vec<String>,

    /// The user to run as, where it is started as root
    #[arg(long, value_name = "NAME")]
    username: Option<String>,

    /// The number of the user to run as; it decides where the name is another's or nobody's
    #[arg(long, value_name = "N")]
    user_id: Option<u32>,

    /// Accepted and without effect: there is no browser
    #[arg(long, overrides_with = "no_enable_browser")]
    enable_browser: bool,

    /// Accepted: there is no browser
    #[arg(long)]
    no_enable_browser: bool,

    /// Accepted and without effect: there is no browser
    #[arg(long, value_name = "NAME", num_args = 1..)]
    browsergym_eval_env: Vec<String>,

    /// Answer a command that prints nothing for this long; the command goes on
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = seconds,
        env = "NO_CHANGE_TIMEOUT_SECONDS",
        default_value = "10"
    )]
    no_change_timeout: Duration,

    /// What to log to stderr, as in RUST_LOG, which it overrides: error, warn, info, debug, trace
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,

    /// Set when it has started over: the key is the first line of standard input
    #[arg(long, hide = true)]
    key_stdin: bool,

    /// Set when it has started over: there is no key
    #[arg(long, hide = true, conflicts_with = "key_stdin")]
    without_key: bool,

    /// Set by the supervisor on the server
    #[arg(long, hide = true, value_name = "PID")]
    supervisor: Option<i32>,
}

/// Join standard input and output to a server's unix socket.
///
/// Writes the line `glovebox dial 1` first. After the end of input the answer may take 2 seconds; at the socket's end
/// it ends at once.
///
/// Exit codes: 0 ended, 1 the socket cannot be connected to (one line on stderr), 2 wrong usage.
#[derive(Args)]
struct DialArguments {
    /// The server's socket
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
}

impl From<Subcommands> for Command {
    fn from(subcommand: Subcommands) -> Self {
        match subcommand {
            Subcommands::Dial(dial) => Self::Dial { socket: dial.socket },
            Subcommands::Serve(serve) => serve.into(),
            Subcommands::V0(v0) => v0.into(),
        }
    }
}

impl From<Box<ServeArguments>> for Command {
    fn from(arguments: Box<ServeArguments>) -> Self {
        let role = if arguments.detach { Role::Launcher } else { role(arguments.supervisor) };
        let address = match (arguments.socket, arguments.listen) {
            (Some(path), _) => Address::Unix(path),
            (None, listen) => Address::Tcp(listen.unwrap_or(loopback(0))),
        };
        let config = ServeConfig {
            dialect: Dialect::Native,
            address,
            working_dir: arguments.working_dir,
            root: arguments.root,
            has_key: arguments.key_stdin,
            idle_timeout: arguments.idle_timeout,
            no_change_timeout: arguments.no_change_timeout,
            log_level: arguments.log_level,
            is_detached: arguments.detached,
        };
        Self::Serve(role, config)
    }
}

impl From<Box<V0Arguments>> for Command {
    fn from(arguments: Box<V0Arguments>) -> Self {
        let address = SocketAddr::new(arguments.host, arguments.port);
        if !arguments.key_stdin && !arguments.without_key {
            return Self::LaunchV0(LaunchConfig {
                address,
                working_dir: arguments.working_dir,
                username: arguments.username,
                user_id: arguments.user_id,
            });
        }
        let config = ServeConfig {
            dialect: Dialect::V0,
            address: Address::Tcp(address),
            working_dir: arguments.working_dir,
            root: None,
            has_key: arguments.key_stdin,
            idle_timeout: None,
            no_change_timeout: arguments.no_change_timeout,
            log_level: arguments.log_level,
            is_detached: false,
        };
        Self::Serve(role(arguments.supervisor), config)
    }
}

fn role(supervisor: Option<i32>) -> Role {
    match supervisor {
        None => Role::Supervisor,
        Some(pid) => Role::Server { supervisor: Pid::from_raw(pid) },
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    match (text.parse(), port.parse()) {
        (Ok(address), _) => Ok(address),
        (Err(_), Ok(port)) => Ok(loopback(port)),
        (Err(_), Err(_)) => Err("expected an IP address and a port, as in 127.0.0.1:8000, or a port".into()),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("expected more than 0 seconds and at most ten years".into()),
        Err(_) => Err("expected a number of seconds".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn addresses_are_numbers_and_local_by_default() {
        assert_eq!(listen_address("8000"), Ok(loopback(8000)));
        assert_eq!(listen_address(":8000"), Ok(loopback(8000)));
        assert_eq!(listen_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(listen_address("localhost:1").is_err());
        assert!(listen_address("70000").is_err());
    }

    #[test]
    fn v0s_own_arguments_are_taken() {
        let line = "action-server v0 8000 --working-dir /w --plugins agent_skills jupyter vscode --username openhands \
                    --user-id 1000 --browsergym-eval-env a b --no-enable-browser";
        let Command::LaunchV0(config) =
            CommandLine::try_parse_from(line.split_whitespace()).unwrap().command.into()
        else {
            panic!("it has not started over yet")
        };
        assert_eq!(config.address, loopback(8000));
        assert_eq!((config.username.as_deref(), config.user_id), (Some("openhands"), Some(1000)));
        let line = format!("{line} --key-stdin --supervisor 7");
        let command = CommandLine::try_parse_from(line.split_whitespace()).unwrap().command.into();
        let Command::Serve(Role::Server { .. }, config) = command else { panic!("it is the server") };
        assert!(config.has_key && config.dialect == Dialect::V0);
    }

    #[test]
    fn tcp_without_a_key_is_refused() {
        let parse = |arguments: &str| {
            CommandLine::try_parse_from(format!("action-server serve --working-dir / {arguments}").split(' '))
        };
        assert!(parse("--listen 1").is_err());
        assert!(parse("--listen 1 --key-stdin").is_ok());
        assert!(parse("--socket /s").is_ok());
        assert!(parse("--socket /s --listen 1 --key-stdin").is_err());
        assert!(parse("--key-stdin").is_err());
        assert!(parse("--listen 1 --key-stdin --detach").is_err());
        assert!(parse("--socket /s --idle-timeout 1e300").is_err());
        assert!(parse("--socket /s --idle-timeout NaN").is_err());
    }
}
