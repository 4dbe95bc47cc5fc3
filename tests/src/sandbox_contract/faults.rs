//! Faults: something breaks under an action, and the action still ends exactly once, with its output whole.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::sandbox::{OutputChunk, Sandbox, SandboxError};
use protocol::record::SandboxLeased;
use protocol::{Observation, ObservationKind, SandboxId};
use tokio::time::{sleep, timeout};

use super::{Backend, Heard, Ran, command, error, id, place, ran, remove, run};

/// A backend whose sandboxes a test can break, from outside of them.
#[async_trait]
pub trait Breakable: Backend {
    /// Cuts what carries this process's connections to a sandbox; the server and what it runs are not touched. How many
    /// connections that were.
    async fn cut_connection(&self, sandbox: &SandboxId) -> usize;

    /// Kills a sandbox with all that runs in it, without a word to its server.
    async fn kill(&self, sandbox: &SandboxId);

    /// Stops everything in a sandbox where it is.
    async fn freeze(&self, sandbox: &SandboxId);

    /// Lets it go on.
    async fn thaw(&self, sandbox: &SandboxId);

    /// A folder inside with room for at most 64 MiB, that can be written to. Nothing where this user cannot have one.
    async fn small_folder(&self, sandbox: &SandboxLeased) -> Option<String>;
}

/// 3,000 numbered lines in three seconds.
const LINES: &str = "echo ran >> counter; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo \"line $i\"; \
                     [ $((i % 100)) -ne 0 ] || sleep 0.1; done";

fn numbered_lines(ran: &Ran) -> Vec<String> {
    let heard = String::from_utf8_lossy(&ran.heard).replace("\r\n", "\n");
    heard.lines().filter(|line| line.starts_with("line ")).map(str::to_owned).collect()
}

fn expected_lines(count: u32) -> Vec<String> {
    (1..=count).map(|number| format!("line {number}")).collect()
}

/// Whatever carries the connection breaks five times while a command prints.
pub async fn a_connection_cut_in_mid_output_loses_and_repeats_nothing(backend: &dyn Breakable) {
    let sandbox = place(backend).await;
    let (heard, first, request) = (Heard::default(), id(1), command(LINES));
    let listener = heard.listener();
    let name = sandbox.lease().sandbox_id.clone();
    let cuts = async {
        let mut cut = 0;
        for line in [100, 400, 1000, 1700, 2300] {
            heard.until(&format!("line {line}")).await;
            cut += backend.cut_connection(&name).await;
        }
        cut
    };
    let both = async { tokio::join!(sandbox.execute(&first, &request, &listener), cuts) };
    let (ended, cut) = timeout(Duration::from_secs(50), both).await.expect("the action ends");
    assert!(cut >= 4, "cut {cut} times"); // one may come between two connections
    let ran = ran(ended.unwrap(), &heard);
    assert_eq!(ran.exit_code, 0);
    assert_eq!(numbered_lines(&ran), expected_lines(3000));
    assert_eq!(run(&*sandbox, 2, "cat counter").await.content.trim(), "ran");
    remove(backend, sandbox).await;
}

/// It breaks between two actions: the next knows nothing of it.
pub async fn a_connection_cut_while_nothing_runs_is_made_again(backend: &dyn Breakable) {
    let sandbox = place(backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    run(&*sandbox, 1, "color=green").await;
    for number in 2..7 {
        assert!(backend.cut_connection(&name).await > 0);
        if number % 2 == 0 {
            sleep(Duration::from_millis(100)).await; // the break may or may not be known when the next is asked for
        }
        assert_eq!(run(&*sandbox, number, "echo $color").await.content.trim(), "green");
    }
    remove(backend, sandbox).await;
}

/// The sandbox dies as a whole: whoever waits is told once, and so is who comes later.
pub async fn killed_sandbox_is_lost_once_within_five_seconds(backend: &dyn Breakable) {
    let sandbox = place(backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    let (heard, first, request) = (Heard::default(), id(1), command("echo beg''un; sleep 1042"));
    let listener = heard.listener();
    let kill = async {
        heard.until("begun").await;
        backend.kill(&name).await;
        Instant::now()
    };
    let both = async { tokio::join!(sandbox.execute(&first, &request, &listener), kill) };
    let (ended, killed) = timeout(Duration::from_secs(20), both).await.expect("a lost sandbox is noticed");
    assert!(matches!(error(ended), SandboxError::Lost { .. }));
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let again = Instant::now();
    assert!(matches!(error(sandbox.execute(&id(2), &request, &|_| {}).await), SandboxError::Lost { .. }));
    assert!(matches!(error(backend.provider().attach(sandbox.lease()).await), SandboxError::Lost { .. }));
    assert!(again.elapsed() < Duration::from_secs(10), "{:?}", again.elapsed());
    remove(backend, sandbox).await;
}

/// Frozen for 10 s, the command goes on to its end, and what is asked meanwhile is answered afterwards.
pub async fn a_sandbox_frozen_for_ten_seconds_goes_on(backend: &dyn Breakable) {
    frozen_for(backend, Duration::from_secs(10)).await;
}

/// The same for any time.
pub async fn frozen_for(backend: &dyn Breakable, time: Duration) {
    let sandbox = place(backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    let lines = "echo ran >> counter; i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo line $i; sleep 0.1; done";
    let (heard, first, request) = (Heard::default(), id(1), command(lines));
    let listener = heard.listener();
    let freeze = async {
        heard.until("line 10").await;
        backend.freeze(&name).await;
        let before = heard.bytes().len();
        sleep(time).await;
        let said = heard.bytes().len() - before;
        backend.thaw(&name).await;
        said
    };
    let both = async { tokio::join!(sandbox.execute(&first, &request, &listener), freeze) };
    let (ended, said) = timeout(time + Duration::from_secs(40), both).await.expect("the action ends");
    assert!(said < 100, "it said {said} bytes while it was frozen");
    let ran = ran(ended.unwrap(), &heard);
    assert_eq!(ran.exit_code, 0);
    assert_eq!(numbered_lines(&ran), expected_lines(50));
    assert_eq!(run(&*sandbox, 2, "cat counter").await.content.trim(), "ran");
    remove(backend, sandbox).await;
}

/// No space: a write and a command say so; with space again both work.
pub async fn a_full_disk_is_an_error_and_the_server_lives(backend: &dyn Breakable) {
    let sandbox = place(backend).await;
    let Some(folder) = backend.small_folder(sandbox.lease()).await else {
        println!("skipped: no small file system for this user");
        return remove(backend, sandbox).await;
    };
    let kept = format!("{folder}/kept");
    assert!(matches!(write(&*sandbox, 1, &kept, "as it was\n").await.kind, ObservationKind::Write(_)));
    let filled = run(&*sandbox, 2, &format!("cat /dev/zero > {folder}/filling")).await;
    assert_ne!(filled.exit_code, 0, "{filled:?}");
    assert!(filled.content.contains("No space left on device"), "{filled:?}");

    let refused = write(&*sandbox, 3, &kept, &"x".repeat(1 << 20)).await;
    assert!(matches!(refused.kind, ObservationKind::Error(_)), "{refused:?}");
    assert_eq!(run(&*sandbox, 4, &format!("cat {kept}")).await.content.trim(), "as it was");
    // What the server itself would put on a disk: more output than it holds in memory.
    let told = Told::default();
    let flood = command("head -c 8000000 /dev/zero | tr '\\0' x");
    let ended = sandbox.execute(&id(5), &flood, &|chunk| told.hear(chunk)).await.unwrap();
    assert_eq!(ran(ended, &Heard::default()).exit_code, 0);
    println!("{} of 8,000,000 bytes came, {} are told as missing", told.came(), told.missing());
    assert_eq!(told.came() + told.missing(), 8_000_000);

    assert_eq!(run(&*sandbox, 6, &format!("rm {folder}/filling")).await.exit_code, 0);
    assert!(matches!(write(&*sandbox, 7, &kept, "new\n").await.kind, ObservationKind::Write(_)));
    assert_eq!(run(&*sandbox, 8, &format!("cat {kept}")).await.content.trim(), "new");
    remove(backend, sandbox).await;
}

/// How much of an output came, and how much was told as missing: in order, nothing twice.
#[derive(Default)]
struct Told {
    came: AtomicU64,
    missing: AtomicU64,
}

impl Told {
    fn hear(&self, chunk: OutputChunk<'_>) {
        let heard = self.came() + self.missing();
        match chunk {
            OutputChunk::Bytes { offset, bytes } => {
                assert_eq!(offset, heard);
                self.came.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            OutputChunk::Gap { from, to } => {
                assert_eq!(from, heard);
                self.missing.fetch_add(to - from, Ordering::Relaxed);
            }
        }
    }

    fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }
}

async fn write(sandbox: &dyn Sandbox, number: u32, path: &str, content: &str) -> Observation {
    sandbox.execute(&id(number), &super::write(path, content), &|_| {}).await.unwrap()
}
