//! How commands end, and what is said about it.

use super::*;

on_every_shell! {
    async fn an_exit_code_is_told(fixture) {
        let answered = fixture.run("echo hi").await;
        assert_eq!(answered.content, "hi");
        assert_eq!(answered.metadata.exit_code, 0);
        assert_eq!(answered.metadata.pid, -1);
        assert_eq!(answered.metadata.suffix, completed(0));
        assert_eq!(answered.metadata.prefix, "");
        assert_eq!(answered.metadata.working_dir.as_deref(), fixture.path().to_str());
        assert!(answered.metadata.hostname.is_some());
        let answered = fixture.run("(exit 42)").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("", 42));
        assert_eq!(answered.metadata.suffix, completed(42));
    }

    async fn the_status_of_the_last_command_is_the_next_ones_to_read(fixture) {
        fixture.run("(exit 3)").await;
        assert_eq!(fixture.say("echo $?").await, "3");
        assert_eq!(fixture.say("echo $?").await, "0");
    }

    async fn state_stays_between_commands(fixture) {
        fixture.say("A='a  b'; export B=c; greet() { echo \"hello $1\"; }; mkdir -p d/e; cd d/e").await;
        assert_eq!(fixture.say("echo \"$A\" $B; greet you; pwd").await, format!("a  b c\nhello you\n{}/d/e", fixture.path().display()));
        assert_eq!(fixture.shell.working_dir(), fixture.path().join("d/e"));
    }

    async fn several_lines_are_one_command(fixture) {
        assert_eq!(fixture.say("echo a\n\n# a comment\necho b;\necho 'c\nd'\n").await, "a\nb\nc\nd");
        assert_eq!(fixture.say("for i in 1 2 3\ndo\n\techo $i\ndone").await, "1\n2\n3");
        assert_eq!(fixture.say("cat <<'END'\n$x\t`y` \\\nEND\necho after").await, "$x\t`y` \\\nafter");
        assert_eq!(fixture.say("echo a \\\n  b").await, "a b");
    }

    async fn what_cannot_be_parsed_is_an_error_and_nothing_more(fixture) {
        for broken in ["echo 'unclosed", "echo \"unclosed", "echo (", "if true; then", "cat <<END\nno end", "}"] {
            let answered = fixture.run(broken).await;
            assert_eq!(answered.metadata.suffix, completed(answered.metadata.exit_code), "{broken}");
            assert!(!answered.content.contains("/proc"), "{broken}: {}", answered.content);
            assert_eq!(fixture.say("echo fine").await, "fine", "after {broken}");
        }
    }

    async fn lines_longer_than_a_terminals_arrive_whole(fixture) {
        let long = "x".repeat(100_000);
        assert_eq!(fixture.say(&format!("a={long}; echo ${{#a}}")).await, "100000");
        assert_eq!(fixture.say(&format!("wc -c <<END\n{long}\nEND")).await.trim(), "100001");
    }

    async fn an_exit_ends_the_shell_and_the_next_command_gets_a_new_one(fixture) {
        fixture.say("mkdir d; cd d; GONE=1").await;
        let answered = fixture.run("echo bye; exit 5").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("bye", 5));
        assert!(answered.metadata.suffix.starts_with(&completed(5)), "{}", answered.metadata.suffix);
        assert!(answered.metadata.suffix.contains("ended the shell"), "{}", answered.metadata.suffix);
        assert_eq!(fixture.say("echo [$GONE]; pwd").await, format!("[]\n{}/d", fixture.path().display()));
    }

    async fn the_last_words_of_a_shell_are_heard(fixture) {
        for round in 0..50 {
            let answered = fixture.run(&format!("printf 'last words {round}'; exit 7")).await;
            assert_eq!((answered.content, answered.metadata.exit_code), (format!("last words {round}"), 7));
        }
    }

    async fn errexit_ends_the_shell_with_the_right_code(fixture) {
        fixture.say("set -e").await;
        assert_eq!(fixture.say("echo still here").await, "still here");
        let answered = fixture.run("(exit 9); echo never").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("", 9));
        assert_eq!(fixture.say("echo new").await, "new");
    }

    async fn exec_ends_the_shell_when_the_program_ends(fixture) {
        let answered = fixture.run("exec sh -c 'echo replaced; exit 6'").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("replaced", 6));
        assert_eq!(fixture.say("echo new").await, "new");
    }

    async fn a_killed_shell_is_told_by_its_signal(fixture) {
        let answered = fixture.run("kill -9 $$").await;
        assert_eq!(answered.metadata.exit_code, 137);
        assert_eq!(fixture.say("echo new").await, "new");
    }

    async fn shell_death_is_reported_with_the_next_command_when_idle(fixture) {
        fixture.say("echo $$ >shell; (while [ ! -e go ]; do sleep 0.01; done; kill -9 $$) &").await;
        let shell = fixture.pid_in("shell").await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("the shell is gone", || !is_alive(shell)).await;
        let answered = fixture.run("echo new").await;
        assert_eq!((answered.content.as_str(), answered.metadata.exit_code), ("new", 0));
    }

    async fn new_shell_starts_when_the_working_directory_was_removed(fixture) {
        fixture.say("mkdir gone; cd gone; rmdir ../gone").await;
        fixture.run("exit 1").await;
        assert_eq!(fixture.say("pwd").await, fixture.path().to_str().unwrap());
    }

    async fn a_static_action_has_a_shell_of_its_own(fixture) {
        std::fs::create_dir(fixture.path().join("d")).unwrap();
        fixture.say("A=session").await;
        let fresh = RunAction { is_static: true, cwd: Some("d".into()), ..action("echo [$A]; pwd; A=static; exit 4") };
        let answered = fixture.act(fresh, None, CancellationToken::new()).await;
        assert_eq!(answered.content, format!("[]\n{}/d", fixture.path().display()));
        assert_eq!(answered.metadata.exit_code, 4);
        assert_eq!(fixture.say("echo $A; pwd").await, format!("session\n{}", fixture.path().display()));
    }

    async fn static_action_starts_in_the_initial_directory(fixture) {
        fixture.say("mkdir d; cd d").await;
        let fresh = RunAction { is_static: true, ..action("pwd") };
        let answered = fixture.act(fresh, None, CancellationToken::new()).await;
        assert_eq!(answered.content, fixture.path().to_str().unwrap());
    }

    async fn a_static_action_runs_beside_a_busy_session(fixture) {
        let cancel = CancellationToken::new();
        let busy = fixture.leave_running("echo busy; sleep 1000", "busy", cancel.clone()).await;
        let fresh = RunAction { is_static: true, ..action("echo beside") };
        assert_eq!(fixture.act(fresh, None, CancellationToken::new()).await.content, "beside");
        cancel.cancel();
        assert_eq!(busy.await.unwrap().metadata.exit_code, 137);
    }

    async fn a_static_action_in_no_folder_is_an_error(fixture) {
        let nowhere = RunAction { is_static: true, cwd: Some("nowhere".into()), ..action("pwd") };
        let observation = fixture.shell.run(nowhere, environment(&[]), None, Box::new(|_| {}), CancellationToken::new()).await;
        assert!(observation.content.starts_with("ERROR: "), "{}", observation.content);
    }

    async fn after_its_end_a_shell_answers_with_an_error(fixture) {
        fixture.shell.shut_down().await;
        let observation = fixture.shell.run(action("echo hi"), environment(&[]), None, Box::new(|_| {}), CancellationToken::new()).await;
        assert!(observation.content.starts_with("ERROR: "), "{}", observation.content);
    }
}

#[tokio::test]
async fn a_machine_without_a_shell_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let shell = Shell::start_program(config(folder.path()), ShellProgram::at("/no/such/shell".into()));
    let observation = shell
        .run(action("echo hi"), environment(&[]), None, Box::new(|_| {}), CancellationToken::new())
        .await;
    assert!(observation.content.contains("/no/such/shell"), "{}", observation.content);
    shell.shut_down().await;
}

#[tokio::test]
async fn a_shell_that_ends_at_once_is_an_error() {
    let folder = TempDir::new().unwrap();
    let shell = Shell::start_program(config(folder.path()), ShellProgram::at("/bin/true".into()));
    let observation = shell
        .run(action("echo hi"), environment(&[]), None, Box::new(|_| {}), CancellationToken::new())
        .await;
    assert!(observation.content.starts_with("ERROR: "), "{}", observation.content);
    shell.shut_down().await;
}
