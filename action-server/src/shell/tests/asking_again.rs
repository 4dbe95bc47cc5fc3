//! Commands that run on: timeouts, more output, input and keys.

use super::*;

const SHORT: Duration = Duration::from_millis(300);

on_every_shell! {
    async fn a_timeout_reports_and_the_command_goes_on(fixture) {
        let answered = fixture.run_for("echo one; read line; echo got $line", SHORT).await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("one", -1));
        assert!(answered.metadata.suffix.starts_with("\n[The command timed out after 0.3 seconds."), "{}", answered.metadata.suffix);
        assert_eq!(answered.metadata.prefix, "");
        let answered = fixture.type_in("two").await;
        assert!(answered.content.ends_with("got two"), "{}", answered.content);
        assert!(!answered.content.contains("one"), "{}", answered.content);
        assert_eq!(answered.metadata.prefix, "[Below is the output of the previous command.]\n");
        assert_eq!(answered.metadata.suffix, completed(0));
    }

    async fn whole_seconds_are_written_as_v0_writes_them(fixture) {
        let answered = fixture.run_for("sleep 1000", Duration::from_secs(1)).await;
        assert!(answered.metadata.suffix.starts_with("\n[The command timed out after 1.0 seconds."), "{}", answered.metadata.suffix);
        assert!(answered.metadata.pid > 0);
    }

    async fn a_new_command_is_not_run_while_another_runs(fixture) {
        fixture.run_for("echo one; read a; echo two; read b", SHORT).await;
        fixture.act(RunAction { is_input: true, ..action("x") }, Some(SHORT), CancellationToken::new()).await;
        let answered = fixture.run("touch never").await;
        assert_eq!(answered.metadata.exit_code, -1);
        assert_eq!(answered.metadata.prefix, "[Below is the output of the previous command.]\n");
        let expected = "\n[Your command \"touch never\" is NOT executed. The previous command is still running";
        assert!(answered.metadata.suffix.starts_with(expected), "{}", answered.metadata.suffix);
        fixture.type_in("y").await;
        assert!(!fixture.path().join("never").exists());
    }

    async fn empty_commands_get_only_what_is_new(fixture) {
        let answered = fixture.run_for("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two", SHORT).await;
        assert_eq!(answered.content, "one");
        let answered = fixture.run_for("", SHORT).await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("", -1));
        std::fs::write(fixture.path().join("go"), "").unwrap();
        let answered = fixture.run("").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("two", 0));
        assert_eq!(answered.metadata.prefix, "[Below is the output of the previous command.]\n");
        assert_eq!(answered.metadata.suffix, completed(0));
    }

    async fn an_end_that_nobody_saw_is_told_to_who_asks(fixture) {
        fixture.run_for("while [ ! -e go ]; do sleep 0.01; done; echo end; echo >done; (exit 3)", SHORT).await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("done", || fixture.path().join("done").exists()).await;
        let answered = fixture.run("").await;
        assert!(answered.content.ends_with("end"), "{}", answered.content);
        assert_eq!(answered.metadata.suffix, completed(3));
        let answered = fixture.run("").await;
        assert_eq!(answered.content, "ERROR: No previous running command to retrieve logs from.");
    }

    async fn with_nothing_running_there_is_nothing_to_ask(fixture) {
        let answered = fixture.run("").await;
        assert_eq!(answered.content, "ERROR: No previous running command to retrieve logs from.");
        let answered = fixture.type_in("x").await;
        assert_eq!(answered.content, "ERROR: No previous running command to interact with.");
        assert_eq!(answered.metadata.exit_code, -1);
    }

    async fn the_interrupt_key_ends_with_130(fixture) {
        fixture.run_for("sleep 1000; echo never", SHORT).await;
        let answered = fixture.type_in("C-c").await;
        assert_eq!(answered.metadata.suffix, "\n[The command completed with exit code 130. CTRL+C was sent.]");
        assert!(!answered.content.contains("never"));
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn the_end_of_input_key_ends_what_reads(fixture) {
        fixture.run_for("cat >kept", SHORT).await;
        fixture.act(RunAction { is_input: true, ..action("text") }, Some(SHORT), CancellationToken::new()).await;
        let answered = fixture.type_in("C-d").await;
        assert_eq!(answered.metadata.suffix, "\n[The command completed with exit code 0. CTRL+D was sent.]");
        assert_eq!(std::fs::read_to_string(fixture.path().join("kept")).unwrap(), "text\n");
    }

    async fn the_stop_key_stops_and_the_job_can_go_on(fixture) {
        fixture.run_for("sleep 1000", SHORT).await;
        let answered = fixture.type_in("C-z").await;
        assert_eq!(answered.metadata.suffix, "\n[The command completed with exit code 148. CTRL+Z was sent.]");
        fixture.run("kill -9 %1").await;
        fixture.run("wait").await;
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn typed_ahead_lines_are_not_the_shells(fixture) {
        fixture.run_for("sleep 1000", SHORT).await;
        fixture.act(RunAction { is_input: true, ..action("half a line, no newline") }, Some(SHORT), CancellationToken::new()).await;
        fixture.type_in("C-c").await;
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn more_input_than_a_terminal_holds_arrives(fixture) {
        fixture.run_for("head -n 2000 | cksum", SHORT).await;
        let lines: Vec<String> = (0..2000).map(|line| format!("line number {line}")).collect();
        let answered = fixture.type_in(&lines.join("\n")).await;
        let text = lines.join("\n") + "\n";
        std::fs::write(fixture.path().join("expected"), &text).unwrap();
        let expected = fixture.say("cksum <expected").await;
        assert!(answered.content.ends_with(&expected), "{expected} is not the end of {}", answered.content.len());
    }

    async fn a_dropped_caller_does_not_stop_a_command(fixture) {
        let running = fixture.leave_running("echo begun; while [ ! -e go ]; do sleep 0.01; done; echo end", "begun", CancellationToken::new()).await;
        running.abort();
        assert!(running.await.is_err());
        std::fs::write(fixture.path().join("go"), "").unwrap();
        // The actor still answers the one who left; whoever comes next finds the shell free.
        assert_eq!(fixture.say("echo next").await, "next");
    }
}

async fn impatient(name: &str, case: impl AsyncFnOnce(Fixture)) {
    let search = std::env::var_os("PATH");
    let Some(path) = program::find_executable(name, search.as_deref()) else { return };
    let folder = Arc::new(TempDir::new().unwrap());
    let config = ShellConfig { no_change_timeout: SHORT, ..config(folder.path()) };
    let shell = Shell::start_program(config, ShellProgram::at(path));
    case(Fixture { shell: shell.clone(), folder }).await;
    shell.shut_down().await;
}

#[tokio::test]
async fn silence_is_reported_unless_the_action_blocks() {
    impatient("bash", async |fixture: Fixture| {
        let answered = fixture.run("echo one; sleep 0.6; echo two; read line").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("one", -1));
        let expected = "\n[The command has no new output after 0.3 seconds.";
        assert!(answered.metadata.suffix.starts_with(expected), "{}", answered.metadata.suffix);
        fixture.type_in("x").await;
        fixture.run("").await;
        let blocking = RunAction { blocking: true, ..action("sleep 0.9; echo end") };
        let answered = fixture.act(blocking, None, CancellationToken::new()).await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("end", 0));
    })
    .await;
}

#[tokio::test]
async fn output_holds_off_the_silence_timeout() {
    impatient("bash", async |fixture: Fixture| {
        let answered = fixture.run("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done").await;
        assert_eq!(answered.metadata.exit_code, 0);
    })
    .await;
}

#[tokio::test]
async fn a_command_that_reads_gets_the_terminal_and_waits() {
    impatient("bash", async |fixture: Fixture| {
        let answered = fixture.run("cat").await;
        assert!(
            answered.metadata.suffix.starts_with("\n[The command has no new output"),
            "{}",
            answered.metadata.suffix
        );
        let answered = fixture.type_in("C-d").await;
        assert_eq!(answered.metadata.exit_code, 0);
    })
    .await;
}
