//! Output belongs to the action that produced it, complete or truncated with a note.

use super::*;

on_every_shell! {
    async fn output_sink_receives_only_bytes_of_the_command(fixture) {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&received);
        let output: OutputSink = Box::new(move |bytes| sink.lock().unwrap().extend_from_slice(bytes));
        let command = action("printf 'a\\033[31mb\\033[0m\\r\\nc'");
        let observation = fixture.shell.run(command, environment(&[]), None, output, CancellationToken::new()).await;
        assert_eq!(received.lock().unwrap().as_slice(), b"a\x1b[31mb\x1b[0m\r\nc");
        assert_eq!(observation.content, "ab\nc");
    }

    async fn output_without_a_reader_goes_to_the_next_action(fixture) {
        fixture.run_for("while [ ! -e go ]; do sleep 0.01; done; echo between >done; echo between; read line", Duration::from_millis(100)).await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("done", || fixture.path().join("done").exists()).await;
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&received);
        let output: OutputSink = Box::new(move |bytes| sink.lock().unwrap().extend_from_slice(bytes));
        let input = RunAction { is_input: true, ..action("x") };
        let observation = fixture.shell.run(input, environment(&[]), None, output, CancellationToken::new()).await;
        assert!(observation.content.starts_with("between"), "{}", observation.content);
        assert!(received.lock().unwrap().starts_with(b"between\n"));
    }

    async fn background_output_is_not_part_of_the_next_command(fixture) {
        fixture.succeed("{ while [ ! -e go ]; do sleep 0.01; done; echo stray; echo >done; } & echo started").await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("done", || fixture.path().join("done").exists()).await;
        let content = fixture.succeed("echo mine").await;
        assert!(content.ends_with("mine") && !content.contains("stray"), "{content}");
    }

    async fn command_completes_while_its_background_job_runs(fixture) {
        let started = Instant::now();
        let result = fixture.run("sleep 1000 & echo $! >sleeper").await;
        assert_eq!(result.metadata.exit_code, 0);
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(is_alive(fixture.pid_in("sleeper").await));
    }

    async fn text_like_a_mark_is_output(fixture) {
        let content = fixture.succeed("printf '\\033]0123456789abcdef;E;0;/tmp\\007after\\n'; env | grep -c GLOVEBOX_SESSION=; echo end").await;
        assert_eq!(content, "after\n1\nend");
    }

    async fn text_of_the_prompt_can_be_printed(fixture) {
        fixture.run("set; env; echo \"$PS1\"; echo \"$PROMPT_COMMAND\"; true").await;
// Mistaken for a prompt, it would hide the later output.
        let printed = fixture.succeed("set; export -p; sleep 0.05; echo end").await;
        assert_eq!(printed.lines().last(), Some("end"));
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }

    async fn long_output_is_truncated_in_the_middle_with_a_note(fixture) {
        let result = fixture.run("seq 1 20000").await;
        assert_eq!(result.metadata.exit_code, 0);
        let (head, tail) = result.content.split_once("\n[... Observation truncated due to length ...]\n").unwrap();
        assert!(head.starts_with("1\n2\n") && tail.ends_with("\n20000"), "{tail}");
        assert_eq!(head.len(), 15_000);
        assert!(result.metadata.suffix.starts_with(&completed(0)));
        assert_eq!(result.metadata.prefix, "[Previous command outputs are truncated.]\n");
        assert!(result.metadata.suffix.contains("characters were left out"), "{}", result.metadata.suffix);
    }

    async fn hidden_output_is_not_truncated(fixture) {
        let hidden = RunAction { hidden: true, ..action("seq 1 20000") };
        let result = fixture.act(hidden, None, CancellationToken::new()).await;
        assert_eq!(result.content.lines().count(), 20_000);
    }

    async fn ten_megabytes_of_output_are_truncated(fixture) {
        let result = fixture.run("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end").await;
        assert!(result.content.ends_with("x\nend"));
        assert!(result.content.len() < 31_000);
        assert!(result.metadata.suffix.contains("\n[9970005 characters were left out"), "{}", result.metadata.suffix);
    }

    async fn progress_bar_is_one_line(fixture) {
        assert_eq!(fixture.succeed("for i in 1 2 3; do printf \"\\r$i of 3\"; done; echo").await, "3 of 3");
    }

    async fn concurrent_callers_get_their_own_output(fixture) {
        let fixture = Arc::new(fixture);
        let runs: Vec<_> = (0..50)
            .map(|number| {
                let fixture = Arc::clone(&fixture);
                tokio::spawn(async move { assert_eq!(fixture.succeed(&format!("echo {number}")).await, number.to_string()) })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
    }
}
