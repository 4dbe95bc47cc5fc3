//! Restarts of the engine while sandboxes run: every action has one terminal event, and nothing is
//! left.

use std::time::{Duration, Instant};

use engine::sandbox::SandboxError;
use rustix::process::Signal;
use tests::own_engine::OwnEngine;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{
    Backend as _, CommandResult, OutputRecorder, command, command_result, create_sandbox, id,
    remove, run,
};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Prints lines for eight seconds.
const LINES: &str =
    "echo ran >> counter; i=0; while [ $i -lt 80 ]; do i=$((i+1)); echo line $i; sleep 0.1; done";

/// Runs a command during which the engine is stopped with `signal` and restarted.
async fn restarted_in_mid_command(live_restore: bool, signal: Signal) {
    let Some(shared) = DockerBackend::busybox() else {
        return;
    };
    let image = shared.image().unwrap();
    let Some(own) = spawn_blocking(move || OwnEngine::start(live_restore))
        .await
        .unwrap()
    else {
        return;
    };
    own.copy_image(&image);
    let backend = shared.with_host(own.host());
    let sandbox = create_sandbox(&backend).await;
    run(&*sandbox, 1, "color=green").await;

    let (output, action, request) = (OutputRecorder::default(), id(2), command(LINES));
    let listener = output.listener();
    let restart = async {
        output.wait_for("line 10").await;
        spawn_blocking(move || {
            let mut own = own;
            own.end(signal);
            own.restart();
            (own, Instant::now())
        })
        .await
        .unwrap()
    };
    let both = async { tokio::join!(sandbox.execute(&action, &request, &listener), restart) };
    let (ended, (own, back)) = timeout(Duration::from_secs(100), both)
        .await
        .expect("the action ends");
    eprintln!(
        "ended {:?} after the engine was back: {ended:?}",
        back.elapsed()
    );
    if live_restore {
        let ran: CommandResult = command_result(ended.unwrap(), &output);
        let text = String::from_utf8_lossy(&ran.streamed).replace("\r\n", "\n");
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("line "))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            lines,
            (1..=80)
                .map(|number| format!("line {number}"))
                .collect::<Vec<_>>()
        );
        assert_eq!(ran.exit_code, 0);
        let after = run(&*sandbox, 3, "cat counter; echo $color").await.content;
        assert_eq!(after.trim().replace("\r\n", "\n"), "ran\ngreen");
    } else {
        match ended {
            // A server that was terminated still reports the completion of its actions.
            Ok(observation) if signal == Signal::TERM => {
                assert_eq!(command_result(observation, &output).exit_code, 137);
            }
            ended => assert!(matches!(ended, Err(SandboxError::Lost { .. })), "{ended:?}"),
        }
        assert!(
            back.elapsed() < Duration::from_secs(5),
            "{:?}",
            back.elapsed()
        );
        let next = sandbox.execute(&id(3), &command("true"), &|_| {}).await;
        assert!(matches!(next, Err(SandboxError::Lost { .. })), "{next:?}");
        let listed = backend.provider().list().await.unwrap();
        assert_eq!(listed.len(), 1, "a sweep finds the sandbox: {listed:?}");
    }
    remove(&backend, sandbox).await;
    spawn_blocking(move || assert_eq!(own.containers(), ""))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn action_continues_when_engine_restarts_with_live_restore() {
    restarted_in_mid_command(true, Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn action_continues_when_engine_is_killed_with_live_restore() {
    restarted_in_mid_command(true, Signal::KILL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn action_ends_once_when_engine_stops_its_containers() {
    restarted_in_mid_command(false, Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn action_ends_once_when_a_killed_engine_restarts() {
    restarted_in_mid_command(false, Signal::KILL).await;
}
