//! What a confined process may not ask the kernel for. It is answered as if it were not permitted, never ended for it.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::ConfineError;

/// Added to a number of a call on x86-64 it names the same call once more.
const X32_BIT: i64 = 0x4000_0000;

/// Looks into other processes, changes what the machine is, or speaks to parts of the kernel that no build needs; io_uring
/// does by another way what is refused here.
const NEVER: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
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

/// New namespaces: what they hold is open only to programs that made one.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Sockets of other families are not needed to reach a network; those are where the kernel is attacked.
const NETWORK_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// What a socket's type is asked with beside the type.
const TYPE_MASK: u64 = 0xf;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Puts the filters on this process and what it starts.
pub(super) fn restrict(network: bool) -> Result<(), ConfineError> {
    // Its arguments lie in memory, where no filter sees them. Told that there is no such call, programs use the older one.
    let unseen = || program(Rules::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS);
    let refused = || program(refused(network)?, libc::EPERM);
    for made in [unseen(), refused()] {
        let program = made.map_err(|error| ConfineError::SystemCalls(error.to_string()))?;
        seccompiler::apply_filter(&program).map_err(|error| ConfineError::SystemCalls(error.to_string()))?;
    }
    Ok(())
}

fn program(mut rules: Rules, errno: i32) -> Result<BpfProgram, BackendError> {
    if cfg!(target_arch = "x86_64") {
        let again: Vec<_> = rules.iter().map(|(call, rules)| (call | X32_BIT, rules.clone())).collect();
        rules.extend(again);
    }
    let refusal = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Of each call the cases that are refused; none: all.
fn refused(network: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    let mut namespaces = Vec::new();
    for bit in (0..i32::BITS).map(|bit| 1 << bit).filter(|bit| NAMESPACES & bit != 0) {
        let bit = u64::from(i32::unsigned_abs(bit));
        namespaces.push(SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(bit), bit)?])?);
    }
    rules.insert(libc::SYS_clone, namespaces);
    // What is typed into a terminal that way is run by whoever reads from it.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX]
        .map(|request| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socket, if network { families(&NETWORK_FAMILIES)? } else { unconnected()? });
    if !network {
        rules.insert(libc::SYS_socketpair, unconnected()?);
        // A path to a socket is no file that Landlock knows: what an engine or a session's bus listens on would be open.
        rules.insert(libc::SYS_connect, Vec::new());
    }
    Ok(rules)
}

/// Everything but sockets of these families.
fn families(allowed: &[i32]) -> Result<Vec<SeccompRule>, BackendError> {
    let others = allowed.iter().map(|family| argument(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    Ok(vec![SeccompRule::new(others.collect::<Result<_, _>>()?)?])
}

/// Everything but unix sockets that must be connected before they carry anything.
fn unconnected() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = families(&[libc::AF_UNIX])?;
    let datagrams = SeccompCmpOp::MaskedEq(TYPE_MASK);
    rules.push(SeccompRule::new(vec![argument(1, datagrams, u64::from(libc::SOCK_DGRAM.unsigned_abs()))?])?);
    // Another name for datagrams.
    let raw = SeccompCmpOp::MaskedEq(TYPE_MASK);
    rules.push(SeccompRule::new(vec![argument(1, raw, u64::from(libc::SOCK_RAW.unsigned_abs()))?])?);
    Ok(rules)
}

/// All of these arguments have 32 bits that count.
fn argument(index: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, comparison, value)
}
