//! Promises about numbers: no wrong answer, no leftovers, however often.

use super::*;
use crate::os::children::{self, reap_adopted};

on_every_shell! {
    async fn a_thousand_commands_all_end_with_zero(fixture) {
        for number in 0..1000 {
            let answered = fixture.run("true").await;
            assert_eq!((answered.metadata.exit_code, answered.content.as_str()), (0, ""), "number {number}");
        }
    }

    async fn every_command_gets_its_own_output_and_code(fixture) {
        for number in 0..500 {
            let answered = fixture.run(&format!("echo number {number}; (exit {})", number % 200)).await;
            assert_eq!((answered.content, answered.metadata.exit_code), (format!("number {number}"), number % 200));
        }
    }

    async fn thirty_fresh_shells_all_end_with_zero(fixture) {
        for number in 0..30 {
            let fresh = RunAction { is_static: true, ..action("true") };
            let answered = fixture.act(fresh, None, CancellationToken::new()).await;
            assert_eq!((answered.metadata.exit_code, answered.content.as_str()), (0, ""), "number {number}");
        }
    }

    async fn two_thousand_commands_leave_no_zombie(fixture) {
        let stop = CancellationToken::new();
        let reaper = tokio::spawn(reap_adopted(stop.clone()));
        fixture.say("echo $$ >shell").await;
        for _ in 0..20 {
            fixture.say("for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0 &); /bin/true; done; (sleep 0 &) | cat").await;
        }
        for _ in 0..2000 {
            fixture.say(":").await;
        }
        let shell = fixture.pid_in("shell").await;
        eventually("no child is left", || children::children_of(shell).is_empty() && zombies().is_empty()).await;
        stop.cancel();
        reaper.await.unwrap().unwrap();
    }
}

fn zombies() -> Vec<i32> {
    children::adopted().into_iter().filter(|&pid| !is_alive(pid)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run with --release --ignored --nocapture"]
async fn echo_beside_a_bare_terminal() {
    for name in ["bash", "dash", "busybox"] {
        run_on(name, async |fixture: Fixture| {
            let mut times = Vec::new();
            for _ in 0..5000 {
                let started = std::time::Instant::now();
                assert_eq!(fixture.say("echo hi").await, "hi");
                times.push(started.elapsed());
            }
            times.sort();
            eprintln!("{name}: p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
        })
        .await;
    }
}
