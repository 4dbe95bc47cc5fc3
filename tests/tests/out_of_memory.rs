//! A sandbox out of memory: the kernel kills the command and not the server, and the agent is
//! notified.

use engine::sandbox::{Sandbox, SandboxError, SandboxSpec};
use protocol::ObservationKind;
use protocol::observation::RunObservation;
use sandbox_local::IsolationKind;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, command, error, id, remove, run, spec};

/// Allocates memory until it is killed. Every image has this program.
const MEMORY_HOG: &str = "tail /dev/zero";

fn small(backend: &dyn Backend) -> SandboxSpec {
    let mut spec = spec(backend);
    spec.resources.memory_bytes = 64 << 20;
    spec
}

async fn observe(sandbox: &dyn Sandbox, number: u32, text: &str) -> RunObservation {
    let observation = sandbox
        .execute(&id(number), &command(text), &|_| {})
        .await
        .unwrap();
    match observation.kind {
        ObservationKind::Run(run) => run,
        other => panic!("{other:?}: {}", observation.content),
    }
}

/// Checks that a command reports the lack of memory and the next one does not. Returns the exit
/// code.
async fn assert_reported_once(sandbox: &dyn Sandbox, number: u32, text: &str) -> i64 {
    let metadata = observe(sandbox, number, text).await.metadata;
    assert!(metadata.out_of_memory, "{text}: {metadata:?}");
    assert!(metadata.suffix.contains("[Out of memory: "), "{metadata:?}");
    let next = observe(sandbox, number + 1, "sleep 0.1; cat file")
        .await
        .metadata;
    assert!(
        !next.out_of_memory && !next.suffix.contains("memory"),
        "{next:?}"
    );
    assert_eq!(next.exit_code, 0);
    metadata.exit_code
}

/// `oom_score_adj` of the shell, above the server's, so that the kernel kills the shell first.
const SHELL_SCORE: &str = "300";

async fn assert_server_survives(backend: &dyn Backend) {
    let sandbox = backend
        .provider()
        .create(&small(backend), &|_| {})
        .await
        .unwrap();
    run(&*sandbox, 1, "echo kept > file").await;
    let scores = "echo $(($(cat /proc/$$/oom_score_adj) - $(cat /proc/$PPID/oom_score_adj)))";
    let scores = run(&*sandbox, 2, scores).await;
    assert_eq!(
        scores.content.trim(),
        SHELL_SCORE,
        "the kernel prefers the shell to the server"
    );

    assert_eq!(assert_reported_once(&*sandbox, 10, MEMORY_HOG).await, 137);
    assert_eq!(
        assert_reported_once(&*sandbox, 20, &format!("{MEMORY_HOG} | cat")).await,
        0
    );
    assert_eq!(
        assert_reported_once(&*sandbox, 30, &format!("{MEMORY_HOG} & wait $!")).await,
        137
    );
    // A kill between two commands is reported by the next command that takes long enough.
    let left = format!(
        "{MEMORY_HOG} & victim=$!; (while kill -0 $victim; do sleep 0.1; done) 2>/dev/null; true"
    );
    assert_reported_once(&*sandbox, 40, &left).await;
    // The shell itself.
    assert_reported_once(&*sandbox, 50, "x=0123456789; while :; do x=$x$x; done").await;

    // A command that is killed by another process is not out of memory.
    let killed = observe(&*sandbox, 60, "sh -c 'kill -9 $$'").await.metadata;
    assert_eq!((killed.exit_code, killed.out_of_memory), (137, false));
    backend.provider().attach(sandbox.lease()).await.unwrap(); // fails if the server was restarted
    assert_eq!(run(&*sandbox, 70, "cat file").await.content.trim(), "kept");
    remove(backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_survives_out_of_memory_on_busybox() {
    if let Some(backend) = DockerBackend::busybox() {
        assert_server_survives(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_survives_out_of_memory_without_isolation() {
    if let Some(backend) = LocalBackend::new().unwrap().with_control_groups().await {
        assert_server_survives(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_survives_out_of_memory_in_bubblewrap() {
    let Some(backend) = LocalBackend::isolated(IsolationKind::Bubblewrap).await else {
        return;
    };
    if let Some(backend) = backend.with_control_groups().await {
        assert_server_survives(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_survives_out_of_memory_under_landlock() {
    let Some(backend) = LocalBackend::isolated(IsolationKind::Landlock).await else {
        return;
    };
    if let Some(backend) = backend.with_control_groups().await {
        assert_server_survives(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_survives_out_of_memory_on_debian() {
    if let Some(backend) = DockerBackend::debian() {
        assert_server_survives(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_names_out_of_memory_when_the_server_was_killed() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&small(&backend), &|_| {})
        .await
        .unwrap();
    // Only root in the sandbox can exchange its score with the server's.
    let text = format!(
        "echo 1000 > /proc/$PPID/oom_score_adj && echo 0 > /proc/$$/oom_score_adj && {MEMORY_HOG}"
    );
    let lost = error(sandbox.execute(&id(1), &command(&text), &|_| {}).await);
    assert!(
        matches!(&lost, SandboxError::Lost { detail } if detail.contains("out of memory")),
        "{lost}"
    );
    remove(&backend, sandbox).await;
}
