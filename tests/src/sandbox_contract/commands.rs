//! Cases for commands: output, exit codes, shell state and cancellation.

use std::time::Duration;

use tokio::time::timeout;

use super::{Backend, OutputRecorder, command, command_result, create_sandbox, id, remove, run};

/// Output is streamed while the command runs, and is part of the observation.
pub async fn output_is_streamed_and_observed(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let ran = run(&*sandbox, 1, "echo gl''ove").await;
    assert_eq!((ran.exit_code, ran.content.trim()), (0, "glove"));
    assert!(String::from_utf8_lossy(&ran.streamed).contains("glove"));
    remove(backend, sandbox).await;
}

/// Commands run in sequence in one shell.
pub async fn shell_keeps_its_folder_and_variables(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    assert_eq!(
        run(&*sandbox, 1, "pwd").await.content.trim(),
        sandbox.lease().working_dir
    );
    run(&*sandbox, 2, "mkdir -p a/b && cd a/b && color=green").await;
    let ran = run(&*sandbox, 3, "echo $color; pwd").await;
    let expected = format!("green\n{}/a/b", sandbox.lease().working_dir);
    assert_eq!(ran.content.trim().replace("\r\n", "\n"), expected);
    remove(backend, sandbox).await;
}

/// The observation contains the exit code of the command.
pub async fn exit_code_is_observed(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    assert_eq!(run(&*sandbox, 1, "(exit 42)").await.exit_code, 42);
    assert_eq!(run(&*sandbox, 2, "true").await.exit_code, 0);
    remove(backend, sandbox).await;
}

/// A large output arrives completely and in order.
pub async fn megabyte_of_output_arrives_completely(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    // 65,536 distinct lines of 16 bytes.
    let ran = run(
        &*sandbox,
        1,
        "i=0; while [ $i -lt 65536 ]; do printf '%015d\\n' $i; i=$((i+1)); done",
    )
    .await;
    let text = String::from_utf8_lossy(&ran.streamed).replace("\r\n", "\n");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.len() == 15 && line.starts_with('0'))
        .collect();
    assert_eq!(lines.len(), 65_536);
    assert!(
        lines
            .iter()
            .enumerate()
            .all(|(number, line)| *line == format!("{number:015}"))
    );
    assert_eq!(ran.exit_code, 0);
    remove(backend, sandbox).await;
}

/// A cancel kills background processes too, and the action still returns an observation.
pub async fn cancel_kills_the_process_tree_and_completes_the_action(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let output = OutputRecorder::default();
    // Without isolation, the processes of other tests are visible too.
    let own = format!("{:07}", std::process::id());
    let (listener, request) = (
        output.listener(),
        command(&format!(
            "sleep 9{own} & sh -c 'echo star''ted; sleep 9{own}'"
        )),
    );
    let (first, cancelled) = (id(1), id(1));
    let (ended, ()) = timeout(Duration::from_secs(20), async {
        tokio::join!(sandbox.execute(&first, &request, &listener), async {
            output.wait_for("started").await;
            sandbox.cancel(&cancelled).await.unwrap();
        })
    })
    .await
    .expect("a cancelled action ends");
    assert_ne!(command_result(ended.unwrap(), &output).exit_code, 0);

    // The brackets keep the search from finding itself.
    let search =
        format!("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [9]{own}'");
    let found = run(&*sandbox, 2, &search).await.content;
    assert_eq!(found.lines().next(), Some("0"), "{found}"); // bash may report its jobs after it
    sandbox.cancel(&id(1)).await.unwrap();
    sandbox.cancel(&id(99)).await.unwrap();
    remove(backend, sandbox).await;
}
