//! The contract of sandboxes on the local backend with each isolation, and tests of the isolation.

mod rows;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::sandbox::{SandboxError, SandboxProvider};
use sandbox_local::{Isolation, IsolationChoice, IsolationKind, LocalConfig, LocalProvider};
use tempfile::TempDir;
use tests::glovebox;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, create_sandbox, error, remove, run, spec};
use tokio::net::{TcpListener, UnixListener};

use crate::skip::{LIST_VARIABLE, Requirement, skip, skip_without};
use rows::{
    abstract_sockets_are_not_reachable, attributes_outside_cannot_be_changed,
    dangerous_system_calls_are_refused, descriptors_of_the_host_are_not_inherited,
    files_of_root_are_not_visible, foreign_processes_cannot_be_changed,
    host_sockets_are_not_reachable, keys_and_ipc_objects_are_isolated,
    other_host_files_are_not_visible, persistent_memory_is_bounded, sandbox_has_its_own_loopback,
    set_id_files_cannot_be_created, tools_outside_the_home_are_not_visible,
};

/// User id without an account.
const ORDINARY_USER: u32 = 54_322;

macro_rules! isolated {
    ($module:ident, $kind:expr; $($case:ident,)*; $($attack:ident,)*) => {
        mod $module {
            use super::{IsolationKind, LocalBackend, skip_without};

            tests::sandbox_contract!(LocalBackend::isolated($kind).await);

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some(backend) = LocalBackend::isolated($kind).await {
                    super::$case(&backend).await;
                }
            })*

            // The attacks are Python scripts.
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $attack() {
                if skip_without("python3") {
                    return;
                }
                if let Some(backend) = LocalBackend::isolated($kind).await {
                    super::$attack(&backend).await;
                }
            })*
        }
    };
    ($($module:ident: $kind:expr,)*) => {
        $(isolated!($module, $kind;
            files_outside_the_workspace_are_read_only,
            state_folder_and_other_processes_are_hidden,
            user_workspace_is_used,
            nothing_is_reachable_without_a_network,
            requested_network_is_reachable,
            sandbox_has_no_privileges_and_gains_none,
            sandbox_has_a_terminal_and_its_own_folders,
            posix_shells_work,
            signal_ignoring_program_ends_with_the_sandbox,
            other_host_files_are_not_visible,
            tools_outside_the_home_are_not_visible,
            descriptors_of_the_host_are_not_inherited,
            command_lines_are_short,
            control_groups_of_others_are_not_visible,
            ;
            attributes_outside_cannot_be_changed,
            files_of_root_are_not_visible,
            host_sockets_are_not_reachable,
            abstract_sockets_are_not_reachable,
            sandbox_has_its_own_loopback,
            foreign_processes_cannot_be_changed,
            keys_and_ipc_objects_are_isolated,
            set_id_files_cannot_be_created,
            persistent_memory_is_bounded,
            dangerous_system_calls_are_refused,
        );)*
    };
}

isolated!(bubblewrap: IsolationKind::Bubblewrap, landlock: IsolationKind::Landlock,);

/// Creates a folder next to this program: outside of every workspace, and not visible in sandboxes.
fn outside() -> TempDir {
    tempfile::tempdir_in(outside_parent()).unwrap()
}

fn outside_parent() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

async fn files_outside_the_workspace_are_read_only(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let folders = [outside(), tempfile::tempdir_in("/tmp").unwrap()];
    for (number, folder) in folders.iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        std::fs::write(folder.path().join("file"), "kept").unwrap();
        let path = folder.path().display();
        let attempts = format!(
            "touch {path}/new; echo x > {path}/file; rm -rf {path}/file; mv {path}/file {path}/moved; \
             truncate -s 0 {path}/file; chmod 777 {path}; ln {path}/file ./link; mkdir {path}/folder"
        );
        run(&*sandbox, number, &attempts).await;
        let left: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["file"]);
        assert_eq!(
            std::fs::read_to_string(folder.path().join("file")).unwrap(),
            "kept"
        );
    }
    assert_eq!(
        run(&*sandbox, 10, "grep -c ^root: /etc/passwd")
            .await
            .content
            .trim(),
        "1"
    );
    let own = run(
        &*sandbox,
        11,
        "mkdir a b && echo moved > a/file && mv a/file b/file && cat b/file",
    )
    .await;
    assert_eq!(own.content.trim(), "moved");
    remove(backend, sandbox).await;
}

async fn state_folder_and_other_processes_are_hidden(backend: &LocalBackend) {
    let state = backend.state_dir();
    std::fs::write(state.join("secret"), "canary-of-the-host").unwrap();
    let named = outside();
    std::fs::write(named.path().join("secret"), "canary-of-the-host").unwrap();
    let config = LocalConfig {
        hidden: vec![named.path().into()],
        ..backend.config(backend.server())
    };
    let provider = LocalProvider::new(config);
    let [other, sandbox] = [spec(backend), spec(backend)].map(|spec| async {
        let spec = spec;
        provider.create(&spec, &|_| {}).await.unwrap()
    });
    let (other, sandbox) = (other.await, sandbox.await);
    run(&*other, 1, "echo canary-of-another > file; touch ~/mine").await;
    let search = format!(
        "cat {0}/secret {1}/secret {2}/file {0}/sandboxes/*/server.json /proc/{3}/environ; \
         ls {0} {0}/sandboxes/ {1}; cat {0}/sandboxes/*/log; touch {0}/sandboxes/new ../server.json ../log; \
         cp /proc/{3}/root{0}/secret stolen",
        state.display(),
        named.path().display(),
        other.lease().working_dir,
        std::process::id(),
    );
    let found = run(&*sandbox, 1, &format!("({search}) 2>/dev/null; ls"))
        .await
        .content;
    for canary in ["canary", "CARGO", "secret", "stolen", "server.json"] {
        assert!(!found.contains(canary), "{canary}: {found}");
    }
    let written = std::fs::read_dir(state.join("sandboxes")).unwrap().count();
    assert_eq!(written, 2, "only the files of two sandboxes");
    remove(backend, other).await;
    remove(backend, sandbox).await;
}

/// All users of the host see command lines.
async fn command_lines_are_short(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let folder = backend
        .state_dir()
        .join("sandboxes")
        .join(sandbox.lease().sandbox_id.as_str());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines: Vec<_> = lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .collect();
    let own: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(folder.to_str().unwrap()))
        .collect();
    assert!(
        own.len() >= 3,
        "the isolator, the supervisor and the server: {own:?}"
    );
    assert!(
        own.iter()
            .all(|line| line.len() < 700 && !line.contains("/usr/lib")),
        "{own:?}"
    );
    remove(backend, sandbox).await;
}

/// Names and the load of other sandboxes must not be visible.
async fn control_groups_of_others_are_not_visible(backend: &LocalBackend) {
    let (other, sandbox) = (create_sandbox(backend).await, create_sandbox(backend).await);
    let search = "find /sys/fs/cgroup -type d; cat /proc/self/mountinfo | grep cgroup; cat /proc/[0-9]*/cgroup";
    let found = run(&*sandbox, 1, search).await.content;
    assert!(found.contains(":/"), "{found}");
    for lease in [other.lease(), sandbox.lease()] {
        let conversation = lease.sandbox_id.as_str().trim_start_matches("glovebox-");
        let groups = backend.groups(&lease.sandbox_id);
        let names = groups
            .iter()
            .map(|group| group.file_name().unwrap().to_str().unwrap());
        for name in names.chain([conversation, "glovebox"]) {
            assert!(!found.contains(name), "{name}: {found}");
        }
    }
    // In every hierarchy, all processes are in the root group of the namespace.
    let groups = run(&*sandbox, 2, "cat /proc/[0-9]*/cgroup").await.content;
    assert!(groups.lines().all(|line| line.ends_with(":/")), "{groups}");
    remove(backend, other).await;
    remove(backend, sandbox).await;
}

async fn user_workspace_is_used(backend: &LocalBackend) {
    let workspace = tempfile::tempdir().unwrap();
    let mut spec = spec(backend);
    spec.workspace = Some(workspace.path().into());
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    run(&*sandbox, 1, "echo kept > file").await;
    remove(backend, sandbox).await;
    assert_eq!(
        std::fs::read_to_string(workspace.path().join("file")).unwrap(),
        "kept\n"
    );

    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(workspace.path(), Some(ORDINARY_USER), None).unwrap();
        let failed = error(backend.provider().create(&spec, &|_| {}).await).to_string();
        assert!(failed.contains(&ORDINARY_USER.to_string()), "{failed}");
    }
}

/// Returns a script that connects to a port. The address is split, so that the shell's command line
/// does not contain it.
fn connect(port: u16) -> String {
    format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reach''ed")
}

async fn nothing_is_reachable_without_a_network(backend: &LocalBackend) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sandbox = create_sandbox(backend).await;
    let tried = run(
        &*sandbox,
        1,
        &connect(listener.local_addr().unwrap().port()),
    )
    .await;
    assert!(
        tried.exit_code != 0 && !tried.content.contains("reached"),
        "{tried:?}"
    );

    // A socket with a path is reached through the file system and not the network, such as an
    // engine's.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let path = folder.path().join("engine.sock");
    let engine = UnixListener::bind(&path).unwrap();
    let server = backend.server().path().await.unwrap();
    let dial = format!(
        "{} dial --socket {} < /dev/null",
        server.display(),
        path.display()
    );
    let tried = run(&*sandbox, 2, &dial).await;
    assert_ne!(tried.exit_code, 0, "{tried:?}");
    assert!(
        Command::new(&server)
            .arg("dial")
            .arg("--socket")
            .arg(&path)
            .stdin(Stdio::null())
            .spawn()
            .is_ok()
    );
    engine.accept().await.unwrap();
    remove(backend, sandbox).await;
}

async fn requested_network_is_reachable(backend: &LocalBackend) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = LocalConfig {
        network: true,
        ..backend.config(backend.server())
    };
    let sandbox = LocalProvider::new(config)
        .create(&spec(backend), &|_| {})
        .await
        .unwrap();
    let tried = run(
        &*sandbox,
        1,
        &connect(listener.local_addr().unwrap().port()),
    )
    .await;
    assert_eq!((tried.exit_code, tried.content.trim()), (0, "reached"));
    remove(backend, sandbox).await;
}

async fn sandbox_has_no_privileges_and_gains_none(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let status = run(
        &*sandbox,
        1,
        "grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status",
    )
    .await;
    let values: Vec<&str> = status
        .content
        .split_whitespace()
        .skip(1)
        .step_by(2)
        .collect();
    assert_eq!(values, ["0000000000000000", "0000000000000000", "1"]);
    // Writes the same value back, so that nothing changes if it succeeds.
    let settings = "for each in kernel/core_pattern vm/swappiness; do \
                    cat /proc/sys/$each > old && cat old > /proc/sys/$each && echo writ''ten; done 2>/dev/null";
    let written = run(&*sandbox, 2, settings).await;
    assert!(!written.content.contains("written"), "{written:?}");
    for (number, forbidden) in [
        (3, "unshare --user true"),
        (4, "mount -t tmpfs none /mnt"),
        (5, "cat /etc/shadow"),
    ] {
        let tried = run(&*sandbox, number, forbidden).await;
        let is_empty = forbidden.contains("shadow") && !tried.content.contains(':');
        assert!(tried.exit_code != 0 || is_empty, "{forbidden}: {tried:?}");
    }
    let signal = run(
        &*sandbox,
        6,
        &format!("kill -0 {} 2>/dev/null", std::process::id()),
    )
    .await;
    assert_ne!(signal.exit_code, 0);
    remove(backend, sandbox).await;
}

async fn sandbox_has_a_terminal_and_its_own_folders(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    let terminal = run(&*sandbox, 1, "[ -t 0 ] && stty size && tty").await;
    assert!(terminal.content.contains("/dev/pts/"), "{terminal:?}");
    let jobs = run(
        &*sandbox,
        2,
        "sleep 1042 & jobs; kill -KILL %1; wait %1; echo end''ed",
    )
    .await;
    assert!(
        jobs.content.contains("Running") && jobs.content.contains("ended"),
        "{jobs:?}"
    );
    let substitution = run(
        &*sandbox,
        3,
        "cat <(echo process) /dev/null; echo to > /dev/stderr",
    )
    .await;
    assert!(substitution.content.contains("process"), "{substitution:?}");
    let places = run(
        &*sandbox,
        4,
        "touch ~/mine $TMPDIR/mine && mktemp > made && cat $(cat made) && echo o''k",
    )
    .await;
    assert_eq!(places.content.trim(), "ok");
    let home = run(&*sandbox, 5, "cd && pwd").await;
    assert!(
        Path::new(home.content.trim()).starts_with(backend.state_dir()),
        "{home:?}"
    );
    remove(backend, sandbox).await;
}

async fn posix_shells_work(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    for (number, program, shell) in [
        (1, "sh", "sh"),
        (2, "dash", "dash"),
        (3, "busybox", "busybox sh"),
    ] {
        if skip_without(program) {
            continue;
        }
        let output = run(
            &*sandbox,
            number,
            &format!("{shell} -c 'cd / && echo $((6*7)) | cat'"),
        )
        .await;
        assert_eq!(output.content.trim(), "42", "{shell}: {output:?}");
    }
    remove(backend, sandbox).await;
}

async fn signal_ignoring_program_ends_with_the_sandbox(backend: &LocalBackend) {
    let sandbox = create_sandbox(backend).await;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let seconds = 100 * std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed); // unique, to find this `sleep`
    let deaf = format!(
        "(trap '' TERM INT HUP; setsid sleep {seconds} </dev/null >/dev/null 2>&1 &); echo o''k"
    );
    assert_eq!(run(&*sandbox, 1, &deaf).await.content.trim(), "ok");
    let runs = || {
        let mut lines = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.path().join("cmdline"));
        let line = format!("sleep\0{seconds}\0");
        lines.any(|path| std::fs::read(path).is_ok_and(|found| found == line.as_bytes()))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !runs() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    remove(backend, sandbox).await;
    assert!(!runs());
}

/// The sandbox's shell is a POSIX shell where bash is not visible.
#[tokio::test]
async fn sandbox_shell_is_posix_when_bash_is_hidden() {
    let Some(backend) = LocalBackend::isolated(IsolationKind::Bubblewrap).await else {
        return;
    };
    let hidden = ["/bin/bash", "/usr/bin/bash"].map(PathBuf::from).into();
    let config = LocalConfig {
        hidden,
        ..backend.config(backend.server())
    };
    let sandbox = LocalProvider::new(config)
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    let output = run(&*sandbox, 1, "echo \"bash:$BASH_VERSION\"; tty")
        .await
        .content;
    assert!(
        output.starts_with("bash:\r\n") || output.starts_with("bash:\n"),
        "{output:?}"
    );
    assert!(output.contains("/dev/pts/"), "{output:?}");
    remove(&backend, sandbox).await;
}

/// A workspace that contains the state folder shows everything else.
#[tokio::test]
async fn state_folder_is_hidden_when_the_workspace_contains_it() {
    for kind in [IsolationKind::Bubblewrap, IsolationKind::Landlock] {
        let Some(backend) = LocalBackend::isolated(kind).await else {
            continue;
        };
        let home = tempfile::Builder::new()
            .prefix("gb")
            .tempdir_in("/tmp")
            .unwrap();
        let state_dir = home.path().join("st");
        std::fs::create_dir(&state_dir).unwrap();
        std::fs::write(state_dir.join("secret"), "canary").unwrap();
        std::fs::write(home.path().join("config.toml"), "canary").unwrap();
        let hidden = vec![home.path().join("config.toml")];
        let config = LocalConfig {
            state_dir: state_dir.clone(),
            hidden,
            ..backend.config(backend.server())
        };
        let provider = LocalProvider::new(config);
        let mut spec = spec(&backend);
        spec.workspace = Some(home.path().into());
        let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
        let attempts = "cat st/secret config.toml; echo x > st/secret; echo x > config.toml; rm -rf st config.toml; \
                        mv st other; mv config.toml other; touch new; ls";
        let seen = run(&*sandbox, 1, attempts).await;
        assert!(
            !seen.content.contains("canary") && seen.content.contains("new"),
            "{seen:?}"
        );
        assert_eq!(
            std::fs::read_to_string(state_dir.join("secret")).unwrap(),
            "canary"
        );
        assert_eq!(
            std::fs::read_to_string(home.path().join("config.toml")).unwrap(),
            "canary"
        );
        provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
    }
}

#[tokio::test]
async fn start_is_refused_without_isolation_unless_requested() {
    let provider = |isolation, launcher: &str| {
        let backend = LocalBackend::of(isolation);
        let config = backend.config(backend.server());
        LocalProvider::new(LocalConfig {
            bubblewrap: vec!["/nowhere/bwrap".into()],
            launcher: launcher.into(),
            ..config
        })
    };
    let chosen = [
        IsolationChoice::Probe,
        IsolationChoice::Only(IsolationKind::Bubblewrap),
        IsolationChoice::Only(IsolationKind::Landlock),
    ];
    for isolation in chosen {
        let backend = LocalBackend::of(isolation);
        let provider = provider(isolation, "/bin/true");
        let failed = error(provider.create(&spec(&backend), &|_| {}).await);
        assert!(
            matches!(
                failed,
                SandboxError::RuntimeUnavailable {
                    runtime: "local",
                    ..
                }
            ),
            "{failed}"
        );
        let text = failed.to_string();
        assert!(
            text.contains("install bubblewrap") && text.contains("--unsafe-local"),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
    }
    assert_eq!(
        provider(IsolationChoice::Unsafe, "/bin/true")
            .backend()
            .isolation()
            .await
            .unwrap(),
        Isolation::None
    );
}

/// Neither bubblewrap nor this program can mount anything there, as on systems that restrict user
/// namespaces.
#[test]
fn start_is_refused_when_no_namespace_can_be_created() {
    if !rustix::process::geteuid().is_root() {
        return skip(
            Requirement::Root,
            "only root can set the maximum number of namespaces",
        );
    }
    if skip_without("unshare") || skip_without("setpriv") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(glovebox::binary());
    command
        .args(["exec", "--runtime", "local", "--", "true"])
        .env("HOME", home.path())
        .current_dir(&home);
    let refused = command.output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{text}");
    assert!(
        text.contains("cannot unshare namespaces") && text.contains("--unsafe-local"),
        "{text}"
    );
}

#[tokio::test]
async fn strongest_available_isolation_is_selected() {
    if let Some(backend) = LocalBackend::isolated(IsolationKind::Bubblewrap).await {
        let config = LocalConfig {
            isolation: IsolationChoice::Probe,
            ..backend.config(backend.server())
        };
        let provider = LocalProvider::new(config);
        assert!(matches!(
            provider.backend().isolation().await.unwrap(),
            Isolation::Bubblewrap { .. }
        ));
    }
    if let Some(backend) = LocalBackend::isolated(IsolationKind::Landlock).await {
        let config = backend.config(backend.server());
        let config = LocalConfig {
            isolation: IsolationChoice::Probe,
            bubblewrap: Vec::new(),
            ..config
        };
        let provider = LocalProvider::new(config);
        assert!(matches!(
            provider.backend().isolation().await.unwrap(),
            Isolation::Landlock { abi: 3.. }
        ));
    }
}

/// Tests that need root.
const TESTS_OF_ROOT: [&str; 3] = [
    "files_of_root_are_not_visible",
    "start_is_refused_when_no_namespace_can_be_created",
    "isolation_holds_for_an_ordinary_user",
];

/// Root repeats the tests as an ordinary user, because no isolation needs privileges.
#[test]
fn isolation_holds_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return skip(Requirement::Root, "only root can run tests as another user");
    }
    if skip_without("setpriv") {
        return;
    }
    let folder = tempfile::Builder::new()
        .prefix("gb")
        .tempdir_in("/tmp")
        .unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // Only root may read the build folder.
    let [program, launcher] = [
        std::env::current_exe().unwrap(),
        glovebox::binary().to_owned(),
    ]
    .map(|built| {
        let copy = folder.path().join(built.file_name().unwrap());
        std::fs::copy(&built, &copy).unwrap();
        copy
    });
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    std::os::unix::fs::chown(&scratch, Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
    let own = scratch.join(program.file_name().unwrap());
    std::fs::rename(program, &own).unwrap();
    let user = ORDINARY_USER.to_string();
    let mut tests = Command::new("setpriv");
    tests
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .arg(own);
    tests
        .args(["sandbox_local_isolated::", "--test-threads", "2"])
        .current_dir("/");
    for test in TESTS_OF_ROOT {
        tests.args(["--skip", test]);
    }
    // The user cannot write to the list of this run.
    let skipped = scratch.join("skipped");
    tests
        .env("GLOVEBOX_TEST_BINARY", launcher)
        .env(LIST_VARIABLE, &skipped);
    let output = tests.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("test result: ok") && !text.contains(" 0 passed"),
        "{text}"
    );
    let skipped = std::fs::read_to_string(skipped).unwrap_or_default();
    for needed in [Requirement::Bubblewrap, Requirement::Landlock] {
        if skipped
            .lines()
            .any(|line| line.starts_with(&format!("{needed}\t")))
        {
            skip(needed, "unavailable to an ordinary user");
        }
    }
}
