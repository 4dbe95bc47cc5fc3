//! Variables that one command has, and no other.

use super::*;

/// What a shell's own language could trip over, and letters of which it uses the bytes itself (0x81 to 0x88).
const HARD: &str = "it's \"q\" `x` $HOME \\n \\\n\tline 2\r\n ÁÂÃÄÅÆÇÈ € 秘密 \u{1}\u{7f} !! # ; & *";

/// Says what a command's own environment and its children's hold, and the shell itself.
const LOOK: &str = "sh -c 'printf \"[%s]\" \"${T-unset}\"'; printf '[%s]' \"${T-unset}\"";

fn is_exported(text: &str) -> bool {
    text.contains(" T=")
}

impl Fixture {
    async fn with(&self, lent: &[(&str, &str)], command: &str) -> Answered {
        self.act_with(lent, action(command), None, CancellationToken::new()).await
    }

    /// That nothing of `value` is left: not for the next command, not in what the shell shows of itself, and not in the
    /// file that the shell reads, which everything the shell has started can read.
    async fn assert_forgotten(&self, value: &str, after: &str) {
        let script = self.say("cat /proc/self/fd/250; echo").await;
        assert!(!script.contains(value), "after {after}: {script}");
        let left = self.say("env; set; export -p; cat /proc/$$/environ | tr '\\0' '\\n'").await;
        assert!(!left.contains(value), "after {after}: {left}");
    }
}

on_every_shell! {
    async fn a_command_has_what_is_lent_to_it_and_the_next_has_not(fixture) {
        let answered = fixture.with(&[("T", "value-1"), ("U", "value-2")], &format!("{LOOK}; echo $U")).await;
        assert_eq!(answered.content, "[value-1][value-1]value-2");
        assert_eq!(answered.metadata.suffix, completed(0));
        assert_eq!(fixture.say(LOOK).await, "[unset][unset]");
        fixture.assert_forgotten("value-", "a command").await;
    }

    async fn every_value_arrives_as_it_is(fixture) {
        let long = "0123456789abcdeé".repeat(4 << 10);
        for value in [HARD, "\n", "'", "", "-x", " ", &long] {
            let answered = fixture.with(&[("T", value)], "printf %s \"$T\" >told; sh -c 'printf %s \"$T\"' >heard").await;
            assert_eq!(answered.metadata.exit_code, 0, "{}", answered.content);
            for file in ["told", "heard"] {
                let arrived = std::fs::read(fixture.path().join(file)).unwrap();
                assert_eq!(String::from_utf8_lossy(&arrived), value);
            }
        }
        fixture.assert_forgotten("0123456789abcde", "long values").await;
    }

    async fn what_the_shell_had_before_it_has_again(fixture) {
        fixture.say("T='a  b'\"'\"'c\nd'").await;
        assert_eq!(fixture.with(&[("T", "lent")], LOOK).await.content, "[lent][lent]");
        assert_eq!(fixture.say(LOOK).await, "[unset][a  b'c\nd]");
        fixture.say("export T").await;
        assert_eq!(fixture.with(&[("T", "lent")], LOOK).await.content, "[lent][lent]");
        assert_eq!(fixture.say(LOOK).await, "[a  b'c\nd][a  b'c\nd]");
        assert!(is_exported(&fixture.say("export -p").await));
        fixture.say("T=").await;
        fixture.with(&[("T", "lent")], LOOK).await;
        assert_eq!(fixture.say(LOOK).await, "[][]");
    }

    async fn the_rest_of_the_shells_state_stays(fixture) {
        fixture.with(&[("T", "lent")], "mkdir d; cd d; A=a; export B=b; f() { echo f; }; set -- x y; (exit 3)").await;
        let said = fixture.say("echo $? $A $B $(f) $# ${PWD##*/}").await;
        assert_eq!(said, "3 a b f 2 d");
        fixture.run("(exit 4)").await;
        assert_eq!(fixture.with(&[("T", "lent")], "echo $?").await.content, "4");
    }

    async fn a_command_that_exports_what_is_lent_does_not_keep_it(fixture) {
        for keeping in ["export T=$T", "export T", "readonly T", "readonly T; exit 5", "T=$T; unset T", "set -a"] {
            fixture.with(&[("T", "lent-value")], keeping).await;
            fixture.assert_forgotten("lent-value", keeping).await;
        }
    }

    async fn options_of_the_shell_change_nothing(fixture) {
        for options in ["set -e", "set -u", "set -f; IFS=e", "set -C"] {
            fixture.say(options).await;
            assert_eq!(fixture.with(&[("T", "lent-value")], "printf %s \"$T\"").await.content, "lent-value", "{options}");
            assert_eq!(fixture.say("printf %s \"${T-unset}\"").await, "unset", "{options}");
        }
        for trace in ["set -v", "exec 5>trace; BASH_XTRACEFD=5; set -x", "set -x"] {
            fixture.with(&[("T", "lent-value")], trace).await;
            let traced = fixture.with(&[("T", "lent-value")], "echo one").await;
            let in_file = std::fs::read_to_string(fixture.path().join("trace")).unwrap_or_default();
            assert!(!(traced.content + &in_file).contains("lent-value"), "{trace}: {in_file}");
            assert!(!fixture.say("echo two; set +xv").await.contains("lent-value"), "{trace}");
        }
        fixture.say("unset BASH_XTRACEFD").await;
        fixture.with(&[("T", "lent-value")], "set -x").await;
        let traced = fixture.with(&[("T", "lent-value")], "echo one").await;
        assert!(!traced.content.contains("lent-value"), "{}", traced.content);
        assert!(!fixture.say("echo two").await.contains("lent-value"));
    }

    async fn however_a_command_ends_it_gives_back_what_was_lent(fixture) {
        let lent = [("T", "lent-value")];
        for ending in ["exit 3", "return 3", "kill -9 $$", "echo 'unclosed", "exec sh -c 'exit 3'", "set -e; false", "if"] {
            fixture.with(&lent, &format!("cd .; {ending}")).await;
            fixture.assert_forgotten("lent-value", ending).await;
        }
        let cancel = CancellationToken::new();
        let waiting = RunAction { blocking: true, ..action("echo; echo $T >begun; while :; do sleep 0.01; done") };
        let (cancelled, ()) = tokio::join!(fixture.act_with(&lent, waiting, None, cancel.clone()), async {
            eventually("it runs", || fixture.path().join("begun").exists()).await;
            cancel.cancel();
        });
        assert_eq!(cancelled.metadata.exit_code, 137, "{}", cancelled.content);
        fixture.assert_forgotten("lent-value", "a cancel").await;
    }

    async fn injected_value_is_kept_until_the_command_is_interrupted(fixture) {
        let lent = [("T", "lent-value")];
        let command = "sleep 1000 & echo; while [ ! -e go ]; do sleep 0.01; done; echo \"$T\"; cat";
        let limit = Some(Duration::from_millis(100));
        let first = fixture.act_with(&lent, action(command), limit, CancellationToken::new()).await;
        assert_eq!(first.metadata.exit_code, -1, "{}", first.content);
        std::fs::write(fixture.path().join("go"), "").unwrap();
        let typed = RunAction { is_input: true, ..action("typed") };
        let later = fixture.act_with(&lent, typed, limit, CancellationToken::new()).await;
        assert!(later.content.contains("lent-value") && later.content.contains("typed"), "{}", later.content);
        let interrupted = fixture.type_in("C-c").await;
        assert_eq!(interrupted.metadata.exit_code, 130, "{}", interrupted.content);
        fixture.assert_forgotten("lent-value", "an interrupt").await;
        fixture.run("kill %1 || kill $!").await;
    }

    async fn nested_shell_keeps_what_the_outer_gives_back(fixture) {
        let inner = if fixture.say("echo ${BASH_VERSION-}").await.is_empty() { "sh" } else { "bash --norc --noediting" };
        let limit = Some(Duration::from_secs(1));
        fixture.act_with(&[("T", "lent-value")], action(inner), limit, CancellationToken::new()).await;
        let typed = RunAction { is_input: true, ..action(LOOK) };
        let inside = fixture.act(typed, limit, CancellationToken::new()).await;
        assert!(inside.content.contains("[lent-value]"), "{}", inside.content);
        fixture.type_in("exit").await;
        assert_eq!(fixture.say(LOOK).await, "[unset][unset]", "outside");
    }

    async fn a_shell_of_its_own_has_what_is_lent_too(fixture) {
        let fresh = RunAction { is_static: true, ..action(LOOK) };
        let answered = fixture.act_with(&[("T", "lent")], fresh.clone(), None, CancellationToken::new()).await;
        assert_eq!(answered.content, "[lent][lent]");
        assert_eq!(fixture.act(fresh, None, CancellationToken::new()).await.content, "[unset][unset]");
    }

    async fn no_file_of_the_shell_reveals_it(fixture) {
        // Without the terminal, whose input `cat` would take. A pipe that the test runner left open never ends.
        let files = "for f in /proc/$$/fd/*; do case $(readlink $f) in /dev/*) ;; *) timeout 0.1 cat $f;; esac; done";
        let look = format!("while :; do cat /proc/$$/environ /proc/$$/cmdline; {files}; done </dev/null >>seen 2>&1 &");
        // The file exists before the background job opens it: without it, the loop below would end immediately.
        fixture.say(&format!(": >seen; ({look}); echo started")).await;
        let command = ": >seen; echo $T; while [ \"$(wc -c <seen)\" -lt 50000 ]; do sleep 0.01; done";
        let answered = fixture.with(&[("T", "lent-value")], command).await;
        assert_eq!(answered.metadata.suffix, completed(0));
        let seen = std::fs::read(fixture.path().join("seen")).unwrap();
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.contains("PATH=") && !seen.contains("lent-value"), "{seen}");
    }

    async fn no_other_process_is_told_it_by_its_arguments(fixture) {
        let answered = fixture.with(&[("T", "lent-value")], "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
        assert!(!answered.content.contains("lent-value"), "{}", answered.content);
    }
}
