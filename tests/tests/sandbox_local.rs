//! The contract of sandboxes on the local backend, and its own features.

use std::future::ready;
use std::time::Instant;

use engine::sandbox::sweep;
use sandbox_client::ServerBinary;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, error, remove, run, spec};

tests::sandbox_contract!(LocalBackend::new());
tests::sandbox_faults!(LocalBackend::new());

#[tokio::test]
async fn user_workspace_is_used_and_never_removed() {
    let backend = LocalBackend::new().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let mut spec = spec(&backend);
    spec.workspace = Some(workspace.path().into());
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    run(&*sandbox, 1, "echo kept > file").await;
    remove(&backend, sandbox).await;
    assert_eq!(
        std::fs::read_to_string(workspace.path().join("file")).unwrap(),
        "kept\n"
    );

    spec.workspace = Some(workspace.path().join("missing"));
    let failed = error(backend.provider().create(&spec, &|_| {}).await).to_string();
    assert!(failed.contains("missing"), "{failed}");
}

#[tokio::test]
async fn sweep_removes_only_unused_sandboxes() {
    let backend = LocalBackend::new().unwrap();
    let provider = backend.local_provider(ServerBinary::from_file("/nowhere"));
    let [kept, left] = [spec(&backend), spec(&backend)];
    let kept_sandbox = backend.provider().create(&kept, &|_| {}).await.unwrap();
    let left_sandbox = backend.provider().create(&left, &|_| {}).await.unwrap();
    let swept = sweep(&provider, |summary| {
        ready(summary.conversation.as_ref() == Some(&kept.conversation))
    })
    .await
    .unwrap();
    assert_eq!(swept, [left_sandbox.lease().sandbox_id.clone()]);
    assert_eq!(backend.remains(&swept[0]).await, Vec::<String>::new());
    assert_eq!(run(&*kept_sandbox, 1, "true").await.exit_code, 0);
    remove(&backend, kept_sandbox).await;
}

/// `cargo test -p tests -- --ignored --nocapture start_time`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: meaningless on a busy machine"]
async fn start_time_is_short() {
    let backend = LocalBackend::new().unwrap();
    let mut times = Vec::new();
    for _ in 0..15 {
        let started = Instant::now();
        let sandbox = backend
            .provider()
            .create(&spec(&backend), &|_| {})
            .await
            .unwrap();
        let created = started.elapsed();
        assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
        times.push((started.elapsed(), created));
        remove(&backend, sandbox).await;
    }
    times.sort();
    println!(
        "create to first result: {:?} (created after {:?})",
        times[7].0, times[7].1
    );
}

/// Streams that their clients abandon, as web pages do that are closed, break no other one and
/// leave none open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_streams_break_no_other_one() {
    use std::time::Duration;

    use engine::sandbox::StreamTarget;
    use futures_util::future::join_all;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    const ABANDONED: usize = 3000;
    const AT_ONCE: usize = 500;
    let backend = LocalBackend::new().unwrap();
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    // A program that sends without end, and one that only waits.
    let (endless, silent) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let [endless_port, silent_port] =
        [&endless, &silent].map(|listener| listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = endless.accept().await.unwrap();
            tokio::spawn(async move { while stream.write_all(&[7; 4096]).await.is_ok() {} });
        }
    });
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(silent.accept().await.unwrap().0);
        }
    });
    let streams = sandbox.streams().unwrap();
    let mut first = streams
        .open(&StreamTarget::Port(endless_port))
        .await
        .unwrap();
    let abandon = |number: usize| async move {
        let port = if number.is_multiple_of(2) {
            endless_port
        } else {
            silent_port
        };
        let target = StreamTarget::Port(port);
        // Some are abandoned before they are open.
        let opened = timeout(
            Duration::from_micros(37 * (number as u64 % 100)),
            streams.open(&target),
        )
        .await;
        if let Ok(Ok(mut stream)) = opened {
            stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        }
    };
    for round in 0..ABANDONED / AT_ONCE {
        join_all((0..AT_ONCE).map(|number| abandon(round * AT_ONCE + number))).await;
    }
    let mut buffer = [0; 4096];
    for stream in [
        &mut first,
        &mut streams
            .open(&StreamTarget::Port(endless_port))
            .await
            .unwrap(),
    ] {
        timeout(Duration::from_secs(10), stream.read_exact(&mut buffer))
            .await
            .unwrap()
            .unwrap();
    }
    remove(&backend, sandbox).await;
}
