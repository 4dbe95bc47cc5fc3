//! From a request to a command that can be started: what the request names is found, what it cannot have is refused.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{AccessFlags, access, getegid, geteuid};
use protocol::sandbox_api::{ProcessLimits, ProcessRequest, ProcessStdin};
use tokio::process::Command;

use super::error::ProcessError;
use crate::environment::{DEFAULT_PATH, Environment};
use crate::os::accounts::{Accounts, Identity};
use crate::os::constraints::{Constraints, constrain};
use crate::os::process_tree::SESSION_VARIABLE;
use crate::timeouts::timeout_from_secs;

/// What a request may carry for stdin; more is sent to a pipe.
const MAX_STDIN_BYTES: usize = 1 << 20;

/// What every process of this server begins with.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) working_dir: PathBuf,
    pub(crate) environment: Environment,
}

/// A request that can be started.
pub(super) struct Prepared {
    pub(super) command: Command,
    /// What it reads first, if it is to read anything.
    pub(super) stdin: Option<Vec<u8>>,
    pub(super) timeout: Option<Duration>,
}

/// `mark` tells the process and what comes of it from everything else of this server.
pub(super) fn prepare(
    request: &ProcessRequest,
    origin: &Origin,
    mark: &str,
) -> Result<Prepared, ProcessError> {
    let (name, arguments) = match request.argv.as_slice() {
        [name, arguments @ ..] if !name.is_empty() => (name, arguments),
        _ => return Err(ProcessError::invalid("argv", "it names no program")),
    };
    if request.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(ProcessError::invalid("argv", "an argument holds a NUL"));
    }
    let timeout = timeout(request)?;
    let stdin = stdin(request)?;
    let folder = folder(request.cwd.as_deref(), &origin.working_dir)?;
    let identity = request.user.as_deref().map(identity).transpose()?;
    let environment = environment(request, origin, identity.as_ref(), mark)?;
    let program = program(name, environment.get(OsStr::new("PATH")), &folder)?;
    let mut command = Command::new(program);
    // A group of its own, so that a signal for its terminal's group, had it one, is not ours.
    command.arg0(name).args(arguments).env_clear().envs(environment).current_dir(folder).process_group(0);
    let reads = stdin.is_some() || request.stdin == ProcessStdin::Pipe;
    command.stdin(if reads { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let constraints = constraints(identity, &request.limits)?;
    // Only then: a command that has to do something between fork and exec is started by copying the server.
    if constraints.identity.is_some() || !constraints.limits.is_empty() {
        constrain(&mut command, constraints);
    }
    Ok(Prepared { command, stdin, timeout })
}

fn timeout(request: &ProcessRequest) -> Result<Option<Duration>, ProcessError> {
    let Some(seconds) = request.timeout_seconds else { return Ok(None) };
    let timeout = timeout_from_secs(seconds).ok_or_else(|| {
        ProcessError::invalid("timeout_seconds", format!("{seconds} is no number of seconds"))
    })?;
    Ok(Some(timeout))
}

fn stdin(request: &ProcessRequest) -> Result<Option<Vec<u8>>, ProcessError> {
    let Some(text) = &request.stdin_base64 else { return Ok(None) };
    let bytes =
        STANDARD.decode(text).map_err(|error| ProcessError::invalid("stdin_base64", error.to_string()))?;
    if bytes.len() > MAX_STDIN_BYTES {
        let problem =
            format!("it holds more than {MAX_STDIN_BYTES} bytes; send them to the stdin of the process");
        return Err(ProcessError::invalid("stdin_base64", problem));
    }
    Ok(Some(bytes))
}

fn folder(cwd: Option<&str>, working_dir: &Path) -> Result<PathBuf, ProcessError> {
    let folder = working_dir.join(cwd.unwrap_or_default());
    if folder.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(ProcessError::invalid("cwd", "it holds a NUL"));
    }
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(folder),
        Ok(_) => Err(ProcessError::invalid("cwd", format!("{} is not a directory", folder.display()))),
        Err(error) => Err(ProcessError::invalid("cwd", format!("{}: {error}", folder.display()))),
    }
}

fn identity(user: &str) -> Result<Identity, ProcessError> {
    Accounts::read().resolve(user).map_err(|error| ProcessError::invalid("user", error.to_string()))
}

fn environment(
    request: &ProcessRequest,
    origin: &Origin,
    identity: Option<&Identity>,
    mark: &str,
) -> Result<BTreeMap<OsString, OsString>, ProcessError> {
    let mut environment = BTreeMap::new();
    if request.inherit_env {
        environment.extend(origin.environment.current().iter().cloned());
        if let Some(account) = identity.and_then(|identity| identity.account.as_ref()) {
            environment.insert("HOME".into(), account.home.clone().unwrap_or_else(|| "/".into()));
            environment.insert("USER".into(), account.name.clone().into());
            environment.insert("LOGNAME".into(), account.name.clone().into());
        }
    }
    for (name, value) in &request.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(ProcessError::invalid("env", format!("{name:?} is no variable's name")));
        }
        if value.contains('\0') {
            return Err(ProcessError::invalid("env", format!("the value of {name:?} holds a NUL")));
        }
        environment.insert(name.into(), value.into());
    }
    environment.insert(SESSION_VARIABLE.into(), mark.into());
    Ok(environment)
}

/// Looked for here and not by the standard library, which looks on another `PATH` than the process's own.
fn program(name: &str, search: Option<&OsString>, folder: &Path) -> Result<PathBuf, ProcessError> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let search = search.map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str);
    let mut places = std::env::split_paths(search).map(|place| folder.join(place).join(name));
    let found = places.find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok());
    found.ok_or_else(|| ProcessError::NoProgram { name: name.into(), detail: " on its PATH" })
}

fn constraints(identity: Option<Identity>, limits: &ProcessLimits) -> Result<Constraints, ProcessError> {
    let is_own = |identity: &Identity| identity.uid == geteuid() && identity.gid == getegid();
    // Root's own supplementary groups are of no importance, and others cannot set theirs.
    let identity = identity.filter(|identity| !is_own(identity));
    if identity.is_some() && !geteuid().is_root() {
        let problem = format!("the server runs as the user {} and only root can become another", geteuid());
        return Err(ProcessError::invalid("user", problem));
    }
    let limits = [
        ("limits.memory_bytes", Resource::RLIMIT_AS, limits.memory_bytes),
        ("limits.cpu_seconds", Resource::RLIMIT_CPU, limits.cpu_seconds),
        ("limits.processes", Resource::RLIMIT_NPROC, limits.processes),
        ("limits.open_files", Resource::RLIMIT_NOFILE, limits.open_files),
        ("limits.file_bytes", Resource::RLIMIT_FSIZE, limits.file_bytes),
    ];
    let limits = limits.into_iter().filter_map(|(field, resource, most)| Some((field, resource, most?)));
    let limits = limits.map(|(field, resource, most)| match getrlimit(resource) {
        Ok((_, highest)) if most > highest => {
            Err(ProcessError::invalid(field, format!("the server itself may have no more than {highest}")))
        }
        _ => Ok((resource, most)),
    });
    Ok(Constraints {
        identity: identity.map(|identity| (identity.uid, identity.gid, identity.groups)),
        limits: limits.collect::<Result<_, _>>()?,
    })
}

/// Whose fault it is that a prepared command did not start.
pub(super) fn not_started(error: io::Error, name: &str) -> ProcessError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => {
            ProcessError::NoProgram { name: name.into(), detail: ", or not the interpreter that it asks for" }
        }
        Some(Errno::E2BIG) => {
            ProcessError::invalid("argv", "together with the environment it is longer than the system takes")
        }
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) | None => {
            ProcessError::Short(error)
        }
        Some(_) => ProcessError::NotExecutable { name: name.into(), error },
    }
}
