//! Commands that damage their shell or terminal: the session survives.

use super::*;

on_every_shell! {
    async fn terminal_settings_are_repaired(fixture) {
        let damages = ["stty raw", "stty -icanon min 0 time 0", "stty -isig -icrnl", "stty opost ixon", "stty intr '^X'"];
        for damage in damages {
            fixture.run(damage).await;
// A shell that reads the end of its input at its prompt exits, and this runs in a new one.
            let result = fixture.run("echo hi").await;
            assert_eq!(result.content, "hi", "{damage}: {result:?}");
            let settings = fixture.run("sleep 0.2; stty -a").await.content;
            let settings: Vec<_> = settings.split([' ', ';', '\n']).collect();
            for expected in ["icanon", "isig", "icrnl", "-opost", "-ixon", "^C"] {
                assert!(settings.contains(&expected), "{damage}: {expected} is not in {settings:?}");
            }
        }
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn user_prompt_changes_nothing(fixture) {
        fixture.succeed("PS1='> '; PS2='more '; PROMPT_COMMAND='echo mine'").await;
        assert_eq!(fixture.succeed("echo hi").await, "hi");
        fixture.succeed("unset PS1 PS2 PROMPT_COMMAND").await;
        assert_eq!(fixture.succeed("echo a\necho b").await, "a\nb");
        fixture.run("PROMPT_COMMAND=false; (exit 4)").await;
        assert_eq!(fixture.run("(exit 5)").await.metadata.exit_code, 5);
    }

    async fn commands_of_any_text_run(fixture) {
        assert_eq!(fixture.succeed("echo 'it'\\''s' \"$(printf '%s' '`x`')\" # \u{e9}").await, "it's `x`");
        assert_eq!(fixture.run("-x").await.metadata.exit_code, 127);
        let quotes = "'".repeat(2000);
        assert!(fixture.succeed(&format!("echo \"{quotes}\"")).await == quotes);
        assert_eq!(fixture.succeed("printf 'a\tb'; :\t").await, "a\tb");
        fixture.run("eval() { echo mine; }").await;
        assert_eq!(fixture.succeed("unset -f eval; echo fine").await.lines().last(), Some("fine"));
    }

    async fn working_directory_of_any_name_is_known(fixture) {
        let name = "a$(touch pwned)`touch pwned`;'\u{e9}";
        std::fs::create_dir(fixture.path().join(name)).unwrap();
        fixture.succeed("cd ./a*").await;
        assert_eq!(fixture.shell.working_dir(), fixture.path().join(name));
        fixture.succeed("cd ..").await;
        assert!(!fixture.path().join("pwned").exists());
    }

    async fn trace_shows_only_the_user_s_commands(fixture) {
        fixture.succeed("set -x").await;
        let traced = fixture.succeed("echo hi").await;
        assert!(traced.ends_with("echo hi\nhi"), "{traced}");
        assert_eq!(traced.lines().count(), 2, "{traced}");
        let traced = fixture.run("(exit 2)").await;
        assert_eq!(traced.metadata.exit_code, 2);
        fixture.run("set +x").await;
        assert_eq!(fixture.succeed("echo hi").await, "hi");
    }

    async fn strict_modes_break_no_command(fixture) {
        fixture.succeed("set -u; set -f").await;
        assert_eq!(fixture.succeed("echo *").await, "*");
        fixture.run("echo $UNSET_VARIABLE").await;
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn exit_is_reported_when_the_shell_is_redirected(fixture) {
        fixture.succeed("exec 3>&1 4>&2 >out 2>err").await;
        assert_eq!(fixture.succeed("echo hidden").await, "");
        fixture.succeed("exec >&3 2>&4").await;
        // ash writes its prompts there too.
        assert_eq!(fixture.succeed("grep -c hidden out").await, "1");
    }

    async fn shell_without_standard_input_is_replaced(fixture) {
        fixture.run("exec </dev/null").await;
        fixture.run("true").await;
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn exit_traps_of_the_user_run(fixture) {
        fixture.succeed("trap 'echo leaving' EXIT").await;
        let result = fixture.run("exit 3").await;
        assert_eq!((result.content.as_str(), result.metadata.exit_code), ("leaving", 3));
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn shell_exit_is_seen_when_a_process_holds_the_terminal(fixture) {
        let result = fixture.run("sleep 1000 & echo $! >sleeper; exit 8").await;
        assert_eq!(result.metadata.exit_code, 8);
        let sleeper = fixture.pid_in("sleeper").await;
        baseline::send(sleeper, nix::sys::signal::Signal::SIGKILL);
    }

    async fn large_environment_breaks_no_command(fixture) {
        let export = "big=$(head -c 100000 /dev/zero | tr '\\0' x)\n\
                      for i in 1 2 3 4 5 6 7 8 9 10; do export \"BIG$i=$big\"; done";
        fixture.succeed(export).await;
        assert_eq!(fixture.succeed("env | wc -c | awk '{ print ($1 > 1000000) }'").await, "1");
    }

    async fn pagers_are_off(fixture) {
        let commands = "git init -q . && git config user.email a@b && git config user.name c\n\
                        for i in $(seq 60); do git commit -q --allow-empty -m \"commit $i\"; done\n\
                        git log --oneline | wc -l; git log | tail -n 1";
        if skip_without("git") {
            return;
        }
        assert_eq!(fixture.succeed(commands).await.split_whitespace().next(), Some("60"));
        assert_eq!(fixture.succeed("git log --oneline").await.lines().count(), 60);
    }

    async fn binary_output_breaks_no_command(fixture) {
        let result = fixture.run_for("head -c 200000 /dev/urandom", Duration::from_secs(10)).await;
        assert_eq!(result.metadata.exit_code, 0);
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }
}

/// Time in which a shell reaches its prompt.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(2);

impl Fixture {
    /// Types `text` to a program that waits for input and returns its output.
    async fn type_to_waiting(&self, text: &str) -> String {
        let input = RunAction {
            is_input: true,
            ..action(text)
        };
        let result = self
            .act(input, Some(PROMPT_TIMEOUT), CancellationToken::new())
            .await;
        assert_eq!(result.metadata.exit_code, -1, "{result:?}");
        result.content
    }
}

#[tokio::test]
async fn nested_bash_is_a_program_that_waits_for_input() {
    run_on("bash", async |fixture: Fixture| {
        fixture.succeed("A=outer").await;
        let result = fixture.run_for("bash --norc", PROMPT_TIMEOUT).await;
        assert_eq!(result.metadata.exit_code, -1, "{result:?}");
        assert!(
            fixture
                .type_to_waiting("A=inner; echo $((6 * 7))")
                .await
                .contains("42")
        );
        assert_eq!(fixture.type_in("exit 7").await.metadata.exit_code, 7);
        assert_eq!(
            fixture.succeed("echo $A; pwd").await,
            format!("outer\n{}", fixture.path().display())
        );
    })
    .await;
}

#[tokio::test]
async fn bash_that_replaces_the_shell_ends_the_session() {
    run_on("bash", async |fixture: Fixture| {
        let result = fixture
            .run_for("export A=kept; exec bash --norc", PROMPT_TIMEOUT)
            .await;
        assert_eq!(result.metadata.exit_code, -1, "{result:?}");
        assert!(
            result.metadata.suffix.contains("replaced the shell"),
            "{result:?}"
        );
        assert!(fixture.type_to_waiting("echo $A").await.contains("kept"));
        let result = fixture.type_in("exit 3").await;
        assert_eq!(result.metadata.exit_code, 3);
        assert!(
            result.metadata.suffix.contains("It ended the shell"),
            "{result:?}"
        );
        assert_eq!(fixture.succeed("echo [$A]").await, "[]");
    })
    .await;
}

#[tokio::test]
async fn prompts_on_another_terminal_are_ignored() {
    run_on("bash", async |fixture: Fixture| {
        if skip_without("script") {
            return;
        }
        let result = fixture
            .run("printf 'echo inner\\nexit 5\\n' | script -qec 'bash --norc' /dev/null; echo status $?")
            .await;
        assert!(result.content.contains("inner"), "{}", result.content);
        assert!(result.content.ends_with("status 5"), "{}", result.content);
    })
    .await;
}

#[tokio::test]
async fn history_expansion_is_off() {
    run_on("bash", async |fixture: Fixture| {
        assert_eq!(
            fixture.succeed("echo 'a!b' \"c!d\" e!f").await,
            "a!b c!d e!f"
        );
    })
    .await;
}

#[tokio::test]
async fn interrupted_command_ends_when_it_changed_the_prompt() {
    run_on("bash", async |fixture: Fixture| {
        for damage in [
            "PS1='> '",
            "PROMPT_COMMAND=false",
            "unset PS1; IFS=,",
            "exec 2>err",
        ] {
            fixture
                .run_for(&format!("{damage}; sleep 1000"), Duration::from_millis(300))
                .await;
            assert_eq!(
                fixture.type_in("C-c").await.metadata.exit_code,
                130,
                "{damage}"
            );
            assert_eq!(
                fixture.succeed("IFS=' '; exec 2>/dev/tty; echo fine").await,
                "fine",
                "{damage}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn shell_of_another_user_waits_for_input() {
    run_on("bash", async |fixture: Fixture| {
        if !nix::unistd::geteuid().is_root() {
            return skip(
                Requirement::Root,
                "only root becomes another user without a password",
            );
        }
        if skip_without("su") {
            return;
        }
        fixture.succeed("cd /").await;
        fixture
            .run_for("su nobody -s /bin/bash", PROMPT_TIMEOUT)
            .await;
        assert!(fixture.type_to_waiting("id -un").await.contains("nobody"));
        assert_eq!(fixture.type_in("exit 6").await.metadata.exit_code, 6);
        assert_eq!(fixture.succeed("id -un").await, "root");
    })
    .await;
}

#[tokio::test]
async fn bash_reports_status_and_errors_as_usual() {
    run_on("bash", async |fixture: Fixture| {
        assert_eq!(
            fixture.succeed("false | true; echo ${PIPESTATUS[@]}").await,
            "1 0"
        );
        for open in [
            "echo \"abc",
            "echo 'abc",
            "[[ a",
            "[[ -f x",
            "echo `",
            "echo ${",
            "((1+",
            "[[ a b ]]",
        ] {
            assert_eq!(fixture.run("true").await.metadata.exit_code, 0);
            assert_eq!(fixture.run(open).await.metadata.exit_code, 2, "{open}");
            assert_eq!(fixture.succeed("echo $?").await, "2", "{open}");
        }
        fixture.run("A=kept; exec no-such-program").await;
        assert_eq!(fixture.succeed("echo $? $A").await, "127 kept");
        fixture.run("trap 'echo failed' ERR").await;
        // Once for the command and once for the `eval` around it.
        assert_eq!(fixture.run("false").await.content, "failed\nfailed");
    })
    .await;
}

#[tokio::test]
async fn commands_complete_when_the_prompt_cannot_be_reset() {
    for damage in [
        "readonly PS1=x",
        "PS1='$ '; readonly PS1",
        "readonly PROMPT_COMMAND; PS1=x",
        "shopt -u promptvars",
    ] {
        run_on("bash", async |fixture: Fixture| {
            fixture.run("echo started").await;
            fixture.run_for(damage, Duration::from_secs(5)).await;
            for number in 0..3 {
                let result = fixture
                    .run_for(&format!("echo {number}"), Duration::from_secs(5))
                    .await;
                assert_eq!(
                    (result.content.lines().next(), result.metadata.exit_code),
                    (Some(&*number.to_string()), 0),
                    "{damage}"
                );
            }
        })
        .await;
    }
}
