//! Output belongs to the action that made it, whole or told to be cut.

use super::*;

on_every_shell! {
    async fn a_listener_gets_the_bytes_of_the_command_only(fixture) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        let output: OutputSink = Box::new(move |bytes| sink.lock().unwrap().extend_from_slice(bytes));
        let command = action("printf 'a\\033[31mb\\033[0m\\r\\nc'");
        let observation = fixture.shell.run(command, environment(&[]), None, output, CancellationToken::new()).await;
        assert_eq!(heard.lock().unwrap().as_slice(), b"a\x1b[31mb\x1b[0m\r\nc");
        assert_eq!(observation.content, "ab\nc");
    }

    async fn what_was_said_while_nobody_listened_is_heard_by_the_next(fixture) {
        fixture.run_for("while [ ! -e go ]; do sleep 0.01; done; echo between >said; echo between; read line", Duration::from_millis(100)).await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("said", || fixture.path().join("said").exists()).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        let output: OutputSink = Box::new(move |bytes| sink.lock().unwrap().extend_from_slice(bytes));
        let input = RunAction { is_input: true, ..action("x") };
        let observation = fixture.shell.run(input, environment(&[]), None, output, CancellationToken::new()).await;
        assert!(observation.content.starts_with("between"), "{}", observation.content);
        assert!(heard.lock().unwrap().starts_with(b"between\n"));
    }

    async fn background_output_is_not_the_next_commands(fixture) {
        fixture.say("{ while [ ! -e go ]; do sleep 0.01; done; echo stray; echo >said; } & echo started").await;
        std::fs::write(fixture.path().join("go"), "").unwrap();
        eventually("said", || fixture.path().join("said").exists()).await;
        let content = fixture.say("echo mine").await;
        assert!(content.ends_with("mine") && !content.contains("stray"), "{content}");
    }

    async fn a_background_job_lets_its_command_end(fixture) {
        let started = Instant::now();
        let answered = fixture.run("sleep 1000 & echo $! >sleeper").await;
        assert_eq!(answered.metadata.exit_code, 0);
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(is_alive(fixture.pid_in("sleeper").await));
    }

    async fn what_looks_like_a_mark_is_output(fixture) {
        let content = fixture.say("printf '\\033]0123456789abcdef;E;0;/tmp\\007after\\n'; env | grep -c GLOVEBOX_SESSION=; echo end").await;
        assert_eq!(content, "after\n1\nend");
    }

    async fn the_prompts_own_text_can_be_printed(fixture) {
        fixture.run("set; env; echo \"$PS1\"; echo \"$PROMPT_COMMAND\"; true").await;
        // Taken for a prompt, it would hide what comes later.
        let printed = fixture.say("set; export -p; sleep 0.05; echo end").await;
        assert_eq!(printed.lines().last(), Some("end"));
        assert_eq!(fixture.say("echo fine").await, "fine");
    }

    async fn long_output_is_cut_in_the_middle_and_that_is_told(fixture) {
        let answered = fixture.run("seq 1 20000").await;
        assert_eq!(answered.metadata.exit_code, 0);
        let (head, tail) = answered.content.split_once("\n[... Observation truncated due to length ...]\n").unwrap();
        assert!(head.starts_with("1\n2\n") && tail.ends_with("\n20000"), "{tail}");
        assert_eq!(head.len(), 15_000);
        assert!(answered.metadata.suffix.starts_with(&completed(0)));
        assert_eq!(answered.metadata.prefix, "[Previous command outputs are truncated.]\n");
        assert!(answered.metadata.suffix.contains("characters were left out"), "{}", answered.metadata.suffix);
    }

    async fn hidden_output_is_not_cut_for_the_agent(fixture) {
        let hidden = RunAction { hidden: true, ..action("seq 1 20000") };
        let answered = fixture.act(hidden, None, CancellationToken::new()).await;
        assert_eq!(answered.content.lines().count(), 20_000);
    }

    async fn ten_megabytes_pass_through(fixture) {
        let answered = fixture.run("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end").await;
        assert!(answered.content.ends_with("x\nend"));
        assert!(answered.content.len() < 31_000);
        assert!(answered.metadata.suffix.contains("\n[9970005 characters were left out"), "{}", answered.metadata.suffix);
    }

    async fn a_progress_bar_is_one_line(fixture) {
        assert_eq!(fixture.say("for i in 1 2 3; do printf \"\\r$i of 3\"; done; echo").await, "3 of 3");
    }

    async fn many_callers_each_get_their_own(fixture) {
        let fixture = Arc::new(fixture);
        let runs: Vec<_> = (0..50)
            .map(|number| {
                let fixture = Arc::clone(&fixture);
                tokio::spawn(async move { assert_eq!(fixture.say(&format!("echo {number}")).await, number.to_string()) })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
    }
}
