//! Large numbers of commands: no wrong result, no leftovers.

use super::*;
use crate::os::children::{self, reap_adopted};

on_every_shell! {
    async fn thousand_commands_exit_with_zero(fixture) {
        for number in 0..1000 {
            let result = fixture.run("true").await;
            assert_eq!((result.metadata.exit_code, result.content.as_str()), (0, ""), "number {number}");
        }
    }

    async fn every_command_gets_its_own_output_and_code(fixture) {
        for number in 0..500 {
            let result = fixture.run(&format!("echo number {number}; (exit {})", number % 200)).await;
            assert_eq!((result.content, result.metadata.exit_code), (format!("number {number}"), number % 200));
        }
    }

    async fn thirty_new_shells_exit_with_zero(fixture) {
        for number in 0..30 {
            let fresh = RunAction { is_static: true, ..action("true") };
            let result = fixture.act(fresh, None, CancellationToken::new()).await;
            assert_eq!((result.metadata.exit_code, result.content.as_str()), (0, ""), "number {number}");
        }
    }

    async fn two_thousand_commands_leave_no_zombie(fixture) {
        let stop = CancellationToken::new();
        let reaper = tokio::spawn(reap_adopted(stop.clone()));
        fixture.succeed("echo $$ >shell").await;
        for _ in 0..20 {
            fixture.succeed("for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0 &); /bin/true; done; (sleep 0 &) | cat").await;
        }
        for _ in 0..2000 {
            fixture.succeed(":").await;
        }
        let shell = fixture.pid_in("shell").await;
        eventually("no child is left", || children::children_of(shell).is_empty() && zombies().is_empty()).await;
        stop.cancel();
        reaper.await.unwrap().unwrap();
    }
}

fn zombies() -> Vec<i32> {
    children::adopted()
        .into_iter()
        .filter(|&pid| !is_alive(pid))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run with --release --ignored --nocapture"]
async fn measure_echo_latency() {
    for name in ["bash", "dash", "busybox"] {
        run_on(name, async |fixture: Fixture| {
            let mut times = Vec::new();
            for _ in 0..5000 {
                let started = std::time::Instant::now();
                assert_eq!(fixture.succeed("echo hi").await, "hi");
                times.push(started.elapsed());
            }
            times.sort();
            eprintln!(
                "{name}: p50 {:?}, p99 {:?}",
                times[times.len() / 2],
                times[times.len() * 99 / 100]
            );
        })
        .await;
    }
}
