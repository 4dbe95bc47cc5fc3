//! Prepares the process that calls it, which then becomes another program: it enters what bounds it, and where there is no
//! bubblewrap to keep it in, it confines itself.
//!
//! A host program that places local sandboxes calls [`confine_if_asked`] before anything else. The local backend starts
//! that very program again with a [`Preparation`] as its argument: it enters control groups or takes on limits; with a
//! [`Confinement`] it gives up its capabilities, lets Landlock bound what it can open and seccomp what it can ask the
//! kernel for; and it executes the action server, or what keeps that in, which inherits all of that as everything that it
//! starts does. It never gives anything back, and has one thread until then: what is put on covers no other.
//!
//! What this way does not give: processes of the host are seen (not their memory, files or environment), and on kernels
//! before 6.12 those of the same user can be signalled; so can terminals of the same user be opened. When memory runs out
//! the server is as likely a victim as what it runs: the kernel goes by size alone. A program of another architecture (32
//! bits) is ended by the kernel, as the filter cannot read its calls.

mod files;
mod system_calls;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use serde::{Deserialize, Serialize};

/// What a program is started with to confine itself; nothing that a user would type.
pub(crate) const CONFINE_ARGUMENT: &str = "confine-a-sandbox";

/// What a process does to itself before it becomes another program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// The files by which it enters control groups.
    pub(crate) groups: Vec<PathBuf>,
    /// What the kernel is to keep it to, where there are no groups.
    pub(crate) limits: Option<Limits>,
    /// Variables that the program is not to have.
    pub(crate) forgotten: Vec<String>,
    /// What it is to be kept in; nothing: something else does that, or nothing is to.
    pub(crate) confinement: Option<Confinement>,
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

/// What a process is to be kept in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Files and folders that cannot be read, with all that is beneath. They are absolute and have no links.
    pub(crate) hidden: Vec<PathBuf>,
    /// What is hidden's exception and can be read.
    pub(crate) readable: Vec<PathBuf>,
    /// What is hidden's exception and can be written too. Nothing hidden lies beneath.
    pub(crate) writable: Vec<PathBuf>,
    /// Whether sockets can reach anything.
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
    #[error("there is too much beside what is hidden: more than {0} files and folders")]
    TooManyRules(usize),
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
    if arguments.next()? != CONFINE_ARGUMENT {
        return None;
    }
    Some(match confine(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{}", crate::placement::chain(&error));
            ExitCode::FAILURE
        }
    })
}

/// Without a program it only says how far it came.
fn confine(mut arguments: impl Iterator<Item = OsString>) -> Result<(), ConfineError> {
    let preparation = arguments.next().unwrap_or_default();
    let Preparation { groups, limits, forgotten, confinement } =
        serde_json::from_slice(preparation.as_encoded_bytes()).map_err(ConfineError::Arguments)?;
    for group in groups {
        // Nobody's id: this process itself.
        std::fs::write(&group, "0").map_err(|error| ConfineError::Group(group, error))?;
    }
    if let Some(limits) = limits {
        take_on(limits).map_err(|error| ConfineError::Limits(error.into()))?;
    }
    let confined = confinement.as_ref().map(confine_to).transpose()?;
    let Some(program) = arguments.next() else {
        let said = serde_json::to_vec(&confined).map_err(io::Error::other);
        return said.and_then(|said| io::stdout().write_all(&said)).map_err(ConfineError::Say);
    };
    let mut program = Command::new(program);
    for variable in forgotten {
        program.env_remove(variable);
    }
    let error = program.args(arguments).exec();
    Err(ConfineError::Execute(program.get_program().into(), error))
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

fn confine_to(confinement: &Confinement) -> Result<Confined, ConfineError> {
    give_up_privileges().map_err(|error| ConfineError::Privileges(error.into()))?;
    let confined = files::restrict(confinement)?;
    system_calls::restrict(confinement.network)?;
    Ok(confined)
}

/// Without new privileges even root's programs get no capability that this process has not.
fn give_up_privileges() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}
