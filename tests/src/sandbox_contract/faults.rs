//! Cases with injected faults: each action still ends exactly once, with its complete output.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::sandbox::{OutputChunk, Sandbox, SandboxError};
use protocol::record::SandboxLeased;
use protocol::{Observation, ObservationKind, SandboxId};
use tokio::time::{sleep, timeout};

use super::{
    Backend, CommandResult, OutputRecorder, command, command_result, create_sandbox, error, id,
    remove, run,
};
use crate::skip::{Requirement, skip};

/// A backend that can inject faults into its sandboxes from outside.
#[async_trait]
pub trait FaultInjection: Backend {
    /// Cuts the connections of this process to a sandbox and returns their number. The server and
    /// its processes continue.
    async fn cut_connection(&self, sandbox: &SandboxId) -> usize;

    /// Kills a sandbox and all its processes without notifying its server.
    async fn kill(&self, sandbox: &SandboxId);

    /// Suspends all processes of a sandbox.
    async fn freeze(&self, sandbox: &SandboxId);

    /// Resumes the processes of a frozen sandbox.
    async fn thaw(&self, sandbox: &SandboxId);

    /// Returns a writable folder in the sandbox with at most 64 MiB. `None` if this user cannot
    /// create one.
    async fn small_folder(&self, sandbox: &SandboxLeased) -> Option<String>;
}

/// 3,000 numbered lines in three seconds.
const LINES: &str = "echo ran >> counter; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo \"line $i\"; \
                     [ $((i % 100)) -ne 0 ] || sleep 0.1; done";

fn numbered_lines(ran: &CommandResult) -> Vec<String> {
    let output = String::from_utf8_lossy(&ran.streamed).replace("\r\n", "\n");
    output
        .lines()
        .filter(|line| line.starts_with("line "))
        .map(str::to_owned)
        .collect()
}

fn expected_lines(count: u32) -> Vec<String> {
    (1..=count).map(|number| format!("line {number}")).collect()
}

/// The connection is cut five times while a command prints.
pub async fn output_is_exact_when_the_connection_is_cut(backend: &dyn FaultInjection) {
    let sandbox = create_sandbox(backend).await;
    let (output, first, request) = (OutputRecorder::default(), id(1), command(LINES));
    let listener = output.listener();
    let name = sandbox.lease().sandbox_id.clone();
    let cuts = async {
        let mut cut = 0;
        for line in [100, 400, 1000, 1700, 2300] {
            output.wait_for(&format!("line {line}")).await;
            cut += backend.cut_connection(&name).await;
        }
        cut
    };
    let both = async { tokio::join!(sandbox.execute(&first, &request, &listener), cuts) };
    let (ended, cut) = timeout(Duration::from_secs(50), both)
        .await
        .expect("the action ends");
    assert!(cut >= 4, "cut {cut} times"); // one may come between two connections
    let ran = command_result(ended.unwrap(), &output);
    assert_eq!(ran.exit_code, 0);
    assert_eq!(numbered_lines(&ran), expected_lines(3000));
    assert_eq!(run(&*sandbox, 2, "cat counter").await.content.trim(), "ran");
    remove(backend, sandbox).await;
}

/// The connection is cut between two actions, and the next one succeeds.
pub async fn idle_connection_is_established_again_when_cut(backend: &dyn FaultInjection) {
    let sandbox = create_sandbox(backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    run(&*sandbox, 1, "color=green").await;
    for number in 2..7 {
        assert!(backend.cut_connection(&name).await > 0);
        if number % 2 == 0 {
            sleep(Duration::from_millis(100)).await; // the client may or may not have noticed the cut by then
        }
        assert_eq!(
            run(&*sandbox, number, "echo $color").await.content.trim(),
            "green"
        );
    }
    remove(backend, sandbox).await;
}

/// The sandbox is killed: the pending call and later calls each report it once.
pub async fn killed_sandbox_is_lost_once_within_five_seconds(backend: &dyn FaultInjection) {
    let sandbox = create_sandbox(backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    let (output, first, request) = (
        OutputRecorder::default(),
        id(1),
        command("echo star''ted; sleep 1042"),
    );
    let listener = output.listener();
    let kill = async {
        output.wait_for("started").await;
        backend.kill(&name).await;
        Instant::now()
    };
    let both = async { tokio::join!(sandbox.execute(&first, &request, &listener), kill) };
    let (ended, killed) = timeout(Duration::from_secs(20), both)
        .await
        .expect("a lost sandbox is noticed");
    assert!(matches!(error(ended), SandboxError::Lost { .. }));
    assert!(
        killed.elapsed() < Duration::from_secs(5),
        "{:?}",
        killed.elapsed()
    );
    let again = Instant::now();
    assert!(matches!(
        error(sandbox.execute(&id(2), &request, &|_| {}).await),
        SandboxError::Lost { .. }
    ));
    assert!(matches!(
        error(backend.provider().attach(sandbox.lease()).await),
        SandboxError::Lost { .. }
    ));
    assert!(
        again.elapsed() < Duration::from_secs(10),
        "{:?}",
        again.elapsed()
    );
    remove(backend, sandbox).await;
}

/// After 10 s of suspension, the command completes and pending requests are answered.
pub async fn action_continues_after_ten_seconds_of_suspension(backend: &dyn FaultInjection) {
    frozen_for(backend, Duration::from_secs(10)).await;
}

/// Suspends a sandbox for `time` while a command runs.
pub async fn frozen_for(backend: &dyn FaultInjection, time: Duration) {
    let sandbox = create_sandbox(backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    let lines = "echo ran >> counter; i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo line $i; sleep 0.1; done";
    let (output, first, request) = (OutputRecorder::default(), id(1), command(lines));
    let listener = output.listener();
    let freeze = async {
        output.wait_for("line 10").await;
        backend.freeze(&name).await;
        let before = output.bytes().len();
        sleep(time).await;
        let printed = output.bytes().len() - before;
        backend.thaw(&name).await;
        printed
    };
    let both = async { tokio::join!(sandbox.execute(&first, &request, &listener), freeze) };
    let (ended, printed) = timeout(time + Duration::from_secs(40), both)
        .await
        .expect("the action ends");
    assert!(
        printed < 100,
        "it printed {printed} bytes while it was frozen"
    );
    let ran = command_result(ended.unwrap(), &output);
    assert_eq!(ran.exit_code, 0);
    assert_eq!(numbered_lines(&ran), expected_lines(50));
    assert_eq!(run(&*sandbox, 2, "cat counter").await.content.trim(), "ran");
    remove(backend, sandbox).await;
}

/// Without disk space a write and a command report it. With space again both work.
pub async fn server_survives_when_the_disk_is_full(backend: &dyn FaultInjection) {
    let sandbox = create_sandbox(backend).await;
    let Some(folder) = backend.small_folder(sandbox.lease()).await else {
        remove(backend, sandbox).await;
        return skip(
            Requirement::Mount,
            "this user cannot create a small file system",
        );
    };
    let kept = format!("{folder}/kept");
    assert!(matches!(
        write(&*sandbox, 1, &kept, "as it was\n").await.kind,
        ObservationKind::Write(_)
    ));
    let filled = run(&*sandbox, 2, &format!("cat /dev/zero > {folder}/filling")).await;
    assert_ne!(filled.exit_code, 0, "{filled:?}");
    assert!(
        filled.content.contains("No space left on device"),
        "{filled:?}"
    );

    let refused = write(&*sandbox, 3, &kept, &"x".repeat(1 << 20)).await;
    assert!(
        matches!(refused.kind, ObservationKind::Error(_)),
        "{refused:?}"
    );
    assert_eq!(
        run(&*sandbox, 4, &format!("cat {kept}"))
            .await
            .content
            .trim(),
        "as it was"
    );
    // More output than the server holds in memory, which it would spill to disk.
    let counter = OutputCounter::default();
    let flood = command("head -c 8000000 /dev/zero | tr '\\0' x");
    let ended = sandbox
        .execute(&id(5), &flood, &|chunk| counter.record(chunk))
        .await
        .unwrap();
    assert_eq!(
        command_result(ended, &OutputRecorder::default()).exit_code,
        0
    );
    println!(
        "{} of 8,000,000 bytes received, {} reported as missing",
        counter.received(),
        counter.missing()
    );
    assert_eq!(counter.received() + counter.missing(), 8_000_000);

    assert_eq!(
        run(&*sandbox, 6, &format!("rm {folder}/filling"))
            .await
            .exit_code,
        0
    );
    assert!(matches!(
        write(&*sandbox, 7, &kept, "new\n").await.kind,
        ObservationKind::Write(_)
    ));
    assert_eq!(
        run(&*sandbox, 8, &format!("cat {kept}"))
            .await
            .content
            .trim(),
        "new"
    );
    remove(backend, sandbox).await;
}

/// Counts received and missing bytes of an output, and checks that they arrive in order and once.
#[derive(Default)]
struct OutputCounter {
    received: AtomicU64,
    missing: AtomicU64,
}

impl OutputCounter {
    fn record(&self, chunk: OutputChunk<'_>) {
        let offset_so_far = self.received() + self.missing();
        match chunk {
            OutputChunk::Bytes { offset, bytes } => {
                assert_eq!(offset, offset_so_far);
                self.received
                    .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            OutputChunk::Gap { from, to } => {
                assert_eq!(from, offset_so_far);
                self.missing.fetch_add(to - from, Ordering::Relaxed);
            }
        }
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }
}

async fn write(sandbox: &dyn Sandbox, number: u32, path: &str, content: &str) -> Observation {
    sandbox
        .execute(&id(number), &super::write(path, content), &|_| {})
        .await
        .unwrap()
}
