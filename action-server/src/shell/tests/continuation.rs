//! Commands that continue after their action: timeouts, more output, input and keys.

use super::*;

const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

on_every_shell! {
    async fn timeout_is_reported_and_the_command_continues(fixture) {
        let result = fixture.run_for("echo one; read line; echo got $line", SHORT_TIMEOUT).await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("one", -1));
        assert!(result.metadata.suffix.starts_with("\n[The command timed out after 0.3 seconds."), "{}", result.metadata.suffix);
        assert_eq!(result.metadata.prefix, "");
        let result = fixture.type_in("two").await;
        assert!(result.content.ends_with("got two"), "{}", result.content);
        assert!(!result.content.contains("one"), "{}", result.content);
        assert_eq!(result.metadata.prefix, "[Below is the output of the previous command.]\n");
        assert_eq!(result.metadata.suffix, completed(0));
    }

    async fn whole_seconds_are_formatted_as_in_v0(fixture) {
        let result = fixture.run_for("sleep 1000", Duration::from_secs(1)).await;
        assert!(result.metadata.suffix.starts_with("\n[The command timed out after 1.0 seconds."), "{}", result.metadata.suffix);
        assert!(result.metadata.pid > 0);
    }

    async fn new_command_is_refused_while_another_runs(fixture) {
        fixture.run_for("echo one; read a; echo two; read b", SHORT_TIMEOUT).await;
        fixture.act(RunAction { is_input: true, ..action("x") }, Some(SHORT_TIMEOUT), CancellationToken::new()).await;
        let result = fixture.run("touch never").await;
        assert_eq!(result.metadata.exit_code, -1);
        assert_eq!(result.metadata.prefix, "[Below is the output of the previous command.]\n");
        let expected = "\n[Your command \"touch never\" is NOT executed. The previous command is still running";
        assert!(result.metadata.suffix.starts_with(expected), "{}", result.metadata.suffix);
        fixture.type_in("y").await;
        assert!(!fixture.path().join("never").exists());
    }

    async fn empty_command_returns_only_new_output(fixture) {
        let result = fixture.run_for("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two", SHORT_TIMEOUT).await;
        assert_eq!(result.content, "one");
        let result = fixture.run_for("", SHORT_TIMEOUT).await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("", -1));
        std::fs::write(fixture.path().join("go"), "").unwrap();
        let result = fixture.run("").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("two", 0));
        assert_eq!(result.metadata.prefix, "[Below is the output of the previous command.]\n");
        assert_eq!(result.metadata.suffix, completed(0));
    }

    async fn unobserved_exit_is_reported_to_the_next_poll(fixture) {
        fixture.run_for("while [ ! -e go ]; do sleep 0.01; done; echo end; echo >done; (exit 3)", SHORT_TIMEOUT).await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("done", || fixture.path().join("done").exists()).await;
        let result = fixture.run("").await;
        assert!(result.content.ends_with("end"), "{}", result.content);
        assert_eq!(result.metadata.suffix, completed(3));
        let result = fixture.run("").await;
        assert_eq!(result.content, "ERROR: No previous running command to retrieve logs from.");
    }

    async fn poll_and_input_are_errors_when_no_command_runs(fixture) {
        let result = fixture.run("").await;
        assert_eq!(result.content, "ERROR: No previous running command to retrieve logs from.");
        let result = fixture.type_in("x").await;
        assert_eq!(result.content, "ERROR: No previous running command to interact with.");
        assert_eq!(result.metadata.exit_code, -1);
    }

    async fn interrupt_key_ends_a_command_with_130(fixture) {
        fixture.run_for("sleep 1000; echo never", SHORT_TIMEOUT).await;
        let result = fixture.type_in("C-c").await;
        assert_eq!(result.metadata.suffix, "\n[The command completed with exit code 130. CTRL+C was sent.]");
        assert!(!result.content.contains("never"));
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn key_continues_a_shell_that_is_stopped(fixture) {
        fixture.run_for("echo $$ >pid; sh -c 'kill -STOP $PPID'; echo back", SHORT_TIMEOUT).await;
        // Empty until the shell has written its id.
        let status = || {
            let pid = std::fs::read_to_string(fixture.path().join("pid")).unwrap_or_default();
            std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default()
        };
        while !status().contains("State:\tT") {
            sleep(Duration::from_millis(10)).await;
        }
        // Interrupted or not: the key can reach the shell before it continues its command.
        let result = fixture.type_in("C-c").await;
        assert!([0, 130].contains(&result.metadata.exit_code), "{}", result.metadata.exit_code);
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn end_of_input_key_ends_a_reading_command(fixture) {
        fixture.run_for("cat >kept", SHORT_TIMEOUT).await;
        fixture.act(RunAction { is_input: true, ..action("text") }, Some(SHORT_TIMEOUT), CancellationToken::new()).await;
        let result = fixture.type_in("C-d").await;
        assert_eq!(result.metadata.suffix, "\n[The command completed with exit code 0. CTRL+D was sent.]");
        assert_eq!(std::fs::read_to_string(fixture.path().join("kept")).unwrap(), "text\n");
    }

    async fn stop_key_suspends_the_command_as_a_job(fixture) {
        fixture.run_for("sleep 1000", SHORT_TIMEOUT).await;
        let result = fixture.type_in("C-z").await;
        assert_eq!(result.metadata.suffix, "\n[The command completed with exit code 148. CTRL+Z was sent.]");
        fixture.run("kill -9 %1").await;
        fixture.run("wait").await;
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn input_of_a_command_is_not_read_by_the_shell(fixture) {
        fixture.run_for("sleep 1000", SHORT_TIMEOUT).await;
        fixture.act(RunAction { is_input: true, ..action("half a line, no newline") }, Some(SHORT_TIMEOUT), CancellationToken::new()).await;
        fixture.type_in("C-c").await;
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn input_longer_than_the_terminal_buffer_arrives(fixture) {
        fixture.run_for("head -n 2000 | cksum", SHORT_TIMEOUT).await;
        let lines: Vec<String> = (0..2000).map(|line| format!("line number {line}")).collect();
        let result = fixture.type_in(&lines.join("\n")).await;
        let text = lines.join("\n") + "\n";
        std::fs::write(fixture.path().join("expected"), &text).unwrap();
        let expected = fixture.succeed("cksum <expected").await;
        assert!(result.content.ends_with(&expected), "{expected} is not the end of {}", result.content.len());
    }

    async fn command_continues_when_its_caller_is_dropped(fixture) {
        let running = fixture.start_running("echo started; while [ ! -e go ]; do sleep 0.01; done; echo end", "started", CancellationToken::new()).await;
        running.abort();
        assert!(running.await.is_err());
        std::fs::write(fixture.path().join("go"), "").unwrap();
// The shell completes the action of the dropped caller before it starts the next one.
        assert_eq!(fixture.succeed("echo next").await, "next");
    }
}

async fn run_with_short_silence_timeout(name: &'static str, case: impl AsyncFnOnce(Fixture)) {
    let Some(path) = find_shell(name) else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let config = ShellConfig {
        no_change_timeout: SHORT_TIMEOUT,
        ..config(folder.path())
    };
    let shell = Shell::start_program(config, ShellProgram::at(path));
    case(Fixture {
        shell: shell.clone(),
        folder,
    })
    .await;
    shell.shut_down().await;
}

#[tokio::test]
async fn silence_is_reported_unless_the_action_blocks() {
    run_with_short_silence_timeout("bash", async |fixture: Fixture| {
        let result = fixture
            .run("echo one; sleep 0.6; echo two; read line")
            .await;
        assert_eq!(
            (result.content.as_str(), result.metadata.exit_code),
            ("one", -1)
        );
        let expected = "\n[The command has no new output after 0.3 seconds.";
        assert!(
            result.metadata.suffix.starts_with(expected),
            "{}",
            result.metadata.suffix
        );
        fixture.type_in("x").await;
        fixture.run("").await;
        let blocking = RunAction {
            blocking: true,
            ..action("sleep 0.9; echo end")
        };
        let result = fixture.act(blocking, None, CancellationToken::new()).await;
        assert_eq!(
            (result.content.as_str(), result.metadata.exit_code),
            ("end", 0)
        );
    })
    .await;
}

#[tokio::test]
async fn output_restarts_the_silence_timeout() {
    run_with_short_silence_timeout("bash", async |fixture: Fixture| {
        let result = fixture
            .run("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done")
            .await;
        assert_eq!(result.metadata.exit_code, 0);
    })
    .await;
}

#[tokio::test]
async fn reading_command_has_the_terminal_and_waits() {
    run_with_short_silence_timeout("bash", async |fixture: Fixture| {
        let result = fixture.run("cat").await;
        assert!(
            result
                .metadata
                .suffix
                .starts_with("\n[The command has no new output"),
            "{}",
            result.metadata.suffix
        );
        let result = fixture.type_in("C-d").await;
        assert_eq!(result.metadata.exit_code, 0);
    })
    .await;
}
