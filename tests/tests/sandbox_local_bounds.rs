//! Limits of local sandboxes: with each isolation, without isolation, and without control groups.

use engine::sandbox::{ResourceLimits, SandboxProvider, SandboxSpec};
use protocol::ObservationKind;
use sandbox_local::{IsolationKind, LocalConfig, LocalProvider};
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, command, id, remove, run, spec};

fn small(backend: &LocalBackend) -> SandboxSpec {
    let resources = ResourceLimits {
        memory_bytes: 128 << 20,
        cpus: 0.25,
        pids: 64,
        ..ResourceLimits::default()
    };
    SandboxSpec {
        resources,
        ..spec(backend)
    }
}

/// Starts 200 processes, more than the limit.
const BOMB: &str = "sh -c 'i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done'; echo ended with $?; \
                    n=0; for p in /proc/[0-9]*; do read -r name 2>&- <$p/comm && [ \"$name\" = sleep ] && n=$((n+1)); \
                    done; echo \"$n sleep\"";

async fn assert_limits_apply(backend: LocalBackend) {
    let Some(backend) = backend.with_control_groups().await else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&small(&backend), &|_| {})
        .await
        .unwrap();
    let bomb = run(&*sandbox, 1, BOMB).await.content;
    assert!(
        bomb.contains("ork") && !bomb.contains("ended with 0"),
        "{bomb}"
    );

    let busy = "TIMEFORMAT=%U; time timeout 2 sh -c 'while :; do :; done'";
    let seconds: f64 = run(&*sandbox, 2, busy)
        .await
        .content
        .trim()
        .lines()
        .last()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        seconds < 1.0,
        "more than a quarter of a processor for two seconds: {seconds}"
    );
    // The sandbox can neither change its limits nor leave its control group.
    if backend.is_isolated() {
        let groups = backend.groups(&sandbox.lease().sandbox_id);
        for (number, group) in (10..).zip(groups) {
            let path = group.display();
            let above = group.parent().unwrap().parent().unwrap().display();
            let tried = format!(
                "cat {path}/cgroup.procs >&2; echo max > {path}/pids.max; echo $$ > {above}/cgroup.procs"
            );
            assert_ne!(run(&*sandbox, number, &tried).await.exit_code, 0);
        }
        // Its own groups are where programs look for them, read-only.
        let own = "cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes; cat pids.max pids/pids.max; \
                   echo max > pids.max; echo max > pids/pids.max; cat pids.max pids/pids.max";
        let own = run(&*sandbox, 19, own).await.content;
        let numbers: Vec<_> = own
            .lines()
            .filter(|line| line.parse::<u64>().is_ok())
            .collect();
        assert_eq!(numbers, ["134217728", "64", "64"], "{own}");
        assert!(run(&*sandbox, 20, BOMB).await.content.contains("ork"));
    }
    remove(&backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_apply_without_isolation() {
    assert_limits_apply(LocalBackend::new().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_apply_in_bubblewrap() {
    if let Some(backend) = LocalBackend::isolated(IsolationKind::Bubblewrap).await {
        assert_limits_apply(backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_apply_under_landlock() {
    if let Some(backend) = LocalBackend::isolated(IsolationKind::Landlock).await {
        assert_limits_apply(backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaned_process_ends_with_its_control_group() {
    let Some(backend) = LocalBackend::new().unwrap().with_control_groups().await else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&small(&backend), &|_| {})
        .await
        .unwrap();
    let leave = "(cd /; env -i /usr/bin/setsid -f /bin/sleep 1043 <&- >&- 2>&-); sleep 0.2; cat /proc/self/cgroup";
    run(&*sandbox, 1, leave).await;
    remove(&backend, sandbox).await;
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert_ne!(
            arguments,
            b"/bin/sleep\x001043\0",
            "{}",
            process.path().display()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_apply_per_process_without_control_groups() {
    let backend = LocalBackend::new().unwrap();
    let config = LocalConfig {
        control_groups: "/nowhere".into(),
        ..backend.config(backend.server())
    };
    let provider = LocalProvider::new(config);
    let bounds = provider.backend().bounds().await.unwrap().to_string();
    assert!(
        bounds.starts_with("memory of each process") && !bounds.contains('\n'),
        "{bounds}"
    );
    let spec = small(&backend);
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
    let observed = sandbox
        .execute(&id(1), &command("tail /dev/zero"), &|_| {})
        .await
        .unwrap();
    let ObservationKind::Run(ran) = observed.kind else {
        panic!("{observed:?}")
    };
    assert!(
        ran.metadata.exit_code == 1 && !ran.metadata.out_of_memory,
        "{ran:?}: {}",
        observed.content
    );
    assert_eq!(
        run(&*sandbox, 2, "ulimit -d").await.content.trim(),
        (128 << 10).to_string()
    );
    if !rustix::process::geteuid().is_root() {
        assert!(run(&*sandbox, 3, BOMB).await.content.contains("ork"));
    }
    remove(&backend, sandbox).await;
}
