//! The completion of commands and its observation.

use super::*;

on_every_shell! {
    async fn exit_code_is_reported(fixture) {
        let result = fixture.run("echo hi").await;
        assert_eq!(result.content, "hi");
        assert_eq!(result.metadata.exit_code, 0);
        assert_eq!(result.metadata.pid, -1);
        assert_eq!(result.metadata.suffix, completed(0));
        assert_eq!(result.metadata.prefix, "");
        assert_eq!(result.metadata.working_dir.as_deref(), fixture.path().to_str());
        assert!(result.metadata.hostname.is_some());
        let result = fixture.run("(exit 42)").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("", 42));
        assert_eq!(result.metadata.suffix, completed(42));
    }

    async fn status_of_the_last_command_is_available(fixture) {
        fixture.run("(exit 3)").await;
        assert_eq!(fixture.succeed("echo $?").await, "3");
        assert_eq!(fixture.succeed("echo $?").await, "0");
    }

    async fn status_is_0_before_the_first_command(fixture) {
        assert_eq!(fixture.succeed("echo $?").await, "0");
    }

    async fn status_of_the_last_command_outlives_a_prompt(fixture) {
        fixture.succeed("sleep 0 & wait").await;
        for status in [3, 4] {
            fixture.run(&format!("(exit {status})")).await;
            assert_eq!(fixture.succeed("echo $?").await, status.to_string());
        }
    }

    async fn state_is_kept_between_commands(fixture) {
        fixture.succeed("A='a  b'; export B=c; greet() { echo \"hello $1\"; }; mkdir -p d/e; cd d/e").await;
        assert_eq!(fixture.succeed("echo \"$A\" $B; greet you; pwd").await, format!("a  b c\nhello you\n{}/d/e", fixture.path().display()));
        assert_eq!(fixture.shell.working_dir(), fixture.path().join("d/e"));
    }

    async fn several_lines_are_one_command(fixture) {
        assert_eq!(fixture.succeed("echo a\n\n# a comment\necho b;\necho 'c\nd'\n").await, "a\nb\nc\nd");
        assert_eq!(fixture.succeed("for i in 1 2 3\ndo\n\techo $i\ndone").await, "1\n2\n3");
        assert_eq!(fixture.succeed("cat <<'END'\n$x\t`y` \\\nEND\necho after").await, "$x\t`y` \\\nafter");
        assert_eq!(fixture.succeed("echo a \\\n  b").await, "a b");
    }

    async fn syntax_error_is_reported_and_the_shell_continues(fixture) {
        for broken in ["echo 'unclosed", "echo \"unclosed", "echo (", "if true; then", "cat <<END\nno end", "}"] {
            let result = fixture.run(broken).await;
            assert_eq!(result.metadata.suffix, completed(result.metadata.exit_code), "{broken}");
            assert!(!result.content.contains("/proc"), "{broken}: {}", result.content);
            assert_eq!(fixture.succeed("echo fine").await, "fine", "after {broken}");
        }
    }

    async fn lines_longer_than_the_terminal_buffer_arrive(fixture) {
        let long = "x".repeat(100_000);
        assert_eq!(fixture.succeed(&format!("a={long}; echo ${{#a}}")).await, "100000");
        assert_eq!(fixture.succeed(&format!("wc -c <<END\n{long}\nEND")).await.trim(), "100001");
    }

    async fn next_command_has_a_new_shell_after_an_exit(fixture) {
        fixture.succeed("mkdir d; cd d; GONE=1").await;
        let result = fixture.run("echo bye; exit 5").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("bye", 5));
        assert!(result.metadata.suffix.starts_with(&completed(5)), "{}", result.metadata.suffix);
        assert!(result.metadata.suffix.contains("ended the shell"), "{}", result.metadata.suffix);
        assert_eq!(fixture.succeed("echo [$GONE]; pwd").await, format!("[]\n{}/d", fixture.path().display()));
    }

    async fn final_output_of_a_shell_is_reported(fixture) {
        for round in 0..50 {
            let result = fixture.run(&format!("printf 'final output {round}'; exit 7")).await;
            assert_eq!((result.content, result.metadata.exit_code), (format!("final output {round}"), 7));
        }
    }

    async fn errexit_ends_the_shell_with_the_right_code(fixture) {
        fixture.succeed("set -e").await;
        assert_eq!(fixture.succeed("echo still here").await, "still here");
        let result = fixture.run("(exit 9); echo never").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("", 9));
        assert_eq!(fixture.succeed("echo new").await, "new");
    }

    async fn exec_ends_the_shell_when_the_program_ends(fixture) {
        let result = fixture.run("exec sh -c 'echo replaced; exit 6'").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("replaced", 6));
        assert_eq!(fixture.succeed("echo new").await, "new");
    }

    async fn killed_shell_is_reported_with_its_signal(fixture) {
        let result = fixture.run("kill -9 $$").await;
        assert_eq!(result.metadata.exit_code, 137);
        assert_eq!(fixture.succeed("echo new").await, "new");
    }

    async fn shell_death_is_reported_with_the_next_command_when_idle(fixture) {
        fixture.succeed("echo $$ >shell; (while [ ! -e go ]; do sleep 0.01; done; kill -9 $$) &").await;
        let shell = fixture.pid_in("shell").await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("the shell is gone", || !is_alive(shell)).await;
        let result = fixture.run("echo new").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("new", 0));
    }

    async fn new_shell_starts_when_the_working_directory_was_removed(fixture) {
        fixture.succeed("mkdir gone; cd gone; rmdir ../gone").await;
        fixture.run("exit 1").await;
        assert_eq!(fixture.succeed("pwd").await, fixture.path().to_str().unwrap());
    }

    async fn static_action_has_its_own_shell(fixture) {
        std::fs::create_dir(fixture.path().join("d")).unwrap();
        fixture.succeed("A=session").await;
        let fresh = RunAction { is_static: true, cwd: Some("d".into()), ..action("echo [$A]; pwd; A=static; exit 4") };
        let result = fixture.act(fresh, None, CancellationToken::new()).await;
        assert_eq!(result.content, format!("[]\n{}/d", fixture.path().display()));
        assert_eq!(result.metadata.exit_code, 4);
        assert_eq!(fixture.succeed("echo $A; pwd").await, format!("session\n{}", fixture.path().display()));
    }

    async fn static_action_starts_in_the_initial_directory(fixture) {
        fixture.succeed("mkdir d; cd d").await;
        let fresh = RunAction { is_static: true, ..action("pwd") };
        let result = fixture.act(fresh, None, CancellationToken::new()).await;
        assert_eq!(result.content, fixture.path().to_str().unwrap());
    }

    async fn static_action_runs_while_the_session_is_busy(fixture) {
        let cancel = CancellationToken::new();
        let busy = fixture.start_running("echo busy; sleep 1000", "busy", cancel.clone()).await;
        let fresh = RunAction { is_static: true, ..action("echo other") };
        assert_eq!(fixture.act(fresh, None, CancellationToken::new()).await.content, "other");
        cancel.cancel();
        assert_eq!(busy.await.unwrap().metadata.exit_code, 137);
    }

    async fn static_action_fails_when_its_folder_is_missing(fixture) {
        let nowhere = RunAction { is_static: true, cwd: Some("nowhere".into()), ..action("pwd") };
        let observation = fixture.shell.run(nowhere, environment(&[]), None, Box::new(|_| {}), CancellationToken::new()).await;
        assert!(observation.content.starts_with("ERROR: "), "{}", observation.content);
    }

    async fn command_fails_after_shutdown(fixture) {
        fixture.shell.shut_down().await;
        let observation = fixture.shell.run(action("echo hi"), environment(&[]), None, Box::new(|_| {}), CancellationToken::new()).await;
        assert!(observation.content.starts_with("ERROR: "), "{}", observation.content);
    }
}

#[tokio::test]
async fn error_names_the_missing_shell() {
    let folder = TempDir::new().unwrap();
    let shell = Shell::start_program(
        config(folder.path()),
        ShellProgram::at("/no/such/shell".into()),
    );
    let observation = shell
        .run(
            action("echo hi"),
            environment(&[]),
            None,
            Box::new(|_| {}),
            CancellationToken::new(),
        )
        .await;
    assert!(
        observation.content.contains("/no/such/shell"),
        "{}",
        observation.content
    );
    shell.shut_down().await;
}

#[tokio::test]
async fn error_is_reported_when_the_shell_exits_immediately() {
    let folder = TempDir::new().unwrap();
    let shell = Shell::start_program(config(folder.path()), ShellProgram::at("/bin/true".into()));
    let observation = shell
        .run(
            action("echo hi"),
            environment(&[]),
            None,
            Box::new(|_| {}),
            CancellationToken::new(),
        )
        .await;
    assert!(
        observation.content.starts_with("ERROR: "),
        "{}",
        observation.content
    );
    shell.shut_down().await;
}
