//! Parses arguments into a [`Command`], or a text to print instead. If an option is repeated, the
//! last one counts.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::Parser;
use lexopt::prelude::{Long, Short, Value};
use nix::unistd::Pid;
use tracing_subscriber::filter::Targets;

use super::{
    ApiDialect, LaunchConfig, ListenAddress, LogFormat, ProcessRole, ProgramCommand, ServeConfig,
};

/// Maximum duration, which is far below an overflow of time arithmetic.
const MAX_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;

const NO_CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
const NO_CHANGE_TIMEOUT_VARIABLE: &str = "NO_CHANGE_TIMEOUT_SECONDS";

const PROGRAM_HELP: &str = include_str!("help/program.txt");
const SERVE_HELP: &str = include_str!("help/serve.txt");
const V0_HELP: &str = include_str!("help/v0.txt");
const DIAL_HELP: &str = include_str!("help/dial.txt");

/// A text to print instead of running a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EarlyExit {
    /// For standard output.
    Help(String),
    /// For standard error: the error and the usage.
    Error(String),
}

/// Reason why the options are not a command.
enum ParseError {
    /// Help was requested.
    Help,
    Invalid(String),
}

impl From<lexopt::Error> for ParseError {
    fn from(error: lexopt::Error) -> Self {
        Self::Invalid(error.to_string())
    }
}

fn invalid<T>(problem: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::Invalid(problem.into()))
}

/// Parses `arguments`, which do not contain the program's name.
pub(super) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<ProgramCommand, EarlyExit> {
    let mut parser = Parser::from_args(arguments.into_iter().collect::<Vec<_>>());
    let name = match parser.next() {
        Ok(Some(Short('V') | Long("version"))) => {
            return Err(EarlyExit::Help(
                concat!("action-server ", env!("CARGO_PKG_VERSION"), "\n").into(),
            ));
        }
        Ok(Some(Short('h') | Long("help"))) => {
            return Err(early_exit(PROGRAM_HELP, ParseError::Help));
        }
        Ok(Some(Value(name))) => name,
        Ok(Some(other)) => return Err(early_exit(PROGRAM_HELP, other.unexpected().into())),
        Ok(None) => {
            return Err(early_exit(
                PROGRAM_HELP,
                ParseError::Invalid("a command is missing".into()),
            ));
        }
        Err(error) => return Err(early_exit(PROGRAM_HELP, error.into())),
    };
    let (help, command) = match name.to_str() {
        Some("serve") => (SERVE_HELP, serve(&mut parser)),
        Some("v0") => (V0_HELP, v0(&mut parser)),
        Some("dial") => (DIAL_HELP, dial(&mut parser)),
        Some("help") => return Err(help(&mut parser)),
        _ => (PROGRAM_HELP, Err(unknown_command(&name))),
    };
    command.map_err(|error| early_exit(help, error))
}

fn help(parser: &mut Parser) -> EarlyExit {
    let name = match parser.next() {
        Ok(None) => return early_exit(PROGRAM_HELP, ParseError::Help),
        Ok(Some(Value(name))) => name,
        Ok(Some(other)) => return early_exit(PROGRAM_HELP, other.unexpected().into()),
        Err(error) => return early_exit(PROGRAM_HELP, error.into()),
    };
    match name.to_str() {
        Some("serve") => early_exit(SERVE_HELP, ParseError::Help),
        Some("v0") => early_exit(V0_HELP, ParseError::Help),
        Some("dial") => early_exit(DIAL_HELP, ParseError::Help),
        _ => early_exit(PROGRAM_HELP, unknown_command(&name)),
    }
}

fn unknown_command(name: &OsStr) -> ParseError {
    ParseError::Invalid(format!("unknown command {}", name.display()))
}

fn early_exit(help: &str, error: ParseError) -> EarlyExit {
    match error {
        ParseError::Help => EarlyExit::Help(help.into()),
        ParseError::Invalid(problem) => {
            let usage = help.lines().skip_while(|line| !line.starts_with("Usage: "));
            let usage: Vec<_> = usage.take_while(|line| !line.is_empty()).collect();
            EarlyExit::Error(format!(
                "error: {problem}\n\n{}\n\nSee --help for details.\n",
                usage.join("\n")
            ))
        }
    }
}

/// Options that `serve` and `v0` share.
#[derive(Default)]
struct CommonOptions {
    working_dir: Option<PathBuf>,
    no_change_timeout: Option<Duration>,
    log_level: Option<Targets>,
    log_format: LogFormat,
    key_stdin: bool,
    supervisor: Option<i32>,
}

impl CommonOptions {
    fn role(&self) -> ProcessRole {
        match self.supervisor {
            None => ProcessRole::Supervisor,
            Some(pid) => ProcessRole::Server {
                supervisor: Pid::from_raw(pid),
            },
        }
    }
}

fn serve(parser: &mut Parser) -> Result<ProgramCommand, ParseError> {
    let mut common = CommonOptions::default();
    let (mut socket, mut listen, mut root, mut idle_timeout) = (None, None, None, None);
    let (mut detach, mut is_detached, mut fallback_home) = (false, false, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("socket") => socket = Some(path(parser, "--socket")?),
            Long("listen") => listen = Some(value(parser, "--listen", listen_address)?),
            Long("working-dir") => common.working_dir = Some(path(parser, "--working-dir")?),
            Long("fallback-home") => fallback_home = Some(path(parser, "--fallback-home")?),
            Long("root") => root = Some(path(parser, "--root")?),
            Long("key-stdin") => common.key_stdin = true,
            Long("idle-timeout") => idle_timeout = Some(value(parser, "--idle-timeout", seconds)?),
            Long("no-change-timeout") => {
                common.no_change_timeout = Some(value(parser, "--no-change-timeout", seconds)?);
            }
            Long("log-level") => common.log_level = Some(value(parser, "--log-level", log_filter)?),
            Long("log-format") => common.log_format = value(parser, "--log-format", log_format)?,
            Long("detach") => detach = true,
            // Set by the launcher, on the supervisor.
            Long("detached") => is_detached = true,
            // Set by the supervisor, on the server.
            Long("supervisor") => common.supervisor = Some(value(parser, "--supervisor", number)?),
            Long("help") | Short('h') => return Err(ParseError::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let address = match (socket, listen) {
        (Some(_), Some(_)) => return invalid("--socket and --listen exclude each other"),
        (None, None) => return invalid("--socket PATH or --listen [ADDR:]PORT is missing"),
        (None, Some(_)) if !common.key_stdin => return invalid("--listen requires --key-stdin"),
        (None, Some(_)) if detach => return invalid("--listen and --detach exclude each other"),
        (Some(path), None) => ListenAddress::Unix(path),
        (None, Some(address)) => ListenAddress::Tcp(address),
    };
    let role = if detach && !is_detached {
        ProcessRole::Launcher
    } else {
        common.role()
    };
    let Some(working_dir) = common.working_dir else {
        return invalid("--working-dir DIR is missing");
    };
    let config = ServeConfig {
        dialect: ApiDialect::Native,
        address,
        working_dir,
        fallback_home,
        root,
        has_key: common.key_stdin,
        idle_timeout,
        no_change_timeout: common.no_change_timeout.unwrap_or(NO_CHANGE_TIMEOUT),
        log_level: common.log_level,
        log_format: common.log_format,
        is_detached,
    };
    Ok(ProgramCommand::Serve(role, config))
}

fn v0(parser: &mut Parser) -> Result<ProgramCommand, ParseError> {
    let mut common = CommonOptions::default();
    let (mut port, mut host, mut username, mut user_id) = (None, None, None, None);
    let mut without_key = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Value(text) if port.is_none() => port = Some(read("PORT", &text, port_number)?),
            Long("host") => host = Some(value(parser, "--host", ip_address)?),
            Long("working-dir") => common.working_dir = Some(path(parser, "--working-dir")?),
            Long("plugins" | "browsergym-eval-env") => parser.values()?.for_each(drop),
            Long("enable-browser" | "no-enable-browser") => {}
            Long("username") => {
                username = Some(value(parser, "--username", |text| Ok(text.to_owned()))?);
            }
            Long("user-id") => user_id = Some(value(parser, "--user-id", number)?),
            Long("no-change-timeout") => {
                common.no_change_timeout = Some(value(parser, "--no-change-timeout", seconds)?);
            }
            Long("log-level") => common.log_level = Some(value(parser, "--log-level", log_filter)?),
            Long("log-format") => common.log_format = value(parser, "--log-format", log_format)?,
            // Set by the launcher: the key is the first line of standard input, or there is none.
            Long("key-stdin") => common.key_stdin = true,
            Long("without-key") => without_key = true,
            // Set by the supervisor, on the server.
            Long("supervisor") => common.supervisor = Some(value(parser, "--supervisor", number)?),
            Long("help") | Short('h') => return Err(ParseError::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(port) = port else {
        return invalid("PORT is missing");
    };
    let address = SocketAddr::new(host.unwrap_or(LOOPBACK), port);
    let role = common.role();
    let Some(working_dir) = common.working_dir else {
        return invalid("--working-dir DIR is missing");
    };
    if !common.key_stdin && !without_key {
        return Ok(ProgramCommand::LaunchV0(LaunchConfig {
            address,
            working_dir,
            username,
            user_id,
        }));
    }
    let no_change_timeout = match (
        common.no_change_timeout,
        std::env::var_os(NO_CHANGE_TIMEOUT_VARIABLE),
    ) {
        (Some(given), _) => given,
        (None, Some(text)) => read(NO_CHANGE_TIMEOUT_VARIABLE, &text, seconds)?,
        (None, None) => NO_CHANGE_TIMEOUT,
    };
    let config = ServeConfig {
        dialect: ApiDialect::V0,
        address: ListenAddress::Tcp(address),
        working_dir,
        fallback_home: None,
        root: None,
        has_key: common.key_stdin,
        idle_timeout: None,
        no_change_timeout,
        log_level: common.log_level,
        log_format: common.log_format,
        is_detached: false,
    };
    Ok(ProgramCommand::Serve(role, config))
}

fn dial(parser: &mut Parser) -> Result<ProgramCommand, ParseError> {
    let (mut socket, mut server) = (None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("socket") => socket = Some(path(parser, "--socket")?),
            Long("server-pid") => {
                server = Some(Pid::from_raw(value(parser, "--server-pid", number)?));
            }
            Long("help") | Short('h') => return Err(ParseError::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(socket) = socket else {
        return invalid("--socket PATH is missing");
    };
    Ok(ProgramCommand::Dial { socket, server })
}

/// Description of a valid value, for errors.
type Expected = &'static str;

/// Parses the value of the last option, `name`.
fn value<T>(
    parser: &mut Parser,
    name: &str,
    from_text: impl FnOnce(&str) -> Result<T, Expected>,
) -> Result<T, ParseError> {
    read(name, &parser.value()?, from_text)
}

fn path(parser: &mut Parser, name: &str) -> Result<PathBuf, ParseError> {
    let path = parser.value()?;
    if path.is_empty() {
        invalid(format!("{name} is empty"))
    } else {
        Ok(path.into())
    }
}

fn read<T>(
    name: &str,
    value: &OsStr,
    from_text: impl FnOnce(&str) -> Result<T, Expected>,
) -> Result<T, ParseError> {
    match value.to_str() {
        None => invalid(format!("{name} is not UTF-8")),
        Some("") => invalid(format!("{name} is empty")),
        Some(text) => from_text(text).map_err(|expected| {
            ParseError::Invalid(format!("{name} {text:?}: expected {expected}"))
        }),
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn listen_address(text: &str) -> Result<SocketAddr, Expected> {
    let port = text.strip_prefix(':').unwrap_or(text);
    match (text.parse(), port.parse()) {
        (Ok(address), _) => Ok(address),
        (Err(_), Ok(port)) => Ok(SocketAddr::new(LOOPBACK, port)),
        (Err(_), Err(_)) => Err("an IP address and a port, as in 127.0.0.1:8000, or a port"),
    }
}

fn ip_address(text: &str) -> Result<IpAddr, Expected> {
    text.parse().map_err(|_| "an IP address")
}

fn port_number(text: &str) -> Result<u16, Expected> {
    text.parse().map_err(|_| "a port, at most 65535")
}

fn number<T: FromStr>(text: &str) -> Result<T, Expected> {
    text.parse().map_err(|_| "a number")
}

fn log_filter(text: &str) -> Result<Targets, Expected> {
    text.parse()
        .map_err(|_| "a level, or a list like TARGET=LEVEL,TARGET=LEVEL")
}

fn log_format(text: &str) -> Result<LogFormat, Expected> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("text or json"),
    }
}

fn seconds(text: &str) -> Result<Duration, Expected> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Ok(_) => Err("more than 0 seconds and at most ten years"),
        Err(_) => Err("a number of seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ProgramCommand, EarlyExit> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn refused(line: &str) -> String {
        match parsed(line) {
            Err(EarlyExit::Error(text)) => text.lines().next().unwrap().to_owned(),
            Err(EarlyExit::Help(text)) => panic!("{line}: {text}"),
            Ok(_) => panic!("{line} is accepted"),
        }
    }

    #[test]
    fn every_option_in_the_help_is_known() {
        for (command, help) in [("serve", SERVE_HELP), ("v0", V0_HELP), ("dial", DIAL_HELP)] {
            assert_eq!(
                parsed(&format!("{command} --help")).err(),
                Some(EarlyExit::Help(help.into()))
            );
            assert_eq!(
                parsed(&format!("help {command}")).err(),
                Some(EarlyExit::Help(help.into()))
            );
            assert_eq!(
                refused(&format!("{command} --nosuch")),
                "error: invalid option '--nosuch'"
            );
            let options = help.lines().filter(|line| line.starts_with("  -"));
            let names: Vec<_> = options.flat_map(|line| line.split([' ', ','])).collect();
            let names = names
                .iter()
                .filter(|name| name.starts_with("--") && **name != "--help");
            assert!(names.clone().count() > 0);
            for name in names {
                let problem = refused(&format!("{command} {name}"));
                assert!(!problem.contains("invalid option"), "{command}: {problem}");
            }
        }
    }

    #[test]
    fn help_fits_into_80_columns() {
        for help in [PROGRAM_HELP, SERVE_HELP, V0_HELP, DIAL_HELP] {
            let long = help
                .lines()
                .find(|line| line.len() > 80 && !line.contains("action-server serve"));
            assert_eq!(long, None);
        }
    }

    #[test]
    fn error_contains_the_option_and_the_usage() {
        let whole = EarlyExit::Error(
            "error: --socket PATH is missing\n\nUsage: action-server dial --socket PATH [--server-pid PID]\n\nSee --help for details.\n"
                .into(),
        );
        assert_eq!(parsed("dial").err(), Some(whole));
        assert_eq!(refused(""), "error: a command is missing");
        assert_eq!(refused("serv"), "error: unknown command serv");
        assert_eq!(refused("--socket"), "error: invalid option '--socket'");
        let socket = "serve --socket /s";
        assert_eq!(refused(socket), "error: --working-dir DIR is missing");
        assert_eq!(
            refused(&format!("{socket} --idle-timeout x")),
            "error: --idle-timeout \"x\": expected a number of seconds"
        );
        assert_eq!(
            refused("serve --listen localhost:1"),
            "error: --listen \"localhost:1\": expected an IP address and a port, as in 127.0.0.1:8000, or a port"
        );
        assert_eq!(
            refused("v0 70000"),
            "error: PORT \"70000\": expected a port, at most 65535"
        );
        assert_eq!(refused("help serv"), "error: unknown command serv");
        assert_eq!(refused("dial --socket="), "error: --socket is empty");
        assert_eq!(
            refused(&format!("{socket} --log-level a=b=c")),
            "error: --log-level \"a=b=c\": expected a level, or a list like TARGET=LEVEL,TARGET=LEVEL"
        );
        assert_eq!(
            refused(&format!("{socket} --log-format xml")),
            "error: --log-format \"xml\": expected text or json"
        );
        assert_eq!(refused("v0 --working-dir /"), "error: PORT is missing");
    }

    #[test]
    fn address_is_local_by_default_and_never_a_name() {
        let loopback = |port| Ok(SocketAddr::new(LOOPBACK, port));
        assert_eq!(listen_address("8000"), loopback(8000));
        assert_eq!(listen_address(":8000"), loopback(8000));
        assert_eq!(listen_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(listen_address("localhost:1").is_err());
        assert!(listen_address("70000").is_err());
    }

    #[test]
    fn v0_arguments_are_accepted() {
        let line = "v0 8000 --working-dir /w --plugins agent_skills jupyter vscode --username openhands \
                    --user-id 1000 --browsergym-eval-env a b --no-enable-browser";
        let Ok(ProgramCommand::LaunchV0(config)) = parsed(line) else {
            panic!("not the launcher")
        };
        assert_eq!(config.address, SocketAddr::new(LOOPBACK, 8000));
        assert_eq!(
            (config.username.as_deref(), config.user_id),
            (Some("openhands"), Some(1000))
        );
        let Ok(ProgramCommand::Serve(ProcessRole::Server { .. }, config)) =
            parsed(&format!("{line} --key-stdin --supervisor 7"))
        else {
            panic!("not the server")
        };
        assert!(config.has_key && config.dialect == ApiDialect::V0);
    }

    #[test]
    fn inserted_arguments_precede_those_of_the_user() {
        let Ok(ProgramCommand::Serve(ProcessRole::Launcher, _)) =
            parsed("serve --working-dir / --socket /s --detach --")
        else {
            panic!("not the launcher")
        };
        let line = "serve --supervisor 7 --detached --working-dir / --socket /s --detach --";
        let Ok(ProgramCommand::Serve(ProcessRole::Server { .. }, config)) = parsed(line) else {
            panic!("not the server")
        };
        assert!(config.is_detached);
        let Ok(ProgramCommand::LaunchV0(_)) = parsed("v0 --working-dir /w --plugins a b -- 8000")
        else {
            panic!("the port is not accepted as the last argument")
        };
    }

    #[test]
    fn tcp_requires_a_key() {
        let parse = |arguments: &str| parsed(&format!("serve --working-dir / {arguments}"));
        assert!(parse("--listen 1").is_err());
        assert!(parse("--listen 1 --key-stdin").is_ok());
        assert!(parse("--socket /s").is_ok());
        assert!(parse("--socket=/s").is_ok());
        assert!(parse("--socket /s --listen 1 --key-stdin").is_err());
        assert!(parse("--key-stdin").is_err());
        assert!(parse("--listen 1 --key-stdin --detach").is_err());
        assert!(parse("--socket /s --idle-timeout 1e300").is_err());
        assert!(parse("--socket /s --idle-timeout NaN").is_err());
    }
}
