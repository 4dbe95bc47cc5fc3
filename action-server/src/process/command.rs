//! Converts a request into a command: resolves the program, folder and user, and rejects what is
//! not possible.

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

/// Maximum input in a request. More must be written to the pipe.
const MAX_STDIN_BYTES: usize = 1 << 20;

/// Defaults of every process of the server.
#[derive(Debug, Clone)]
pub(crate) struct ProcessDefaults {
    pub(crate) working_dir: PathBuf,
    pub(crate) environment: Environment,
}

/// A command that is ready to be started.
pub(super) struct PreparedCommand {
    pub(super) command: Command,
    /// Input that is written first.
    pub(super) stdin: Option<Vec<u8>>,
    pub(super) timeout: Option<Duration>,
}

/// `tree_id` identifies the process and its descendants.
pub(super) fn prepare(
    request: &ProcessRequest,
    defaults: &ProcessDefaults,
    tree_id: &str,
) -> Result<PreparedCommand, ProcessError> {
    let (name, arguments) = match request.argv.as_slice() {
        [name, arguments @ ..] if !name.is_empty() => (name, arguments),
        _ => return Err(ProcessError::invalid("argv", "a program is missing")),
    };
    if request.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(ProcessError::invalid(
            "argv",
            "an argument contains a NUL byte",
        ));
    }
    let timeout = timeout(request)?;
    let stdin = stdin(request)?;
    let folder = folder(request.cwd.as_deref(), &defaults.working_dir)?;
    let identity = request.user.as_deref().map(identity).transpose()?;
    let environment = environment(request, defaults, identity.as_ref(), tree_id)?;
    let program = program(name, environment.get(OsStr::new("PATH")), &folder)?;
    let mut command = Command::new(program);
    // A process group of its own: a signal to it must not reach the server.
    command
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .current_dir(folder)
        .process_group(0);
    let reads = stdin.is_some() || request.stdin == ProcessStdin::Pipe;
    command.stdin(if reads { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let constraints = constraints(identity, &request.limits)?;
    // Not set without need: with a `pre_exec` hook, the standard library forks the server instead
    // of using `posix_spawn`.
    if constraints.identity.is_some() || !constraints.limits.is_empty() {
        constrain(&mut command, constraints);
    }
    Ok(PreparedCommand {
        command,
        stdin,
        timeout,
    })
}

fn timeout(request: &ProcessRequest) -> Result<Option<Duration>, ProcessError> {
    let Some(seconds) = request.timeout_seconds else {
        return Ok(None);
    };
    let timeout = timeout_from_secs(seconds).ok_or_else(|| {
        ProcessError::invalid(
            "timeout_seconds",
            format!("{seconds} is not a valid number of seconds"),
        )
    })?;
    Ok(Some(timeout))
}

fn stdin(request: &ProcessRequest) -> Result<Option<Vec<u8>>, ProcessError> {
    let Some(text) = &request.stdin_base64 else {
        return Ok(None);
    };
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| ProcessError::invalid("stdin_base64", error.to_string()))?;
    if bytes.len() > MAX_STDIN_BYTES {
        let problem =
            format!("more than {MAX_STDIN_BYTES} bytes; write them to the stdin of the process");
        return Err(ProcessError::invalid("stdin_base64", problem));
    }
    Ok(Some(bytes))
}

fn folder(cwd: Option<&str>, working_dir: &Path) -> Result<PathBuf, ProcessError> {
    let folder = working_dir.join(cwd.unwrap_or_default());
    if folder.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(ProcessError::invalid("cwd", "it contains a NUL byte"));
    }
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(folder),
        Ok(_) => Err(ProcessError::invalid(
            "cwd",
            format!("the working directory {} is not a folder", folder.display()),
        )),
        Err(error) => Err(ProcessError::invalid(
            "cwd",
            format!("the working directory {}: {error}", folder.display()),
        )),
    }
}

fn identity(user: &str) -> Result<Identity, ProcessError> {
    Accounts::read()
        .resolve(user)
        .map_err(|error| ProcessError::invalid("user", error.to_string()))
}

fn environment(
    request: &ProcessRequest,
    defaults: &ProcessDefaults,
    identity: Option<&Identity>,
    tree_id: &str,
) -> Result<BTreeMap<OsString, OsString>, ProcessError> {
    let mut environment = BTreeMap::new();
    if request.inherit_env {
        environment.extend(defaults.environment.current().iter().cloned());
        if let Some(account) = identity.and_then(|identity| identity.account.as_ref()) {
            environment.insert(
                "HOME".into(),
                account.home.clone().unwrap_or_else(|| "/".into()),
            );
            environment.insert("USER".into(), account.name.clone().into());
            environment.insert("LOGNAME".into(), account.name.clone().into());
        }
    }
    for (name, value) in &request.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(ProcessError::invalid(
                "env",
                format!("{name:?} is not a valid variable name"),
            ));
        }
        if value.contains('\0') {
            return Err(ProcessError::invalid(
                "env",
                format!("the value of {name:?} contains a NUL byte"),
            ));
        }
        environment.insert(name.into(), value.into());
    }
    environment.insert(SESSION_VARIABLE.into(), tree_id.into());
    Ok(environment)
}

/// Resolves the program. The standard library would use the server's `PATH` instead of the one of
/// the process.
fn program(name: &str, search: Option<&OsString>, folder: &Path) -> Result<PathBuf, ProcessError> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let search = search.map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str);
    let mut paths =
        std::env::split_paths(search).map(|directory| folder.join(directory).join(name));
    let found = paths.find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok());
    found.ok_or_else(|| ProcessError::NoProgram {
        name: name.into(),
        detail: format!(" on its PATH{}", shell_hint(name)),
    })
}

/// Advice for a command line in place of a program's name.
fn shell_hint(name: &str) -> &'static str {
    let is_shell_text =
        name.contains(|character: char| character.is_whitespace() || ";|&<>$`".contains(character));
    if is_shell_text {
        "; for shell text: `sh -c '…'`"
    } else {
        ""
    }
}

fn constraints(
    identity: Option<Identity>,
    limits: &ProcessLimits,
) -> Result<Constraints, ProcessError> {
    let is_own = |identity: &Identity| identity.uid == geteuid() && identity.gid == getegid();
    // An identity with the server's user and group needs no change. Only root could change the
    // supplementary groups.
    let identity = identity.filter(|identity| !is_own(identity));
    if identity.is_some() && !geteuid().is_root() {
        let problem = format!(
            "the server runs as user {}, and only root can change the user",
            geteuid()
        );
        return Err(ProcessError::invalid("user", problem));
    }
    let limits = [
        (
            "limits.memory_bytes",
            Resource::RLIMIT_AS,
            limits.memory_bytes,
        ),
        (
            "limits.cpu_seconds",
            Resource::RLIMIT_CPU,
            limits.cpu_seconds,
        ),
        ("limits.processes", Resource::RLIMIT_NPROC, limits.processes),
        (
            "limits.open_files",
            Resource::RLIMIT_NOFILE,
            limits.open_files,
        ),
        (
            "limits.file_bytes",
            Resource::RLIMIT_FSIZE,
            limits.file_bytes,
        ),
    ];
    let limits = limits
        .into_iter()
        .filter_map(|(field, resource, limit)| Some((field, resource, limit?)));
    let limits = limits.map(|(field, resource, limit)| match getrlimit(resource) {
        Ok((_, hard_limit)) if limit > hard_limit => Err(ProcessError::invalid(
            field,
            format!("the maximum is the server's own limit, {hard_limit}"),
        )),
        _ => Ok((resource, limit)),
    });
    Ok(Constraints {
        identity: identity.map(|identity| (identity.uid, identity.gid, identity.groups)),
        limits: limits.collect::<Result<_, _>>()?,
    })
}

/// Classifies the error of a command that could not be started.
pub(super) fn start_error(error: io::Error, name: &str) -> ProcessError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => ProcessError::NoProgram {
            name: name.into(),
            detail: format!(", or its interpreter is missing{}", shell_hint(name)),
        },
        Some(Errno::E2BIG) => ProcessError::invalid(
            "argv",
            "arguments and environment are longer than the system allows",
        ),
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) | None => {
            ProcessError::Short(error)
        }
        Some(_) => ProcessError::NotExecutable {
            name: name.into(),
            error,
        },
    }
}
