//! A cancel ends everything the command started, soon, and nothing else.

use super::*;

const SOON: Duration = Duration::from_millis(1900);

/// Cancels `command` once it has said `begun`, and returns what was answered.
async fn cancel(fixture: &Fixture, command: &str) -> Answered {
    let cancel = CancellationToken::new();
    let running = fixture.leave_running(command, "begun", cancel.clone()).await;
    cancel.cancel();
    let answered = timeout(SOON, running).await.expect("a cancel is answered soon").unwrap();
    assert_eq!(answered.metadata.exit_code, 137);
    assert!(answered.metadata.suffix.contains("cancelled"), "{}", answered.metadata.suffix);
    answered
}

on_every_shell! {
    async fn a_cancelled_script_does_not_go_on(fixture) {
        fixture.say("KEPT=kept").await;
        for script in [
            "echo begun; sleep 1000; touch never",
            "echo begun; while :; do sleep 0.01; done; touch never",
            "echo begun; while :; do :; done; touch never",
            "echo begun; sleep 1000 | cat; touch never",
            "echo begun; (trap '' INT TERM HUP; sleep 1000; touch never); touch never",
            "echo begun; x=$(sleep 1000); touch never",
            "echo begun; sh -c 'sleep 1000; touch never'; touch never",
            "echo begun; read line; touch never",
        ] {
            let answered = cancel(&fixture, script).await;
            assert!(!answered.metadata.suffix.contains("killed too"), "{script}: {}", answered.metadata.suffix);
            assert_eq!(fixture.say("echo $KEPT; ls").await, "kept", "{script}");
        }
    }

    async fn everything_the_command_started_dies(fixture) {
        fixture.say("trap - INT").await;
        cancel(&fixture, "sleep 1000 & echo $! >a\n(setsid sleep 1000 & echo $! >b)\n\
                          (trap '' HUP INT TERM; sleep 1000) & echo $! >c\necho begun; sleep 1000").await;
        for file in ["a", "b", "c"] {
            let pid = fixture.pid_in(file).await;
            eventually(file, || !is_alive(pid)).await;
        }
    }

    async fn a_daemon_that_left_the_tree_dies_too(fixture) {
        cancel(&fixture, "(setsid sh -c 'echo $$ >daemon; exec sleep 1000' >/dev/null 2>&1 &)\n\
                          while [ ! -s daemon ]; do sleep 0.01; done; echo begun; sleep 1000").await;
        let pid = fixture.pid_in("daemon").await;
        eventually("the daemon is dead", || !is_alive(pid)).await;
    }

    async fn what_earlier_commands_left_running_survives(fixture) {
        fixture.say("sleep 1000 & echo $! >job; (setsid sleep 1000 & echo $! >daemon)").await;
        fixture.say("(while :; do sleep 0.01; done) & echo $! >parent").await;
        cancel(&fixture, "echo begun; sleep 1000").await;
        for file in ["job", "daemon", "parent"] {
            let pid = fixture.pid_in(file).await;
            assert!(is_alive(pid), "{file}");
        }
    }

    async fn a_shell_that_does_not_let_go_is_replaced(fixture) {
        for script in ["trap '' INT; echo begun; while :; do :; done", "trap : INT; echo begun; while :; do :; done"] {
            fixture.say("GONE=1").await;
            let answered = cancel(&fixture, script).await;
            assert!(answered.metadata.suffix.contains("killed too"), "{}", answered.metadata.suffix);
            assert_eq!(fixture.say("echo [$GONE]").await, "[]");
        }
    }

    async fn a_shell_that_ignores_interrupts_does_not_go_on_either(fixture) {
        cancel(&fixture, "trap '' INT; echo begun; sleep 1000; touch never").await;
        assert_eq!(fixture.say("ls").await, "");
    }

    async fn a_stopped_terminal_is_cancelled(fixture) {
        cancel(&fixture, "echo begun; kill -STOP $$").await;
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn a_flood_is_cancelled(fixture) {
        cancel(&fixture, "echo begun; yes").await;
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn a_cancelled_poll_ends_the_command(fixture) {
        fixture.run_for("echo $$ >shell; sleep 1000", Duration::from_millis(100)).await;
        let token = CancellationToken::new();
        token.cancel();
        let answered = fixture.act(action(""), None, token).await;
        assert_eq!(answered.metadata.exit_code, 137);
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn a_waiting_action_can_be_cancelled_before_it_begins(fixture) {
        let first = CancellationToken::new();
        let running = fixture.leave_running("echo begun; sleep 1000", "begun", first.clone()).await;
        let second = CancellationToken::new();
        second.cancel();
        let answered = fixture.act(action("touch never"), None, second).await;
        assert_eq!(answered.metadata.exit_code, 137);
        first.cancel();
        running.await.unwrap();
        assert_eq!(fixture.say("ls").await, "");
    }

    async fn shutting_down_kills_everything(fixture) {
        let command = "sleep 1000 & echo $! >a; (setsid sleep 1000 & echo $! >b); trap '' INT TERM HUP; echo begun; sleep 1000";
        let running = fixture.leave_running(command, "begun", CancellationToken::new()).await;
        let pids = [fixture.pid_in("a").await, fixture.pid_in("b").await];
        timeout(Duration::from_secs(2), fixture.shell.shut_down()).await.expect("within 2 s");
        assert_eq!(running.await.unwrap().metadata.exit_code, 137);
        for pid in pids {
            eventually("all are dead", || !is_alive(pid)).await;
        }
    }
}
