//! Prepares the process that calls it, which then becomes another program: it enters control groups or takes on limits, and
//! where there is no bubblewrap it isolates itself.
//!
//! A host program that places local sandboxes calls [`confine_if_asked`] before anything else. The local backend starts
//! that very program again with a [`Preparation`] as its argument. With a [`Confinement`] in it there are two processes: the
//! outer one enters namespaces ([`namespaces`]) and waits; the inner one, the first in them, builds a root from parts of the
//! host's ([`mounts`]), drops its capabilities, and applies Landlock ([`files`]) and seccomp ([`system_calls`]). It then
//! executes the action server, which inherits all of that as everything that it starts does. Nothing is ever given back, and
//! the process has one thread until then: a restriction covers no other thread.
//!
//! Without a mount namespace there is no such confinement. Landlock and seccomp alone let a process change modes, owners,
//! times and attributes of every file of its user, and limits and priorities of the user's other processes.
//!
//! A program of another architecture (32 bits) is killed by the kernel, as the filter cannot read its calls.

mod files;
mod mounts;
mod namespaces;
mod system_calls;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use mounts::{Content, Mount, SHARED_MEMORY_BYTES};

/// What a program is started with to prepare itself; nothing that a user would type.
pub(crate) const CONFINE_ARGUMENT: &str = "confine-a-sandbox";

/// What the inner process is started with, in its namespaces.
const CONFINE_INSIDE_ARGUMENT: &str = "confine-a-sandbox-inside";

/// What a process does to itself before it becomes another program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// The files by which it enters control groups.
    pub(crate) groups: Vec<PathBuf>,
    /// What the kernel is to keep it to, where there are no groups.
    pub(crate) limits: Option<Limits>,
    /// Variables that the program is not to have.
    pub(crate) forgotten: Vec<String>,
    /// What `bwrap` does not do, if that is the program.
    pub(crate) bubblewrap: Option<AroundBubblewrap>,
    /// What to confine the program to; `None` if something else does that, or nothing is to.
    pub(crate) confinement: Option<Confinement>,
}

/// What isolates a program besides `bwrap`, which applies the filters of system calls when it has made its mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AroundBubblewrap {
    /// Whether the program has the host's network, and with it the host's abstract sockets. Landlock refuses those, from
    /// Linux 6.12 on.
    pub(crate) network: bool,
}

/// What the kernel keeps a process and what comes of it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Memory of its own that each process may have, in bytes. Not its address space: many programs take much more of that
    /// than they use.
    pub(crate) data_bytes: u64,
    /// Processes and threads that its user may have, those outside too. Root may have more.
    pub(crate) processes: u64,
}

/// What a process is confined to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// All that it sees besides its own `/dev` and `/proc`. A directory stands before what lies in it.
    pub(crate) mounts: Vec<Mount>,
    /// Whether it has the host's network. Without, it has a loopback interface of its own.
    pub(crate) network: bool,
}

/// What came of it, for whoever only wants to know whether it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confined {
    /// The version of the kernel's Landlock, as far as it is used.
    pub(crate) landlock_abi: i32,
}

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfineError {
    #[error("reading what to confine to")]
    Arguments(#[source] serde_json::Error),
    #[error("entering the control group by {}", .0.display())]
    Group(PathBuf, #[source] io::Error),
    #[error("taking on limits")]
    Limits(#[source] io::Error),
    #[error("giving up privileges")]
    Privileges(#[source] io::Error),
    #[error("{doing}")]
    Landlock {
        doing: &'static str,
        #[source]
        source: landlock::RulesetError,
    },
    #[error("the kernel's Landlock cannot keep files from being truncated: Linux 6.2 can")]
    OldLandlock,
    #[error("{doing}")]
    Namespaces {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("filtering system calls: {0}")]
    SystemCalls(String),
    #[error("executing {}", .0.display())]
    Execute(PathBuf, #[source] io::Error),
    #[error("saying what came of it")]
    Say(#[source] io::Error),
}

/// When this process was started to confine itself, becomes the program that it was told, or ends with the code that is
/// returned. Nothing is done, and nothing returned, in any other process. To be called first of all, while there is one
/// thread.
pub fn confine_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let argument = arguments.next()?;
    let ended = match argument.to_str()? {
        CONFINE_ARGUMENT => confine(arguments),
        CONFINE_INSIDE_ARGUMENT => confine_inside(arguments),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "{}", crate::placement::chain(&error));
        ExitCode::FAILURE
    }))
}

/// Without a program it only says how far it came.
fn confine(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, ConfineError> {
    close_inherited_descriptors();
    let Preparation { groups, limits, forgotten, bubblewrap, confinement } = read(&mut arguments)?;
    for group in groups {
        // Nobody's id: this process itself.
        std::fs::write(&group, "0").map_err(|error| ConfineError::Group(group, error))?;
    }
    if let Some(limits) = limits {
        take_on(limits).map_err(|error| ConfineError::Limits(error.into()))?;
    }
    let mut program = match &confinement {
        Some(confinement) => inside(confinement)?,
        None => match arguments.next() {
            Some(program) => Command::new(program),
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    if let Some(AroundBubblewrap { network }) = bubblewrap {
        if network {
            set_no_new_privs(true).map_err(|error| ConfineError::Privileges(error.into()))?;
            files::refuse_abstract_sockets()?;
        }
        for filter in system_calls::export()? {
            program.arg("--add-seccomp-fd").arg(filter.to_string());
        }
    }
    for variable in forgotten {
        program.env_remove(variable);
    }
    program.args(arguments);
    if confinement.is_none() {
        return Err(execute(program));
    }
    let ended = program.status();
    let ended = ended.map_err(|error| ConfineError::Execute(program.get_program().into(), error))?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Closes everything but the standard streams. What started the host program may have left files open in it.
fn close_inherited_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The one of the listing is closed already.
        let _ = nix::unistd::close(descriptor);
    }
}

/// Enters the namespaces. The command is the inner process.
fn inside(confinement: &Confinement) -> Result<Command, ConfineError> {
    namespaces::enter(confinement.network)?;
    let mut command = Command::new("/proc/self/exe");
    let mounts = serde_json::to_string(&confinement.mounts).map_err(ConfineError::Arguments)?;
    command.arg(CONFINE_INSIDE_ARGUMENT).arg(mounts);
    Ok(command)
}

fn confine_inside(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, ConfineError> {
    let mounts: Vec<Mount> = read(&mut arguments)?;
    mounts::enter(&mounts)?;
    drop_privileges().map_err(|error| ConfineError::Privileges(error.into()))?;
    let confined = files::restrict(&mounts)?;
    system_calls::restrict()?;
    let Some(program) = arguments.next() else {
        let report = serde_json::to_vec(&confined).map_err(io::Error::other);
        let reported = report.and_then(|report| io::stdout().write_all(&report));
        return reported.map(|()| ExitCode::SUCCESS).map_err(ConfineError::Say);
    };
    let mut program = Command::new(program);
    program.args(arguments);
    Err(execute(program))
}

fn read<T: DeserializeOwned>(arguments: &mut impl Iterator<Item = OsString>) -> Result<T, ConfineError> {
    let argument = arguments.next().unwrap_or_default();
    serde_json::from_slice(argument.as_encoded_bytes()).map_err(ConfineError::Arguments)
}

fn execute(mut program: Command) -> ConfineError {
    let error = program.exec();
    ConfineError::Execute(program.get_program().into(), error)
}

/// Those that are lower already stay.
fn take_on(Limits { data_bytes, processes }: Limits) -> rustix::io::Result<()> {
    for (resource, most) in [(Resource::Data, data_bytes), (Resource::Nproc, processes)] {
        let now = getrlimit(resource);
        let at_most = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        setrlimit(resource, Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) })?;
    }
    Ok(())
}

/// Without new privileges even root's programs get no capability that this process has not.
fn drop_privileges() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}
