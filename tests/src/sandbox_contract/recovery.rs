//! Cases for recovery: repeated requests, reattachment and lost servers.

use std::time::{Duration, Instant};

use engine::sandbox::SandboxError;
use tokio::time::timeout;

use super::{
    Backend, OutputRecorder, command, command_result, create_sandbox, error, id, remove, run,
};

/// A repeated id attaches: the command runs once, and each request receives its output.
pub async fn repeated_action_runs_once(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    for _ in 0..3 {
        let ran = run(&*sandbox, 1, "echo once >> counter; echo co''unted").await;
        assert!(String::from_utf8_lossy(&ran.streamed).contains("counted"));
    }
    assert_eq!(
        run(&*sandbox, 2, "cat counter").await.content.trim(),
        "once"
    );
    remove(backend, sandbox).await;
}

/// The client is dropped while a command runs. A new one receives its complete output and its
/// result.
pub async fn restarted_host_attaches_to_a_running_action(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let lease = sandbox.lease().clone();
    let request = command("echo bef''ore; while [ ! -e go ]; do sleep 0.1; done; echo aft''er");
    {
        let (output, first) = (OutputRecorder::default(), id(1));
        let listener = output.listener();
        tokio::select! {
            ended = sandbox.execute(&first, &request, &listener) => panic!("ended too early: {ended:?}"),
            () = output.wait_for("before") => {}
        }
    }
    drop(sandbox);

    let sandbox = backend.provider().attach(&lease).await.unwrap();
    assert_eq!(*sandbox.lease(), lease);
    let (output, first) = (OutputRecorder::default(), id(1));
    let listener = output.listener();
    let write = protocol::sandbox_api::ActionRequest::new(
        protocol::sandbox_api::SandboxAction::Write(protocol::action::WriteAction {
            path: format!("{}/go", lease.working_dir),
            content: String::new(),
            start: 0,
            end: -1,
            thought: String::new(),
            security_risk: protocol::SecurityRisk::default(),
        }),
        None,
    );
    let (ended, ()) = tokio::join!(sandbox.execute(&first, &request, &listener), async {
        output.wait_for("before").await;
        sandbox.execute(&id(2), &write, &|_| {}).await.unwrap();
    });
    let ran = command_result(ended.unwrap(), &output);
    assert_eq!(ran.exit_code, 0);
    assert!(String::from_utf8_lossy(&ran.streamed).contains("after"));

    let other = protocol::record::SandboxLeased {
        boot_id: "another-life".parse().unwrap(),
        ..lease
    };
    assert!(matches!(
        error(backend.provider().attach(&other).await),
        SandboxError::Lost { .. }
    ));
    remove(backend, sandbox).await;
}

/// The server is killed: the pending call fails, and later ones fail too.
pub async fn killed_server_is_lost_within_five_seconds(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let (output, first) = (OutputRecorder::default(), id(1));
    // The shell's parent is the server.
    let request = command("echo star''ted; sleep 0.2; kill -9 $PPID; sleep 1042");
    let listener = output.listener();
    let watch = async {
        output.wait_for("started").await;
        Instant::now()
    };
    let waited = timeout(Duration::from_secs(15), async {
        tokio::join!(sandbox.execute(&first, &request, &listener), watch)
    });
    let (ended, started) = waited.await.expect("a lost sandbox is noticed");
    assert!(matches!(error(ended), SandboxError::Lost { .. }));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert!(matches!(
        error(sandbox.check_connection().await),
        SandboxError::Lost { .. }
    ));
    assert!(matches!(
        error(backend.provider().attach(sandbox.lease()).await),
        SandboxError::Lost { .. }
    ));
    remove(backend, sandbox).await;
}
