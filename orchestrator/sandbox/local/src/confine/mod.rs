//! Prepares the calling process, which then executes another program: enters control groups or sets
//! limits, and without bubblewrap isolates itself.
//!
//! A host program with local sandboxes calls [`confine_if_requested`] before anything else. The
//! local backend starts the same program again with a [`Preparation`] at the start of its standard
//! input: command lines are visible to all users of a host, and a long one makes `ps` unreadable.
//! If it contains a [`Confinement`], there are two processes. The outer one enters namespaces
//! ([`namespaces`]) and waits; the inner one, the first in them, builds a root from parts of the
//! host's ([`mounts`]), drops its capabilities, and applies Landlock ([`files`]) and seccomp
//! ([`system_calls`]). It then executes the action server, which inherits all restrictions, as all
//! its children do. They cannot be reverted. The process has only one thread until then, because a
//! restriction applies to one thread.
//!
//! Confinement requires a mount namespace. Landlock and seccomp alone let a process change modes,
//! owners, times and attributes of every file of its user, and limits and priorities of the user's
//! other processes.
//!
//! The process has a control group namespace, and sees its own groups in place of the host's
//! ([`control_groups`]).
//!
//! A program of another architecture (32 bits) is killed by the kernel, as the filter cannot read
//! its calls.

mod control_groups;
mod files;
mod mounts;
mod namespaces;
mod system_calls;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, IntoRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use serde::{Deserialize, Serialize};

pub(crate) use control_groups::{ControlGroup, GROUP_MEMBERS};
pub(crate) use mounts::{Content, Mount, SHARED_MEMORY_BYTES};

/// The first argument of a program that prepares itself. Users do not type it by accident.
pub(crate) const CONFINE_ARGUMENT: &str = "confine-a-sandbox";

/// The first argument of the inner process, which runs in the namespaces.
const CONFINE_INSIDE_ARGUMENT: &str = "confine-a-sandbox-inside";

/// The steps of a process before it executes another program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// The control groups that it enters.
    pub(crate) groups: Vec<ControlGroup>,
    /// Mount point of the hierarchy in which another program has put it into a group of its own.
    /// `None` if none has.
    pub(crate) scope_mount_point: Option<PathBuf>,
    /// Resource limits, if there are no control groups.
    pub(crate) limits: Option<Limits>,
    /// Environment variables to remove.
    pub(crate) removed_variables: Vec<String>,
    /// The isolation by `bwrap`. `None` if another program isolates, or isolation is disabled.
    pub(crate) bubblewrap: Option<BubblewrapIsolation>,
    /// The confinement. `None` if another program isolates, or isolation is disabled.
    pub(crate) confinement: Option<Confinement>,
}

/// Isolation by `bwrap`, which applies the system call filters after its mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BubblewrapIsolation {
    pub(crate) program: PathBuf,
    /// Its arguments, except the program that it executes.
    pub(crate) arguments: Vec<OsString>,
    /// Whether the program has the host's network, and with it the host's abstract sockets.
    /// Landlock refuses those, from Linux 6.12 on.
    pub(crate) network: bool,
}

/// Resource limits of a process and its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Maximum private memory of each process, in bytes. The address space is not limited, because
    /// many programs reserve much more than they use.
    pub(crate) data_bytes: u64,
    /// Maximum number of processes and threads of its user, including those outside. Does not limit
    /// root.
    pub(crate) processes: u64,
}

/// The files and network that a confined process can access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// The content of its root, except its own `/dev` and `/proc`. A directory precedes its
    /// content.
    pub(crate) mounts: Vec<Mount>,
    /// Whether it uses the host's network. Otherwise it has only its own loopback interface.
    pub(crate) network: bool,
}

/// The result of a confinement, for probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfinementReport {
    /// The used version of Landlock.
    pub(crate) landlock_abi: i32,
}

/// An error of the confinement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfineError {
    #[error("cannot read the preparation")]
    Preparation(#[source] io::Error),
    #[error("cannot pass on the preparation")]
    PassOn(#[source] io::Error),
    #[error("cannot enter the control group through {}", .0.display())]
    Group(PathBuf, #[source] io::Error),
    #[error("cannot set resource limits")]
    Limits(#[source] io::Error),
    #[error("cannot drop privileges")]
    Privileges(#[source] io::Error),
    #[error("cannot {operation}")]
    Landlock {
        operation: &'static str,
        #[source]
        source: landlock::RulesetError,
    },
    #[error(
        "the kernel's Landlock cannot prevent the truncation of files: at least Linux 6.2 is required"
    )]
    OldLandlock,
    #[error("cannot {operation}")]
    Namespaces {
        operation: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot filter system calls: {0}")]
    SystemCalls(String),
    #[error("cannot execute {}", .0.display())]
    Execute(PathBuf, #[source] io::Error),
    #[error("cannot print the result")]
    Report(#[source] io::Error),
}

impl Preparation {
    /// Returns the start of the launcher's standard input. The input of the program follows.
    pub(crate) fn to_input(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        Ok([&length.to_be_bytes()[..], &json].concat())
    }

    /// Reads from standard input without a buffer, because the rest belongs to the program.
    fn read_from_stdin() -> io::Result<Self> {
        let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut length = [0; 4];
        stdin.read_exact(&mut length)?;
        let mut json = Vec::new();
        stdin
            .take(u32::from_be_bytes(length).into())
            .read_to_end(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

/// Executes the requested program if this process was started to confine itself, or returns its
/// exit code if that fails. Does nothing and returns `None` in any other process. Must be called
/// first, while there is only one thread.
pub fn confine_if_requested() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let argument = arguments.next()?;
    let result = match argument.to_str()? {
        CONFINE_ARGUMENT => confine(arguments),
        CONFINE_INSIDE_ARGUMENT => confine_inside(arguments),
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "{}", engine::errors::format_chain(&error));
        ExitCode::FAILURE
    }))
}

/// Confines this process. Without a program it only prints the result.
fn confine(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, ConfineError> {
    close_inherited_descriptors();
    let preparation = Preparation::read_from_stdin().map_err(ConfineError::Preparation)?;
    let Preparation {
        mut groups,
        scope_mount_point,
        limits,
        removed_variables,
        bubblewrap,
        confinement,
    } = preparation;
    for group in &groups {
        group.enter()?;
    }
    let scope = scope_mount_point
        .as_deref()
        .map(|mount_point| ControlGroup::of_process("self", mount_point));
    groups.extend(scope.transpose()?);
    if let Some(limits) = limits {
        set_limits(limits).map_err(|error| ConfineError::Limits(error.into()))?;
    }
    let mut program = match (&confinement, &bubblewrap) {
        (Some(confinement), _) => enter_namespaces(confinement, &groups)?,
        (None, Some(bubblewrap)) => bubblewrap_command(bubblewrap, &groups)?,
        (None, None) => match arguments.next() {
            Some(program) => Command::new(program),
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    for variable in removed_variables {
        program.env_remove(variable);
    }
    program.args(arguments);
    if confinement.is_none() {
        return Err(execute(program));
    }
    let status = program.status();
    let status =
        status.map_err(|error| ConfineError::Execute(program.get_program().into(), error))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Closes all files except the standard streams. The host program may have inherited open files.
fn close_inherited_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let open: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The descriptor of the directory itself is already closed.
        let _ = nix::unistd::close(descriptor);
    }
}

/// Enters the namespaces. Returns the command of the inner process, which the program and its
/// arguments follow.
fn enter_namespaces(
    confinement: &Confinement,
    groups: &[ControlGroup],
) -> Result<Command, ConfineError> {
    namespaces::enter(confinement.network)?;
    let mut command = Command::new("/proc/self/exe");
    let mounts: Vec<_> = confinement
        .mounts
        .iter()
        .cloned()
        .chain(groups.iter().map(ControlGroup::mount))
        .collect();
    let mounts = serde_json::to_vec(&mounts).map_err(io::Error::from);
    let mounts = mounts
        .and_then(|mounts| inherited_file(&mounts))
        .map_err(ConfineError::PassOn)?;
    command.arg(CONFINE_INSIDE_ARGUMENT).arg(mounts.to_string());
    Ok(command)
}

/// Returns the command of `bwrap`, which the program and its arguments follow.
fn bubblewrap_command(
    isolation: &BubblewrapIsolation,
    groups: &[ControlGroup],
) -> Result<Command, ConfineError> {
    let BubblewrapIsolation {
        program,
        arguments,
        network,
    } = isolation;
    if *network {
        set_no_new_privs(true).map_err(|error| ConfineError::Privileges(error.into()))?;
        files::refuse_abstract_sockets()?;
    }
    // Before the other mounts, after which the root is read-only.
    let groups = groups.iter().flat_map(ControlGroup::bubblewrap_arguments);
    let arguments = groups.chain(arguments.iter().map(OsString::as_os_str));
    let terminated = arguments.flat_map(|argument| [argument.as_bytes(), b"\0"]);
    let arguments =
        inherited_file(&terminated.collect::<Vec<_>>().concat()).map_err(ConfineError::PassOn)?;
    let mut command = Command::new(program);
    command.arg("--args").arg(arguments.to_string());
    for filter in system_calls::export()? {
        command.arg("--add-seccomp-fd").arg(filter.to_string());
    }
    command.arg("--");
    Ok(command)
}

/// Returns the descriptor of a file with this content, which the next program inherits.
fn inherited_file(content: &[u8]) -> io::Result<RawFd> {
    let mut file = File::from(memfd_create("glovebox", MemfdFlags::empty())?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into_raw_fd())
}

fn confine_inside(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, ConfineError> {
    let descriptor = arguments.next().unwrap_or_default();
    let mounts = std::fs::read(Path::new("/proc/self/fd").join(descriptor));
    let mounts: io::Result<Vec<Mount>> =
        mounts.and_then(|mounts| Ok(serde_json::from_slice(&mounts)?));
    let mounts = mounts.map_err(ConfineError::Preparation)?;
    close_inherited_descriptors();
    mounts::enter(&mounts)?;
    drop_privileges().map_err(|error| ConfineError::Privileges(error.into()))?;
    let confined = files::restrict(&mounts)?;
    system_calls::restrict()?;
    let Some(program) = arguments.next() else {
        let report = serde_json::to_vec(&confined).map_err(io::Error::other);
        let reported = report.and_then(|report| io::stdout().write_all(&report));
        return reported
            .map(|()| ExitCode::SUCCESS)
            .map_err(ConfineError::Report);
    };
    let mut program = Command::new(program);
    program.args(arguments);
    Err(execute(program))
}

fn execute(mut program: Command) -> ConfineError {
    let error = program.exec();
    ConfineError::Execute(program.get_program().into(), error)
}

/// Sets the limits. Limits that are already lower are kept.
fn set_limits(
    Limits {
        data_bytes,
        processes,
    }: Limits,
) -> rustix::io::Result<()> {
    for (resource, max) in [(Resource::Data, data_bytes), (Resource::Nproc, processes)] {
        let current = getrlimit(resource);
        let at_most = |limit: Option<u64>| Some(limit.map_or(max, |limit| limit.min(max)));
        setrlimit(
            resource,
            Rlimit {
                current: at_most(current.current),
                maximum: at_most(current.maximum),
            },
        )?;
    }
    Ok(())
}

/// Drops all capabilities. With `no_new_privs`, not even root's programs gain one.
fn drop_privileges() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}
