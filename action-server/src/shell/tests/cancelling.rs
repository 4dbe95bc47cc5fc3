//! A cancel kills all processes of the command in time, and no others.

use super::*;

const CANCEL_TIMEOUT: Duration = Duration::from_millis(1900);

/// Cancels `command` after it printed `started`, and returns its observation.
async fn cancel(fixture: &Fixture, command: &str) -> CommandObservation {
    let cancel = CancellationToken::new();
    let running = fixture
        .start_running(command, "started", cancel.clone())
        .await;
    cancel.cancel();
    let result = timeout(CANCEL_TIMEOUT, running)
        .await
        .expect("the cancel completes in time")
        .unwrap();
    assert_eq!(result.metadata.exit_code, 137);
    assert!(
        result.metadata.suffix.contains("cancelled"),
        "{}",
        result.metadata.suffix
    );
    result
}

on_every_shell! {
    async fn cancelled_script_does_not_continue(fixture) {
        fixture.succeed("KEPT=kept").await;
        for script in [
            "echo started; sleep 1000; touch never",
            "echo started; while :; do sleep 0.01; done; touch never",
            "echo started; while :; do :; done; touch never",
            "echo started; sleep 1000 | cat; touch never",
            "echo started; (trap '' INT TERM HUP; sleep 1000; touch never); touch never",
            "echo started; x=$(sleep 1000); touch never",
            "echo started; sh -c 'sleep 1000; touch never'; touch never",
            "echo started; read line; touch never",
        ] {
            let result = cancel(&fixture, script).await;
            assert!(!result.metadata.suffix.contains("killed too"), "{script}: {}", result.metadata.suffix);
            assert_eq!(fixture.succeed("echo $KEPT; ls").await, "kept", "{script}");
        }
    }

    async fn process_tree_is_killed_when_the_command_is_cancelled(fixture) {
        fixture.succeed("trap - INT").await;
        cancel(&fixture, "sleep 1000 & echo $! >a\n(setsid sleep 1000 & echo $! >b)\n\
                          (trap '' HUP INT TERM; sleep 1000) & echo $! >c\necho started; sleep 1000").await;
        for file in ["a", "b", "c"] {
            let pid = fixture.pid_in(file).await;
            eventually(file, || !is_alive(pid)).await;
        }
    }

    async fn daemon_is_killed_when_its_command_is_cancelled(fixture) {
        cancel(&fixture, "(setsid sh -c 'echo $$ >daemon; exec sleep 1000' >/dev/null 2>&1 &)\n\
                          while [ ! -s daemon ]; do sleep 0.01; done; echo started; sleep 1000").await;
        let pid = fixture.pid_in("daemon").await;
        eventually("the daemon is dead", || !is_alive(pid)).await;
    }

    async fn processes_of_earlier_commands_survive_a_cancel(fixture) {
        fixture.succeed("sleep 1000 & echo $! >job; (setsid sleep 1000 & echo $! >daemon)").await;
        fixture.succeed("(while :; do sleep 0.01; done) & echo $! >parent").await;
        cancel(&fixture, "echo started; sleep 1000").await;
        for file in ["job", "daemon", "parent"] {
            let pid = fixture.pid_in(file).await;
            assert!(is_alive(pid), "{file}");
        }
    }

    async fn shell_is_replaced_when_it_does_not_stop_a_command(fixture) {
        for script in ["trap '' INT; echo started; while :; do :; done", "trap : INT; echo started; while :; do :; done"] {
            fixture.succeed("GONE=1").await;
            let result = cancel(&fixture, script).await;
            assert!(result.metadata.suffix.contains("killed too"), "{}", result.metadata.suffix);
            assert_eq!(fixture.succeed("echo [$GONE]").await, "[]");
        }
    }

    async fn cancelled_command_stops_when_the_shell_ignores_interrupts(fixture) {
        cancel(&fixture, "trap '' INT; echo started; sleep 1000; touch never").await;
        assert_eq!(fixture.succeed("ls").await, "");
    }

    async fn command_is_cancelled_when_the_shell_is_suspended(fixture) {
        cancel(&fixture, "echo started; kill -STOP $$").await;
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn flooding_command_is_cancelled(fixture) {
        cancel(&fixture, "echo started; yes").await;
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn cancelled_poll_kills_the_command(fixture) {
        fixture.run_for("echo $$ >shell; sleep 1000", Duration::from_millis(100)).await;
        let token = CancellationToken::new();
        token.cancel();
        let result = fixture.act(action(""), None, token).await;
        assert_eq!(result.metadata.exit_code, 137);
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn queued_action_is_cancelled_before_it_starts(fixture) {
        let first = CancellationToken::new();
        let running = fixture.start_running("echo started; sleep 1000", "started", first.clone()).await;
        let second = CancellationToken::new();
        second.cancel();
        let result = fixture.act(action("touch never"), None, second).await;
        assert_eq!(result.metadata.exit_code, 137);
        first.cancel();
        running.await.unwrap();
        assert_eq!(fixture.succeed("ls").await, "");
    }

    async fn shutdown_kills_all_processes(fixture) {
        let command = "sleep 1000 & echo $! >a; (setsid sleep 1000 & echo $! >b); trap '' INT TERM HUP; echo started; sleep 1000";
        let running = fixture.start_running(command, "started", CancellationToken::new()).await;
        let pids = [fixture.pid_in("a").await, fixture.pid_in("b").await];
        timeout(Duration::from_secs(2), fixture.shell.shut_down()).await.expect("within 2 s");
        assert_eq!(running.await.unwrap().metadata.exit_code, 137);
        for pid in pids {
            eventually("all are dead", || !is_alive(pid)).await;
        }
    }
}
