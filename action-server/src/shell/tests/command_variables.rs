//! Variables that are injected into one command only.

use super::*;

/// Characters with a meaning in shells, and letters with bytes that shells use internally (0x81 to
/// 0x88).
const SPECIAL_CHARACTERS: &str =
    "it's \"q\" `x` $HOME \\n \\\n\tline 2\r\n ÁÂÃÄÅÆÇÈ € 秘密 \u{1}\u{7f} !! # ; & *";

/// Prints the variable as a child process and the shell itself see it.
const PRINT_VARIABLE: &str = "sh -c 'printf \"[%s]\" \"${T-unset}\"'; printf '[%s]' \"${T-unset}\"";

fn is_exported(text: &str) -> bool {
    text.contains(" T=")
}

impl Fixture {
    async fn run_with(&self, variables: &[(&str, &str)], command: &str) -> CommandObservation {
        self.act_with(variables, action(command), None, CancellationToken::new())
            .await
    }

    /// Checks that no part of `value` remains: for the next command, in the shell's variables and
    /// environment, and in the script file, which all processes of the shell can read.
    async fn assert_forgotten(&self, value: &str, after: &str) {
        let script = self.succeed("cat /proc/self/fd/250; echo").await;
        assert!(!script.contains(value), "after {after}: {script}");
        let left = self
            .succeed("env; set; export -p; cat /proc/$$/environ | tr '\\0' '\\n'")
            .await;
        assert!(!left.contains(value), "after {after}: {left}");
    }
}

on_every_shell! {
    async fn variables_are_visible_to_one_command_only(fixture) {
        let result = fixture.run_with(&[("T", "value-1"), ("U", "value-2")], &format!("{PRINT_VARIABLE}; echo $U")).await;
        assert_eq!(result.content, "[value-1][value-1]value-2");
        assert_eq!(result.metadata.suffix, completed(0));
        assert_eq!(fixture.succeed(PRINT_VARIABLE).await, "[unset][unset]");
        fixture.assert_forgotten("value-", "a command").await;
    }

    async fn values_arrive_unchanged(fixture) {
        let long = "0123456789abcdeé".repeat(4 << 10);
        for value in [SPECIAL_CHARACTERS, "\n", "'", "", "-x", " ", &long] {
            let result = fixture.run_with(&[("T", value)], "printf %s \"$T\" >own; sh -c 'printf %s \"$T\"' >inherited").await;
            assert_eq!(result.metadata.exit_code, 0, "{}", result.content);
            for file in ["own", "inherited"] {
                let arrived = std::fs::read(fixture.path().join(file)).unwrap();
                assert_eq!(String::from_utf8_lossy(&arrived), value);
            }
        }
        fixture.assert_forgotten("0123456789abcde", "long values").await;
    }

    async fn previous_variable_of_the_shell_is_restored(fixture) {
        fixture.succeed("T='a  b'\"'\"'c\nd'").await;
        assert_eq!(fixture.run_with(&[("T", "value")], PRINT_VARIABLE).await.content, "[value][value]");
        assert_eq!(fixture.succeed(PRINT_VARIABLE).await, "[unset][a  b'c\nd]");
        fixture.succeed("export T").await;
        assert_eq!(fixture.run_with(&[("T", "value")], PRINT_VARIABLE).await.content, "[value][value]");
        assert_eq!(fixture.succeed(PRINT_VARIABLE).await, "[a  b'c\nd][a  b'c\nd]");
        assert!(is_exported(&fixture.succeed("export -p").await));
        fixture.succeed("T=").await;
        fixture.run_with(&[("T", "value")], PRINT_VARIABLE).await;
        assert_eq!(fixture.succeed(PRINT_VARIABLE).await, "[][]");
    }

    async fn other_shell_state_is_kept(fixture) {
        fixture.run_with(&[("T", "value")], "mkdir d; cd d; A=a; export B=b; f() { echo f; }; set -- x y; (exit 3)").await;
        let shown = fixture.succeed("echo $? $A $B $(f) $# ${PWD##*/}").await;
        assert_eq!(shown, "3 a b f 2 d");
        fixture.run("(exit 4)").await;
        assert_eq!(fixture.run_with(&[("T", "value")], "echo $?").await.content, "4");
    }

    async fn exported_variable_is_forgotten_after_its_command(fixture) {
        for keeping in ["export T=$T", "export T", "readonly T", "readonly T; exit 5", "T=$T; unset T", "set -a"] {
            fixture.run_with(&[("T", "secret-value")], keeping).await;
            fixture.assert_forgotten("secret-value", keeping).await;
        }
    }

    async fn variables_are_injected_with_any_shell_options(fixture) {
        for options in ["set -e", "set -u", "set -f; IFS=e", "set -C"] {
            fixture.succeed(options).await;
            assert_eq!(fixture.run_with(&[("T", "secret-value")], "printf %s \"$T\"").await.content, "secret-value", "{options}");
            assert_eq!(fixture.succeed("printf %s \"${T-unset}\"").await, "unset", "{options}");
        }
        for trace in ["set -v", "exec 5>trace; BASH_XTRACEFD=5; set -x", "set -x"] {
            fixture.run_with(&[("T", "secret-value")], trace).await;
            let traced = fixture.run_with(&[("T", "secret-value")], "echo one").await;
            let in_file = std::fs::read_to_string(fixture.path().join("trace")).unwrap_or_default();
            assert!(!(traced.content + &in_file).contains("secret-value"), "{trace}: {in_file}");
            assert!(!fixture.succeed("echo two; set +xv").await.contains("secret-value"), "{trace}");
        }
        fixture.succeed("unset BASH_XTRACEFD").await;
        fixture.run_with(&[("T", "secret-value")], "set -x").await;
        let traced = fixture.run_with(&[("T", "secret-value")], "echo one").await;
        assert!(!traced.content.contains("secret-value"), "{}", traced.content);
        assert!(!fixture.succeed("echo two").await.contains("secret-value"));
    }

    async fn variables_are_forgotten_however_the_command_ends(fixture) {
        let variables = [("T", "secret-value")];
        for ending in ["exit 3", "return 3", "kill -9 $$", "echo 'unclosed", "exec sh -c 'exit 3'", "set -e; false", "if"] {
            fixture.run_with(&variables, &format!("cd .; {ending}")).await;
            fixture.assert_forgotten("secret-value", ending).await;
        }
        let cancel = CancellationToken::new();
        let waiting = RunAction { blocking: true, ..action("echo; echo $T >started; while :; do sleep 0.01; done") };
        let (cancelled, ()) = tokio::join!(fixture.act_with(&variables, waiting, None, cancel.clone()), async {
            eventually("the command runs", || fixture.path().join("started").exists()).await;
            cancel.cancel();
        });
        assert_eq!(cancelled.metadata.exit_code, 137, "{}", cancelled.content);
        fixture.assert_forgotten("secret-value", "a cancel").await;
    }

    async fn injected_value_is_kept_until_the_command_is_interrupted(fixture) {
        let variables = [("T", "secret-value")];
        let command = "sleep 1000 & echo; while [ ! -e go ]; do sleep 0.01; done; echo \"$T\"; cat";
        let limit = Some(Duration::from_millis(100));
        let first = fixture.act_with(&variables, action(command), limit, CancellationToken::new()).await;
        assert_eq!(first.metadata.exit_code, -1, "{}", first.content);
        std::fs::write(fixture.path().join("go"), "").unwrap();
        let typed = RunAction { is_input: true, ..action("typed") };
        let later = fixture.act_with(&variables, typed, limit, CancellationToken::new()).await;
        assert!(later.content.contains("secret-value") && later.content.contains("typed"), "{}", later.content);
        let interrupted = fixture.type_in("C-c").await;
        assert_eq!(interrupted.metadata.exit_code, 130, "{}", interrupted.content);
        fixture.assert_forgotten("secret-value", "an interrupt").await;
        fixture.run("kill %1 || kill $!").await;
    }

    async fn nested_shell_keeps_the_variables_of_its_command(fixture) {
        let inner = if fixture.succeed("echo ${BASH_VERSION-}").await.is_empty() { "sh" } else { "bash --norc --noediting" };
        let limit = Some(Duration::from_secs(1));
        fixture.act_with(&[("T", "secret-value")], action(inner), limit, CancellationToken::new()).await;
        let typed = RunAction { is_input: true, ..action(PRINT_VARIABLE) };
        let inside = fixture.act(typed, limit, CancellationToken::new()).await;
        assert!(inside.content.contains("[secret-value]"), "{}", inside.content);
        fixture.type_in("exit").await;
        assert_eq!(fixture.succeed(PRINT_VARIABLE).await, "[unset][unset]", "outside");
    }

    async fn static_action_has_the_variables(fixture) {
        let fresh = RunAction { is_static: true, ..action(PRINT_VARIABLE) };
        let result = fixture.act_with(&[("T", "value")], fresh.clone(), None, CancellationToken::new()).await;
        assert_eq!(result.content, "[value][value]");
        assert_eq!(fixture.act(fresh, None, CancellationToken::new()).await.content, "[unset][unset]");
    }

    async fn files_of_the_shell_do_not_contain_the_value(fixture) {
        // Without the terminal, whose input `cat` would consume. A pipe that the test runner left
        // open never ends.
        let files = "for f in /proc/$$/fd/*; do case $(readlink $f) in /dev/*) ;; *) timeout 0.1 cat $f;; esac; done";
        let round = format!("cat /proc/$$/environ /proc/$$/cmdline; {files}; : >looked");
        // The file exists before the background job opens it: without it, the loop below would end
        // immediately.
        fixture.succeed(&format!(": >seen; (while :; do {round}; done </dev/null >>seen 2>&1 &); echo started")).await;
        // The second round begins during the command. No `$(…)`: the job would read from its pipe.
        let wait = "rm -f looked; until [ -e looked ]; do sleep 0.01; done";
        let command = &format!(": >seen; echo $T; {wait}; {wait}");
        let result = fixture.run_with(&[("T", "secret-value")], command).await;
        assert_eq!(result.metadata.suffix, completed(0));
        let seen = std::fs::read(fixture.path().join("seen")).unwrap();
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.contains("PATH=") && !seen.contains("secret-value"), "{seen}");
    }

    async fn programs_do_not_inherit_the_channel(fixture) {
        let sockets = "sh -c 'for file in 9 250 251 252; do [ ! -S /proc/self/fd/$file ] || echo $file; done'";
        assert_eq!(fixture.run_with(&[("T", "value")], sockets).await.content, "");
    }

    async fn arguments_of_processes_do_not_contain_the_value(fixture) {
        let result = fixture.run_with(&[("T", "secret-value")], "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
        assert!(!result.content.contains("secret-value"), "{}", result.content);
    }
}
