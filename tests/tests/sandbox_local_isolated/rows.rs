//! A test for each row of the table of what is isolated (`docs/security.md`): an attack from
//! inside, judged from outside.

use std::fs::Permissions;
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use engine::sandbox::{OutputChunk, Sandbox, SandboxProvider as _, Volume};
use protocol::sandbox_api::ProcessRequest;
use sandbox_local::{LocalConfig, LocalProvider};
use tempfile::TempDir;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{create_sandbox, remove, run, spec};

use super::{outside, outside_parent};
use crate::skip::{Requirement, skip};

/// Runs attempts, each a Python function, and prints those that succeeded.
const ATTEMPTS: &str = r#"
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)

def call(*arguments):
    """A system call by its number."""
    if libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) == -1:
        raise OSError(ctypes.get_errno(), 'refused')

def refused(name, function):
    """For calls whose arguments make no sense: they fail in any case, but not always because they are refused."""
    try:
        function()
        print('let through:', name)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            print('let through:', name, error)

def attempt(name, function):
    try:
        function()
        print('let through:', name)
    except OSError:
        pass
    except Exception as error:
        print('broken:', name, repr(error))
"#;

/// Runs attempts in the sandbox and returns the names of those that succeeded.
async fn successes(sandbox: &dyn Sandbox, number: u32, attempts: &str) -> Vec<String> {
    let script = Path::new(&sandbox.lease().working_dir).join(format!("attempts{number}.py"));
    std::fs::write(&script, format!("{ATTEMPTS}\n{attempts}\nprint('made')")).unwrap();
    let tried = run(sandbox, number, &format!("python3 {}", script.display())).await;
    let lines: Vec<&str> = tried.content.lines().map(str::trim).collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!(*last, "made", "{tried:?}");
    lines
        .iter()
        .map(|line| line.strip_prefix("let through: ").expect(line).to_owned())
        .collect()
}

const NONE: [String; 0] = [];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Creates a folder that every user may read, with a file of this user.
fn folder_in(parent: impl AsRef<Path>) -> TempDir {
    let folder = tempfile::tempdir_in(parent).unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join("file"), "canary-of-the-host").unwrap();
    folder
}

/// Creates unrelated folders of the host.
fn foreign_folders() -> Vec<TempDir> {
    let for_everyone = ["/tmp", "/var/tmp"].into_iter();
    let for_root = ["/opt", "/srv", "/mnt", "/var/lib", "/root", "/"]
        .into_iter()
        .filter(|_| is_root());
    let folders = for_everyone
        .chain(for_root)
        .filter(|parent| Path::new(parent).is_dir());
    folders
        .map(folder_in)
        .chain([folder_in(outside_parent())])
        .collect()
}

/// Returns the attributes that can change without the content.
fn attributes(path: &Path) -> (u32, u32, u32, i64, bool) {
    let found = std::fs::metadata(path).unwrap();
    let mut value = [0; 16];
    let has_attribute = rustix::fs::getxattr(path, "user.planted", &mut value).is_ok();
    (
        found.mode(),
        found.uid(),
        found.gid(),
        found.mtime(),
        has_attribute,
    )
}

pub(super) async fn attributes_outside_cannot_be_changed(backend: &LocalBackend) {
    // Visible files of the user: a tool in the home, and a read-only volume.
    let home = outside();
    let tool = home.path().join(".local/bin/tool");
    std::fs::create_dir_all(tool.parent().unwrap()).unwrap();
    std::fs::write(&tool, "#!/bin/sh\necho tool").unwrap();
    let shared = outside();
    let file = shared.path().join("file");
    std::fs::write(&file, "shared").unwrap();
    let mut config = backend.config(backend.server());
    config.environment.push(("HOME".into(), home.path().into()));
    let mut spec = spec(backend);
    let volume = |target: &str, read_only| {
        let source = shared.path().to_str().unwrap().to_owned();
        Volume {
            source,
            target: target.into(),
            read_only,
        }
    };
    spec.volumes = vec![volume("/shared", true)];
    let provider = LocalProvider::new(config);
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();

    let places = [tool.clone(), "/shared/file".into(), "/usr/bin/env".into()];
    let seen = run(
        &*sandbox,
        1,
        &format!("cat {} /shared/file", tool.display()),
    )
    .await;
    assert!(
        seen.content.contains("echo tool") && seen.content.contains("shared"),
        "{seen:?}"
    );
    let before = [
        attributes(&tool),
        attributes(&file),
        attributes(Path::new("/usr/bin/env")),
    ];
    let attempts = |path: &Path| {
        format!(
            "path = '{}'\n\
             fd = os.open(path, os.O_RDONLY)\n\
             for name, at in [('path', path), ('descriptor', fd), ('link', f'/proc/self/fd/{{fd}}')]:\n    \
                 attempt(f'chmod {{name}}', lambda: os.chmod(at, 0o666))\n    \
                 attempt(f'chown {{name}}', lambda: os.chown(at, -1, os.getgid()))\n    \
                 attempt(f'utime {{name}}', lambda: os.utime(at, (1, 1)))\n    \
                 attempt(f'setxattr {{name}}', lambda: os.setxattr(at, 'user.planted', b'x'))\n    \
                 attempt(f'truncate {{name}}', lambda: os.truncate(at, 0))\n\
             attempt('write', lambda: os.open(path, os.O_WRONLY))\n\
             attempt('unlink', lambda: os.unlink(path))\n\
             attempt('link', lambda: os.link(path, 'linked'))\n",
            path.display()
        )
    };
    let attempts: String = places.iter().map(|path| attempts(path)).collect();
    assert_eq!(successes(&*sandbox, 2, &attempts).await, NONE);
    let after = [
        attributes(&tool),
        attributes(&file),
        attributes(Path::new("/usr/bin/env")),
    ];
    assert_eq!(before, after);

    // In the workspace they can be changed, as tar, cp and pip need.
    let own = "echo x > own && chmod 750 own && touch -d @1000 own && cp -p own copy && tar cf a.tar copy && rm copy && \
               tar xf a.tar && stat -c '%a %Y' copy";
    assert_eq!(run(&*sandbox, 3, own).await.content.trim(), "750 1000");
    provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();

    spec.volumes = vec![volume("/shared", false)];
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
    assert_eq!(
        run(&*sandbox, 1, "echo written > /shared/file")
            .await
            .exit_code,
        0
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "written\n");
    provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
}

pub(super) async fn other_host_files_are_not_visible(backend: &LocalBackend) {
    let folders = foreign_folders();
    let sandbox = create_sandbox(backend).await;
    for (number, folder) in (1..).zip(&folders) {
        let path = folder.path().display();
        let seen = run(&*sandbox, number, &format!("cat {path}/file; ls {path}"))
            .await
            .content;
        assert!(
            !seen.contains("canary") && !seen.lines().any(|line| line.trim() == "file"),
            "{path}: {seen}"
        );
    }
    let seen = run(
        &*sandbox,
        50,
        "ls -A /home /root /opt /srv /mnt /media /boot /run /var/log 2>/dev/null",
    )
    .await;
    let entries = seen
        .content
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.trim().ends_with(':'));
    let state = backend.state_dir();
    let entries: Vec<&str> = entries
        .map(str::trim)
        .filter(|entry| !state.ends_with(entry))
        .collect();
    assert!(entries.is_empty(), "{entries:?}");
    let links = run(
        &*sandbox,
        51,
        "ls -A /proc/1/root/opt /proc/self/root/opt 2>/dev/null",
    )
    .await;
    assert_eq!(links.content.trim(), "");
    remove(backend, sandbox).await;
}

pub(super) async fn files_of_root_are_not_visible(backend: &LocalBackend) {
    if !is_root() {
        return skip(
            Requirement::Root,
            "an ordinary user has no private files outside of its home",
        );
    }
    let folder = folder_in("/etc");
    let secret = folder.path().join("secret");
    let write_secret = |path: &Path| {
        std::fs::write(path, "canary-of-root").unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    };
    write_secret(&secret);
    let sandbox = create_sandbox(backend).await;
    let path = folder.path().display();
    let seen = run(&*sandbox, 1, &format!("cat {path}/file {path}/secret"))
        .await
        .content;
    assert!(
        seen.contains("canary-of-the-host") && !seen.contains("canary-of-root"),
        "{seen}"
    );
    // Replaced like `passwd` replaces it, which removes a mount on the old file.
    let newer = folder.path().join("newer");
    write_secret(&newer);
    std::fs::rename(&newer, &secret).unwrap();
    let seen = run(
        &*sandbox,
        2,
        &format!("cat {path}/secret; ls {path}; cat /etc/shadow /etc/gshadow"),
    )
    .await;
    assert!(
        !seen.content.contains("canary-of-root") && !seen.content.contains("root:"),
        "{seen:?}"
    );
    let attempts = "
for name in os.listdir('/proc'):
    path = f'/proc/{name}'
    if not name.isdigit() and not os.path.islink(path) and os.path.isfile(path):
        attempt(f'write {path}', lambda: os.open(path, os.O_WRONLY))
        if not os.stat(path).st_mode & 0o004:
            attempt(f'read {path}', lambda: os.open(path, os.O_RDONLY))
for path in ('/proc/kcore', '/proc/kmsg', '/proc/keys'):
    attempt(f'read {path}', lambda: os.open(path, os.O_RDONLY))
";
    assert_eq!(successes(&*sandbox, 3, attempts).await, NONE);
    remove(backend, sandbox).await;
}

pub(super) async fn host_sockets_are_not_reachable(backend: &LocalBackend) {
    let folders = foreign_folders();
    let listen = |folder: &TempDir| {
        tokio::net::UnixListener::bind(folder.path().join("engine.sock")).unwrap()
    };
    let _listeners: Vec<_> = folders.iter().map(listen).collect();
    for network in [false, true] {
        let config = LocalConfig {
            network,
            ..backend.config(backend.server())
        };
        let sandbox = LocalProvider::new(config)
            .create(&spec(backend), &|_| {})
            .await
            .unwrap();
        let attempts = folders.iter().map(|folder| {
            let path = folder.path().join("engine.sock");
            format!(
                "attempt('{0}', lambda: socket.socket(socket.AF_UNIX).connect('{0}'))\n",
                path.display()
            )
        });
        assert_eq!(
            successes(&*sandbox, 1, &attempts.collect::<String>()).await,
            NONE,
            "network: {network}"
        );
        remove(backend, sandbox).await;
    }
}

pub(super) async fn abstract_sockets_are_not_reachable(backend: &LocalBackend) {
    use std::os::linux::net::SocketAddrExt as _;
    let name = backend.state_dir().display().to_string(); // unique
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    for network in [false, true]
        .into_iter()
        .filter(|network| !network || kernel_version() >= (6, 12))
    {
        let config = LocalConfig {
            network,
            ..backend.config(backend.server())
        };
        let sandbox = LocalProvider::new(config)
            .create(&spec(backend), &|_| {})
            .await
            .unwrap();
        let attempts = format!(
            "attempt('stream', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))\n\
             attempt('datagram', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0{name}'))\n"
        );
        assert_eq!(
            successes(&*sandbox, 1, &attempts).await,
            NONE,
            "network: {network}"
        );
        remove(backend, sandbox).await;
    }
}

fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

pub(super) async fn sandbox_has_its_own_loopback(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let own = "python3 -c \"import socket; l = socket.create_server(('127.0.0.1', 0)); \
               socket.create_connection(l.getsockname()); print('conn' + 'ected')\"; ls /sys/class/net 2>/dev/null; \
               tail -n +3 /proc/net/dev | cut -d: -f1";
    let said = run(&*sandbox, 1, own).await.content;
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["connected", "lo"]);
    remove(backend, sandbox).await;
}

/// A process of the host, killed on drop.
struct HostProcess(std::process::Child);

impl HostProcess {
    fn start() -> Self {
        Self(
            Command::new("sleep")
                .arg("1000")
                .stdin(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Returns its nice value, processors and limits.
    fn state(&mut self) -> [String; 3] {
        assert_eq!(self.0.try_wait().unwrap(), None, "it was killed");
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap();
        let nice = read("stat")
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .nth(16)
            .unwrap()
            .to_owned();
        let affinity = read("status")
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"))
            .unwrap()
            .to_owned();
        [nice, affinity, read("limits")]
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

pub(super) async fn foreign_processes_cannot_be_changed(backend: &LocalBackend) {
    let mut bystander = HostProcess::start();
    let before = bystander.state();
    let sandbox = create_sandbox(backend).await;
    let attempts = format!(
        "import resource, signal\n\
         pid = {}\n\
         attempt('prlimit', lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))\n\
         attempt('read limits', lambda: resource.prlimit(pid, resource.RLIMIT_CPU))\n\
         attempt('setpriority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n\
         attempt('affinity', lambda: os.sched_setaffinity(pid, [0]))\n\
         attempt('scheduler', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))\n\
         attempt('ioprio', lambda: call(251, 1, pid, 3 << 13))\n\
         attempt('signal', lambda: os.kill(pid, signal.SIGTERM))\n\
         attempt('queued signal', lambda: call(129, pid, 15, ctypes.create_string_buffer(128)))\n\
         attempt('pidfd', lambda: os.pidfd_open(pid))\n\
         attempt('memory', lambda: open(f'/proc/{{pid}}/mem'))\n\
         attempt('environment', lambda: open(f'/proc/{{pid}}/environ'))\n\
         attempt('ptrace', lambda: call(101, 16, pid, 0, 0))\n\
         attempt('adjust', lambda: open(f'/proc/{{pid}}/oom_score_adj', 'w'))\n\
         attempt('group', lambda: os.setpgid(pid, pid))\n\
         attempt('migrate', lambda: call(256, pid, 1, 0, 0))\n",
        bystander.0.id(),
    );
    assert_eq!(successes(&*sandbox, 1, &attempts).await, NONE);
    // All processes of the user.
    run(
        &*sandbox,
        2,
        "renice -n 19 -u $(id -u) >/dev/null 2>&1; kill -0 -1",
    )
    .await;
    assert_eq!(bystander.state(), before);
    let seen = run(
        &*sandbox,
        3,
        "cat /proc/[0-9]*/comm | sort -u | tr '\\n' ' '; grep -l 1000 /proc/[0-9]*/cmdline",
    )
    .await;
    assert!(!seen.content.contains("sleep"), "{seen:?}");
    remove(backend, sandbox).await;
}

pub(super) async fn keys_and_ipc_objects_are_isolated(backend: &LocalBackend) {
    let made = Command::new("ipcmk")
        .args(["--shmem", "4096", "--mode", "0666"])
        .output()
        .unwrap();
    let output = String::from_utf8(made.stdout).unwrap();
    let id: u32 = output.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let sandbox = create_sandbox(backend).await;
    let attempts = format!(
        "attempt('add a key', lambda: call(248, b'user', b'planted', b'x', 1, -3))\n\
         attempt('request a key', lambda: call(249, b'user', b'planted', None, 0))\n\
         attempt('read the session keyring', lambda: call(250, 11, -3, ctypes.create_string_buffer(64), 64))\n\
         attempt('read the user keyring', lambda: call(250, 11, -4, ctypes.create_string_buffer(64), 64))\n\
         attempt('list keys', lambda: open('/proc/keys').read())\n\
         attempt('attach shared memory', lambda: call(30, {id}, 0, 0))\n\
         attempt('remove shared memory', lambda: call(31, {id}, 0, 0))\n"
    );
    let found = successes(&*sandbox, 1, &attempts).await;
    let removed = Command::new("ipcrm")
        .args(["--shmem-id", &id.to_string()])
        .status()
        .unwrap();
    assert_eq!(found, NONE);
    assert!(removed.success(), "the sandbox removed it");
    remove(backend, sandbox).await;
}

pub(super) async fn set_id_files_cannot_be_created(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let attempts = "
os.umask(0)
open('own', 'w').close()
fd = os.open('own', os.O_RDWR)
here = os.open('.', os.O_RDONLY)
for bits in (0o4755, 0o2755, 0o6777):
    attempt(f'chmod {bits:o}', lambda: os.chmod('own', bits))
    attempt(f'fchmod {bits:o}', lambda: os.fchmod(fd, bits))
    attempt(f'fchmodat {bits:o}', lambda: os.chmod('own', bits, dir_fd=here))
    attempt(f'fchmodat2 {bits:o}', lambda: call(452, here, b'own', bits, 0))
    attempt(f'open {bits:o}', lambda: call(2, b'new1', os.O_CREAT | os.O_RDWR, bits))
    attempt(f'openat {bits:o}', lambda: os.open('new2', os.O_CREAT | os.O_RDWR, bits))
    attempt(f'nameless {bits:o}', lambda: os.open('.', os.O_TMPFILE | os.O_RDWR, bits))
    attempt(f'creat {bits:o}', lambda: call(85, b'new3', bits))
    attempt(f'mknod {bits:o}', lambda: os.mknod('new4', 0o100000 | bits))
    attempt(f'mknod at {bits:o}', lambda: os.mknod('new5', 0o100000 | bits, dir_fd=here))
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_RDWR, bits, 0)
    attempt(f'openat2 {bits:o}', lambda: call(437, here, b'new6', how, 24))
    attempt(f'x32 {bits:o}', lambda: call(0x40000000 | 90, b'own', bits))
os.chmod('own', 0o755)
";
    assert_eq!(successes(&*sandbox, 1, attempts).await, NONE);
    run(
        &*sandbox,
        2,
        "cp /bin/sh shell; install -m 4755 shell lent; cp -p /usr/bin/passwd passwd",
    )
    .await;
    let found = Command::new("find")
        .arg(&sandbox.lease().working_dir)
        .args(["-perm", "/6000"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "");
    remove(backend, sandbox).await;
}

pub(super) async fn persistent_memory_is_bounded(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let size = run(
        &*sandbox,
        1,
        "df --block-size=1M --output=size /dev/shm | tail -n 1",
    )
    .await;
    assert_eq!(size.content.trim(), "64");
    let attempts = "
attempt('a large segment', lambda: call(29, 0, 1 << 20, 0o1600))
for path in ('/file', '/dev/file', '/dev/pts/file', '/run/file', '/var/file', '/etc/file', '/usr/file', '/proc/file'):
    attempt(path, lambda: open(path, 'w'))
";
    assert_eq!(successes(&*sandbox, 2, attempts).await, NONE);
    let small = "python3 -c \"import ctypes; print(ctypes.CDLL(None).syscall(29, 0, 4096, 0o1600) >= 0)\"; \
                 echo shared > /dev/shm/file && cat /dev/shm/file; mount | grep -c ' (rw'";
    let said = run(&*sandbox, 3, small).await.content;
    assert!(said.contains("True") && said.contains("shared"), "{said}");
    remove(backend, sandbox).await;
}

pub(super) async fn dangerous_system_calls_are_refused(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let attempts = "
import fcntl, termios
for name, number in [('mount', 165), ('umount2', 166), ('pivot_root', 155), ('chroot', 161), ('unshare', 272), ('setns', 308),
                     ('open_tree', 428), ('fsopen', 430), ('bpf', 321), ('perf_event_open', 298), ('userfaultfd', 323),
                     ('io_uring_setup', 425), ('open_by_handle_at', 304), ('kexec_load', 246), ('init_module', 175),
                     ('fanotify_init', 300), ('clone3', 435), ('syslog', 103), ('settimeofday', 164)]:
    refused(name, lambda: call(number, 0, 0, 0, 0, 0))
for number in (520, 521, 528):
    try:
        call(0x40000000 | number, 0, 0, 0, 0, 0)
    except OSError as error:
        # A kernel without x32 lacks them; a filter refuses them first.
        assert error.errno == errno.EPERM, error
for flag in ('NEWUSER', 'NEWNS', 'NEWNET'):
    number = {'NEWUSER': 0x10000000, 'NEWNS': 0x20000, 'NEWNET': 0x40000000}[flag]
    attempt(flag, lambda: call(272, number))
    attempt(f'clone {flag}', lambda: call(56, number | 17, 0, 0, 0, 0))
attempt('TIOCSTI', lambda: fcntl.ioctl(0, termios.TIOCSTI, b'x'))
attempt('vsock', lambda: socket.socket(socket.AF_VSOCK))
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt('alg', lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
attempt('device', lambda: os.mknod('device', 0o60666, os.makedev(254, 0)))
attempt('disk', lambda: [open(f'/dev/{name}') for name in ('sda', 'vda', 'nvme0n1', 'mem', 'kmsg', 'fuse', 'kvm')])
attempt('core pattern', lambda: open('/proc/sys/kernel/core_pattern', 'w'))
attempt('sysrq', lambda: open('/proc/sysrq-trigger', 'w'))
attempt('capability', lambda: os.setxattr('attempts1.py', 'security.capability', b'\\1\\0\\0\\2' + bytes(16)))
";
    assert_eq!(successes(&*sandbox, 1, attempts).await, NONE);
    remove(backend, sandbox).await;
}

pub(super) async fn descriptors_of_the_host_are_not_inherited(backend: &LocalBackend) {
    let folder = folder_in(outside_parent());
    let flags = rustix::fs::OFlags::RDONLY;
    let opened =
        rustix::fs::open(folder.path().join("file"), flags, rustix::fs::Mode::empty()).unwrap();
    let number = opened.into_raw_fd();
    let sandbox = create_sandbox(backend).await;
    let search = format!("cat <&{number}; for each in /proc/[0-9]*/fd/*; do readlink $each; done");
    let seen = run(&*sandbox, 1, &format!("({search}) 2>/dev/null"))
        .await
        .content;
    // A program without a terminal is started differently.
    let request = ProcessRequest::new(["sh", "-c", &format!("exec 2>&1; {search}")]);
    let output = std::sync::Mutex::new(Vec::new());
    let on_output = |_, chunk: OutputChunk<'_>| match chunk {
        OutputChunk::Bytes { bytes, .. } => output.lock().unwrap().extend_from_slice(bytes),
        other => panic!("{other:?}"),
    };
    sandbox
        .processes()
        .unwrap()
        .exec(&"search".parse().unwrap(), &request, None, &on_output)
        .await
        .unwrap();
    let seen = seen + &String::from_utf8(output.into_inner().unwrap()).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    assert!(!seen.contains("canary") && !seen.contains(&path), "{seen}");
    remove(backend, sandbox).await;
}

/// A sandbox with the home as its workspace may have created a link out of it.
pub(super) async fn tools_outside_the_home_are_not_visible(backend: &LocalBackend) {
    let (home, elsewhere) = (outside(), folder_in(outside_parent()));
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join(".pyenv")).unwrap();
    let mut config = backend.config(backend.server());
    config.environment.push(("HOME".into(), home.path().into()));
    let sandbox = LocalProvider::new(config)
        .create(&spec(backend), &|_| {})
        .await
        .unwrap();
    let seen = run(
        &*sandbox,
        1,
        &format!("cat ~/.pyenv/file {}/file", elsewhere.path().display()),
    )
    .await;
    assert!(!seen.content.contains("canary"), "{seen:?}");
    remove(backend, sandbox).await;
}
