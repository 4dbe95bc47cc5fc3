//! `run`: the observations of a command, after its exit and after timeouts.

use serde_json::json;

use super::{V0Sandbox, content, exit_code, metadata};

const MORE: &str = "[Below is the output of the previous command.]\n";

#[tokio::test(flavor = "multi_thread")]
async fn completed_command_has_all_its_metadata() {
    let sandbox = V0Sandbox::start();
    let result = sandbox.run("echo hi; cd /tmp; false").await;
    assert_eq!(
        (content(&result), result["observation"].as_str()),
        ("hi", Some("run"))
    );
    assert_eq!(result["extras"]["command"], "echo hi; cd /tmp; false");
    assert_eq!(
        (
            result["extras"]["hidden"].as_bool(),
            result["success"].as_bool()
        ),
        (Some(false), Some(false))
    );
    assert!(result["message"].is_string());
    assert_eq!((exit_code(&result), metadata(&result, "prefix")), (1, ""));
    assert_eq!(
        metadata(&result, "suffix"),
        "\n[The command completed with exit code 1.]"
    );
    assert_eq!(metadata(&result, "working_dir"), "/tmp");
    let names = result["extras"]["metadata"].as_object().unwrap();
    for name in ["pid", "username", "hostname", "py_interpreter_path"] {
        assert!(names.contains_key(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_continues_after_a_timeout() {
    let sandbox = V0Sandbox::start();
    let hard = sandbox
        .run_with(
            1.0,
            json!({"command": "echo one; cat; echo two", "blocking": true}),
        )
        .await;
    assert_eq!(
        (exit_code(&hard), content(&hard), metadata(&hard, "prefix")),
        (-1, "one", "")
    );
    assert!(
        metadata(&hard, "suffix").starts_with("\n[The command timed out after 1.0 seconds."),
        "{hard}"
    );
    for way in ["empty command", "is_input", "C-c"] {
        assert!(metadata(&hard, "suffix").contains(way), "{hard}");
    }
    let refused = sandbox.run("echo other").await;
    assert_eq!(
        (
            exit_code(&refused),
            content(&refused),
            metadata(&refused, "prefix")
        ),
        (-1, "", MORE)
    );
    let expected =
        "\n[Your command \"echo other\" is NOT executed. The previous command is still running";
    assert!(
        metadata(&refused, "suffix").starts_with(expected),
        "{refused}"
    );
    let silent = sandbox.run("").await;
    assert_eq!(
        (exit_code(&silent), metadata(&silent, "prefix")),
        (-1, MORE)
    );
    // This server was started with a second; clients name the default of ten.
    assert!(
        metadata(&silent, "suffix")
            .starts_with("\n[The command has no new output after 1 seconds."),
        "{silent}"
    );
    let typed = sandbox
        .run_with(120.0, json!({"command": "hello", "is_input": true}))
        .await;
    assert!(content(&typed).starts_with("hello"), "{typed}");
    let ended = sandbox
        .run_with(120.0, json!({"command": " C-d ", "is_input": true}))
        .await;
    assert_eq!(
        (
            content(&ended),
            metadata(&ended, "prefix"),
            exit_code(&ended)
        ),
        ("two", MORE, 0)
    );
    assert_eq!(
        metadata(&ended, "suffix"),
        "\n[The command completed with exit code 0. CTRL+D was sent.]"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_of_zero_means_no_timeout() {
    let sandbox = V0Sandbox::start();
    let result = sandbox
        .run_with(0.0, json!({"command": "sleep 0.2; echo hi"}))
        .await;
    assert_eq!((content(&result), exit_code(&result)), ("hi", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_terminate_the_running_command() {
    let sandbox = V0Sandbox::start();
    let first = sandbox
        .run_with(0.2, json!({"command": "sleep 1000"}))
        .await;
    assert_eq!(exit_code(&first), -1);
    let ended = sandbox
        .run_with(120.0, json!({"command": "C-c", "is_input": true}))
        .await;
    assert_eq!(exit_code(&ended), 130);
    assert!(
        metadata(&ended, "suffix").ends_with("exit code 130. CTRL+C was sent.]"),
        "{ended}"
    );
    sandbox
        .run_with(0.2, json!({"command": "sleep 1000"}))
        .await;
    let stopped = sandbox
        .run_with(120.0, json!({"command": "C-z", "is_input": true}))
        .await;
    assert!(
        metadata(&stopped, "suffix").ends_with("exit code 148. CTRL+Z was sent.]"),
        "{stopped}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_an_error_when_no_command_runs() {
    let sandbox = V0Sandbox::start();
    for command in ["", " \n "] {
        let result = sandbox.run(command).await;
        assert_eq!(
            content(&result),
            "ERROR: No previous running command to retrieve logs from."
        );
    }
    let result = sandbox
        .run_with(120.0, json!({"command": "y", "is_input": true}))
        .await;
    assert_eq!(
        content(&result),
        "ERROR: No previous running command to interact with."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn command_may_have_many_lines() {
    let sandbox = V0Sandbox::start();
    for (command, expected) in [
        ("echo 'a\nb'", "a\nb"),
        ("for i in 1 2\ndo\n  echo $i\ndone", "1\n2"),
        ("f() {\n  echo f\n}", ""),
        ("f &&\n  f", "f\nf"),
        ("cat <<'EOF'\n$x\nEOF\n", "$x"),
        ("echo a \\\n  b", "a b"),
        ("# why\necho c\n", "c"),
        ("echo a\ncat <<EOF\nx\nEOF\n\necho b # last", "a\nx\nb"),
        (
            "touch x.txt && find . -name 'x.*' -exec echo {} \\;",
            "./x.txt",
        ),
    ] {
        let result = sandbox.run(command).await;
        assert_eq!(
            (content(&result), exit_code(&result)),
            (expected, 0),
            "{command}"
        );
    }
    let broken = sandbox.run("echo one\necho 'two").await;
    assert_eq!(broken["observation"], "run", "{broken}");
    assert!(!content(&broken).contains("/proc"), "{broken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_may_have_many_lines() {
    let sandbox = V0Sandbox::start();
    sandbox
        .run_with(0.2, json!({"command": "read a; read b; echo got $a $b"}))
        .await;
    let result = sandbox
        .run_with(120.0, json!({"command": "one\ntwo", "is_input": true}))
        .await;
    assert!(content(&result).ends_with("got one two"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_truncated_in_the_middle_unless_hidden() {
    let sandbox = V0Sandbox::start();
    let result = sandbox.run("seq 1 9000").await;
    let text = content(&result);
    assert!(text.starts_with("1\n2\n") && text.ends_with("8999\n9000"));
    assert!(text.contains("\n[... Observation truncated due to length ...]\n"));
    assert!(text.chars().count() < 30_100);
    assert!(
        metadata(&result, "prefix").contains("Previous command outputs are truncated"),
        "{result}"
    );
    let hidden = sandbox
        .run_with(120.0, json!({"command": "seq 1 9000", "hidden": true}))
        .await;
    assert_eq!(content(&hidden).lines().count(), 9000);
    assert_eq!(hidden["extras"]["hidden"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn static_command_has_its_own_shell() {
    let sandbox = V0Sandbox::start();
    sandbox.run("export A=1; cd /").await;
    let result = sandbox
        .run_with(
            120.0,
            json!({"command": "echo ${A-none} $PWD; cd /tmp", "is_static": true, "cwd": "/usr"}),
        )
        .await;
    assert_eq!((content(&result), exit_code(&result)), ("none /usr", 0));
    let result = sandbox
        .run_with(120.0, json!({"command": "touch here", "is_static": true}))
        .await;
    assert_eq!(exit_code(&result), 0, "{result}");
    assert!(std::path::Path::new(&sandbox.path("here")).exists());
    assert_eq!(content(&sandbox.run("pwd").await), "/");
}

#[tokio::test(flavor = "multi_thread")]
async fn background_jobs_continue() {
    let sandbox = V0Sandbox::start();
    let result = sandbox
        .run("mkfifo gate; (read x < gate; touch done) &")
        .await;
    assert_eq!(exit_code(&result), 0, "{result}");
    let result = sandbox.run("sleep 0.1; echo > gate; wait; ls").await;
    assert!(content(&result).contains("done"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_uses_no_pager() {
    let sandbox = V0Sandbox::start();
    let result = sandbox.run("echo ${GIT_PAGER-unset} ${PAGER-unset}").await;
    assert_eq!(content(&result), "cat cat", "{result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_has_the_effects_of_its_startup_files() {
    let sandbox = V0Sandbox::start();
    std::fs::write(
        sandbox.path(".bashrc"),
        "alias hello='echo hi'\nexport CONDA_DEFAULT_ENV=testbed\n",
    )
    .unwrap();
    // The first shell may have started before the file was written.
    sandbox.run("exit").await;
    let ran = sandbox.run("hello; echo $CONDA_DEFAULT_ENV").await;
    assert_eq!(content(&ran), "hi\ntestbed");
}
