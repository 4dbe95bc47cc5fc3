//! Commands that keep the shell from reading the next one or from reporting its completion: each
//! command still completes, and none runs twice.

use nix::sys::signal::Signal;

use super::*;

impl Fixture {
    async fn shell_pid(&self) -> i32 {
        self.succeed("echo $$").await.parse().unwrap()
    }

    /// Checks that `command` and those after it complete, possibly in another shell.
    async fn assert_survives(&self, command: &str) {
        self.run(command).await;
        self.run("true").await;
        let result = self.run("echo fine").await;
        assert_eq!(
            (&*result.content, result.metadata.exit_code),
            ("fine", 0),
            "after {command}: {result:?}"
        );
    }
}

on_every_shell! {
    async fn shell_that_cannot_report_is_replaced(fixture) {
        for command in [
            "command() { :; }",
            "printf() { :; }",
            "readonly __glovebox_turn",
            "readonly __glovebox_line=3",
            "readonly __glovebox_saved=3",
            "unset -f __glovebox_restore __glovebox_next",
            "exec 9>&-",
        ] {
            fixture.assert_survives(command).await;
        }
    }

    async fn trapped_signals_lose_no_command(fixture) {
        let shell = fixture.shell_pid().await;
        fixture.succeed("trap 'echo usr1' USR1; trap 'echo child' CHLD").await;
        fixture.run("sleep 0.2 & :").await;
        for number in 0..20 {
            baseline::send(shell, Signal::SIGUSR1);
            let shown = fixture.succeed(&format!("echo {number}")).await;
            assert_eq!(shown.lines().filter(|line| !["usr1", "child"].contains(line)).collect::<Vec<_>>(), [number.to_string()]);
        }
    }

    async fn trapped_signal_at_idle_repeats_no_command(fixture) {
        let shell = fixture.shell_pid().await;
        fixture.succeed("trap : USR1 CHLD").await;
        fixture.succeed("echo run >>log; sleep 0.1 & sleep 0.2 & :").await;
        for _ in 0..10 {
            baseline::send(shell, Signal::SIGUSR1);
            sleep(Duration::from_millis(30)).await;
        }
        fixture.succeed("wait; :").await;
        assert_eq!(fixture.succeed("cat log").await, "run");
    }

    async fn command_that_changes_our_variables_runs_once(fixture) {
        fixture.succeed("case $BASH in '') set;; *) declare -p;; esac >saved 2>/dev/null; echo fine").await;
        for change in [
            ". ./saved 2>/dev/null",
            "unset __glovebox_turn __glovebox_ended", "unset __glovebox_saved",
            "__glovebox_saved=5", "__glovebox_line=false", "unset __glovebox_newline",
            "for name in $(set | sed -n 's/^\\(__[a-z_]*\\)=.*/\\1/p'); do unset $name; done",
        ] {
            for _ in 0..3 {
                fixture.run(&format!("echo run >>log; {change}")).await;
                assert_eq!(fixture.succeed("cat log; rm log").await, "run", "{change}");
            }
        }
    }

    async fn secret_of_a_command_cancelled_unread_is_forgotten(fixture) {
        let long = "true\n".repeat(30_000);
        for delay in [5, 20, 60, 150] {
            let cancel = CancellationToken::new();
            let running = fixture.act_with(&[("T", "value")], action(&long), None, cancel.clone());
            let cancelling = async {
                sleep(Duration::from_millis(delay)).await;
                cancel.cancel();
            };
            tokio::join!(running, cancelling);
            // Of a shell that was interrupted while it read, another one may take the place.
            let seen = fixture.run("echo \"[${T-unset}]\"; set | grep -c '[v]alue$' || :").await;
            assert_eq!((seen.content.as_str(), seen.metadata.exit_code), ("[unset]\n0", 0));
        }
    }

    async fn unreadable_command_is_not_sent_forever(fixture) {
        fixture.assert_survives("readonly IFS; echo one\necho two").await;
        fixture.assert_survives("readonly __glovebox_line").await;
    }

    async fn exit_status_survives_any_separator(fixture) {
        for separators in ["0123456789", "2"] {
            fixture.succeed(&format!("IFS={separators}")).await;
            for status in [5, 12, 127] {
                assert_eq!(fixture.run(&format!("(exit {status})")).await.metadata.exit_code, status);
            }
        }
    }

    async fn incomplete_escape_sequence_ends_with_its_command(fixture) {
        for start in ["\\033", "\\033]"] {
            fixture.run(&format!("printf 'abc{start}'")).await;
            assert_eq!(fixture.succeed("echo hi").await, "hi");
        }
    }

    async fn stray_interrupts_lose_and_repeat_no_command(fixture) {
        let shell = fixture.shell_pid().await;
        let interrupts = tokio::spawn(async move {
            for delay in (0..).map(|round| round * 37 % 11) {
                baseline::send(shell, Signal::SIGINT);
                sleep(Duration::from_millis(delay)).await;
            }
        });
        let mut completed = 0;
        for number in 0..200 {
            let result = fixture.run(&format!("echo {number} >>log")).await;
            let log = std::fs::read_to_string(fixture.path().join("log")).unwrap_or_default();
            let runs = log.lines().filter(|line| *line == number.to_string()).count();
            match result.metadata.exit_code {
                0 => assert_eq!(runs, 1, "{number}: {result:?}"),
// A bash that is interrupted twice runs the rest of the line that it was reading.
                126 | 127 | 130 => assert!(runs <= 1, "{number}: {result:?}"),
                _ => panic!("{number}: {result:?}"),
            }
            completed += runs;
        }
        interrupts.abort();
        assert!(completed > 20, "only {completed} of 200 commands ran");
        assert_eq!(fixture.shell_pid().await, shell);
    }

    async fn interrupt_behind_a_hidden_prompt_loses_no_command(fixture) {
        let shell = fixture.shell_pid().await;
        fixture.run("readonly PS1=x").await;
        baseline::send(shell, Signal::SIGINT);
        sleep(Duration::from_millis(50)).await;
        assert_eq!(fixture.succeed("echo fine; echo $$").await, format!("fine\n{shell}"));
    }

    async fn command_that_leaves_the_script_is_reported(fixture) {
        for status in 1..20 {
            assert_eq!(fixture.run(&format!("return {status}; echo never")).await.metadata.exit_code, status);
            assert_eq!(fixture.run("(exit 7)").await.metadata.exit_code, 7);
        }
        assert_eq!(fixture.succeed("break 2>/dev/null; continue 2>/dev/null; echo after").await, "after");
    }

    async fn many_lines_arrive_completely(fixture) {
        let lines: String = (0..2345).map(|number| format!("line {number}\n")).collect();
        assert_eq!(fixture.succeed(&format!("cat <<'END'\n{lines}END")).await, lines.trim_end());
    }

    async fn ended_jobs_are_announced_at_the_prompt(fixture) {
        fixture.succeed("sleep 0.1 & :").await;
        fixture.succeed("wait").await;
        fixture.succeed("sleep 0.1 & sleep 0.3").await;
        assert_eq!(fixture.succeed("jobs").await, "");
    }
}

#[tokio::test]
async fn bash_that_cannot_report_is_replaced() {
    run_on("bash", async |fixture: Fixture| {
        for command in [
            "ulimit -n 128",
            "set -r",
            "enable -n printf",
            "enable -n command",
            "exec 251>&-",
        ] {
            fixture.assert_survives(command).await;
        }
    })
    .await;
}

#[tokio::test]
async fn descriptors_from_ten_are_the_commands_own_in_bash() {
    run_on("bash", async |fixture: Fixture| {
        for descriptor in 10..14 {
            fixture
                .succeed(&format!(
                    "exec {descriptor}>file{descriptor}; echo written >&{descriptor}"
                ))
                .await;
            assert_eq!(
                fixture.succeed(&format!("cat file{descriptor}")).await,
                "written"
            );
            fixture
                .succeed(&format!("exec {descriptor}>&-; ! true >&{descriptor}"))
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn variables_are_injected_when_bash_reads_assignment_words() {
    run_on("bash", async |fixture: Fixture| {
        fixture.succeed("set -k").await;
        let variables = [("T", "value")];
        let result = fixture
            .act_with(
                &variables,
                action("echo \"[$T]$-\""),
                None,
                CancellationToken::new(),
            )
            .await;
        assert!(
            result.content.starts_with("[value]") && result.content.contains('k'),
            "{result:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn bash_that_times_out_at_idle_loses_no_command() {
    run_on("bash", async |fixture: Fixture| {
        let shell = fixture.shell_pid().await;
        fixture.succeed("TMOUT=1").await;
        sleep(Duration::from_millis(2200)).await;
        assert_eq!(
            fixture.succeed("echo fine; echo $$").await,
            format!("fine\n{shell}")
        );
    })
    .await;
}

#[tokio::test]
async fn prompt_command_runs_after_each_command() {
    run_on("bash", async |fixture: Fixture| {
        fixture.succeed("n=0; PROMPT_COMMAND='n=$((n+1))'").await;
        fixture.succeed("true").await;
        assert_eq!(fixture.succeed("echo $n").await, "2");
    })
    .await;
}
