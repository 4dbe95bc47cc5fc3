//! System call filters of sandboxed processes. A refused call returns an error; the process
//! continues.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::{ConfineError, inherited_file};

/// Marks the x32 variant of a call on x86-64.
const X32_BIT: i64 = 0x4000_0000;

/// Calls with separate x32 numbers, including `execve` and `ptrace`. No program needs them.
#[cfg(target_arch = "x86_64")]
const X32_CALLS: std::ops::Range<i64> = 512..548;

/// Calls whose arguments are in memory, which a filter cannot read. If the kernel seems to lack
/// such a call, programs use the older one.
const UNREADABLE: [i64; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// Calls that change the machine, or use parts of the kernel that no build needs. Keyrings have no
/// namespace, so that a session's keyring would be the host's. io_uring would bypass these filters.
const NEVER: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

/// New namespaces, which expose parts of the kernel that unprivileged programs cannot use
/// otherwise.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Allowed socket families. Others are not needed for networking, are a frequent target of kernel
/// exploits, and some (`vsock`) ignore network namespaces.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// The set-user-ID and set-group-ID bits. The filter cannot recognize directories, so they cannot
/// have the bits either.
const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// Calls that set a mode, with the index of that argument.
const MODE_CALLS: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];

/// Calls that set a mode if their flags create a file, with the indexes of flags and mode.
const OPEN_CALLS: &[(i64, u8, u8)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];

/// Upper bound of one System V shared memory segment, in bytes. Segments outlive their processes
/// and would keep occupying memory. A sandbox can have 4,096 of them.
const MAX_SEGMENT_BYTES: u64 = 64 << 10;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the filters to this process and its children.
pub(super) fn restrict() -> Result<(), ConfineError> {
    for filter in filters()? {
        seccompiler::apply_filter(&filter)
            .map_err(|error| ConfineError::SystemCalls(error.to_string()))?;
    }
    Ok(())
}

/// Writes the filters to files for `bwrap`, which applies them after its mounts. The descriptors
/// are inherited by `bwrap`.
pub(super) fn export() -> Result<Vec<RawFd>, ConfineError> {
    let export = |filter: &BpfProgram| -> io::Result<RawFd> {
        let mut content = Vec::new();
        for instruction in filter {
            content.extend(instruction.code.to_ne_bytes());
            content.extend([instruction.jt, instruction.jf]);
            content.extend(instruction.k.to_ne_bytes());
        }
        inherited_file(&content)
    };
    let exported: io::Result<Vec<RawFd>> = filters()?.iter().map(export).collect();
    exported.map_err(|error| ConfineError::SystemCalls(error.to_string()))
}

fn filters() -> Result<[BpfProgram; 2], ConfineError> {
    let unreadable = UNREADABLE.map(|call| (call, Vec::new())).into();
    let unreadable = compile(unreadable, libc::ENOSYS);
    let refused = refused().and_then(|rules| compile(rules, libc::EPERM));
    let failed = |error: BackendError| ConfineError::SystemCalls(error.to_string());
    Ok([unreadable.map_err(failed)?, refused.map_err(failed)?])
}

fn compile(mut rules: Rules, errno: i32) -> Result<BpfProgram, BackendError> {
    if cfg!(target_arch = "x86_64") {
        let again: Vec<_> = rules
            .iter()
            .map(|(call, rules)| (call | X32_BIT, rules.clone()))
            .collect();
        rules.extend(again);
    }
    let refusal = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refusal,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

/// Returns the conditions under which each call is refused. An empty list refuses the call always.
fn refused() -> Result<Rules, BackendError> {
    let mut rules: Rules = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(X32_CALLS.map(|call| (call, Vec::new())));
    let namespaces = (0..i32::BITS)
        .map(|bit| 1 << bit)
        .filter(|bit| NAMESPACES & bit != 0);
    let namespaces =
        namespaces.map(|bit: i32| SeccompRule::new(vec![has_bits(0, bit.unsigned_abs())?]));
    rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    // TIOCSTI types into a terminal, and a shell would execute that.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX]
        .map(|request| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(
        libc::SYS_ioctl,
        typing.into_iter().collect::<Result<_, _>>()?,
    );
    let families = FAMILIES
        .iter()
        .map(|family| argument(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    rules.insert(
        libc::SYS_socket,
        vec![SeccompRule::new(families.collect::<Result<_, _>>()?)?],
    );
    let segment = SeccompCondition::new(
        1,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::Gt,
        MAX_SEGMENT_BYTES,
    )?;
    rules.insert(libc::SYS_shmget, vec![SeccompRule::new(vec![segment])?]);
    rules.extend(set_id()?);
    Ok(rules)
}

/// Returns the conditions for calls that would create a set-user-ID or set-group-ID file.
fn set_id() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for bit in SET_ID_BITS {
        for (call, mode) in MODE_CALLS {
            rules
                .entry(*call)
                .or_default()
                .push(SeccompRule::new(vec![has_bits(*mode, bit)?])?);
        }
        for (call, flags, mode) in OPEN_CALLS {
            for creating in [libc::O_CREAT, libc::O_TMPFILE] {
                let creates = has_bits(*flags, creating.unsigned_abs())?;
                let rule = SeccompRule::new(vec![creates, has_bits(*mode, bit)?])?;
                rules.entry(*call).or_default().push(rule);
            }
        }
    }
    Ok(rules)
}

fn has_bits(index: u8, bits: u32) -> Result<SeccompCondition, BackendError> {
    argument(index, SeccompCmpOp::MaskedEq(bits.into()), bits.into())
}

/// Compares the lower 32 bits of an argument. The kernel ignores the others.
fn argument(
    index: u8,
    comparison: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, comparison, value)
}
