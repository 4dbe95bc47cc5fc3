//! `glovebox run` and `resume` on a terminal: output, prompts and typed input.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, binary, finish, tool_call, wait_until};
use tests::terminal::TestTerminal;

/// Returns a home in which every action requires approval.
fn asking_home() -> Home {
    let home = Home::new();
    home.write(
        "asks.toml",
        "[security]\nconfirmation_policy = \"always\"\n",
    );
    home
}

/// Returns the command `glovebox run` in the home's workspace.
fn run(home: &Home, responses: &Value) -> Command {
    let (model, workspace) = (home.script(responses), home.workspace());
    let mut arguments = vec!["run", "work", "--runtime", "local", "-l", &model];
    arguments.extend(["-d", workspace.to_str().unwrap()]);
    if home.path().join("asks.toml").exists() {
        arguments.extend(["--config-file", "asks.toml"]);
    }
    home.glovebox(&arguments)
}

fn resume(home: &Home, id: &str) -> Command {
    home.glovebox(&["resume", id, "--config-file", "asks.toml"])
}

/// Returns the log of the latest conversation.
fn log(home: &Home) -> Vec<Value> {
    let id = &home.conversations()[0];
    home.run(&["conversations", "show", id, "--json"])
        .expect(0)
        .events()
}

fn select_events<'a>(events: &'a [Value], key: &str, kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event[key] == kind).collect()
}

#[test]
fn approval_prompt_ignores_input_typed_before_it() {
    let home = asking_home();
    let file = home.workspace().join("note");
    let text = (1..=40)
        .map(|line| format!("line {line}\n"))
        .collect::<String>()
        + "hidden\u{202e}\u{9b}\x1b[2J\n";
    let create = json!({"command": "create", "path": file, "file_text": text});
    let mut terminal = TestTerminal::start(&run(
        &home,
        &json!([tool_call("str_replace_editor", &create), finish()]),
    ));
    // Typed before the prompt.
    terminal.type_text("y\nyes\ny");
    let prompt = terminal.wait_for(
        "approve? [y]es, [n]o, [a]lways edits at this risk in this conversation, [s]top: ",
    );
    for part in [
        &format!("approval needed: create {} (41 lines)", file.display()),
        "+ line 1\r\n",
        "+ line 40\r\n",
        "+ hidden\\u{202e}\\x9b\\x1b[2J",
        "risk: unknown",
        "network of the sandbox: none",
    ] {
        assert!(prompt.contains(part), "{part} in {prompt}");
    }
    for no_answer in ["\n", "YES\n", "ok\n"] {
        terminal.type_text(no_answer);
        terminal.wait_for("approve?");
    }
    assert!(!file.exists(), "the file was written before the approval");
    terminal.type_text("Yes\n");
    terminal.wait_for_end(0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    home.assert_nothing_runs();
}

#[test]
fn approval_prompt_shows_the_reason_of_the_policy() {
    let home = Home::new();
    home.write(
        ".glovebox/policy.toml",
        "[[rule]]\nrisk = \"high\"\nreason = \"it deletes\"\ncommands = [\"rm\"]\n",
    );
    home.write(
        "asks.toml",
        "[security]\nconfirmation_policy = \"high\"\nsecurity_analyzer = \"~/.glovebox/policy.toml\"\n",
    );
    let mut terminal = TestTerminal::start(&run(&home, &json!([bash("rm -f x"), finish()])));
    let prompt = terminal.wait_for("approve?");
    assert!(
        prompt.contains("$ rm -f x\r\n  risk: high: it deletes\r\n"),
        "{prompt}"
    );
    terminal.type_text("s\n");
    terminal.wait_for_end(130);
    home.assert_nothing_runs();
}

#[test]
fn rejection_prompts_for_a_reason_and_the_next_message() {
    let home = asking_home();
    let mut terminal =
        TestTerminal::start(&run(&home, &json!([bash("one"), bash("two"), finish()])));
    terminal.wait_for("approve?");
    terminal.type_text("No\n");
    terminal.wait_for("reason for the agent");
    terminal.type_text("too slow\n");
    terminal.wait_for("approve?");
    terminal.type_text("n\n");
    terminal.wait_for("reason for the agent");
    terminal.type_text("\n");
    terminal.wait_for("what should the agent do?");
    terminal.type_text("just finish\n");
    terminal.wait_for_end(0);
    let log = log(&home);
    let rejected = select_events(&log, "observation", "user_rejected");
    assert_eq!(
        rejected[0]["content"],
        "The user rejected the action: too slow"
    );
    assert_eq!(rejected[1]["content"], "The user rejected the action.");
    let contents: Vec<_> = select_events(&log, "action", "message")
        .iter()
        .map(|event| &event["args"]["content"])
        .collect();
    assert_eq!(contents, ["work", "just finish"], "no other user message");
    home.assert_nothing_runs();
}

#[test]
fn typed_line_is_edited_before_it_is_sent() {
    let home = Home::new();
    let steps = json!([{"text": "Which file?"}, {"text": "Sure?"}, finish()]);
    let mut terminal = TestTerminal::start(&run(&home, &steps));
    terminal.wait_for("what should the agent do?");
    // ^U deletes the line, ^A moves to its start, the cursor keys to the left and to the end.
    terminal.type_text("wrong\x15he first\x01t\x1b[F one\x1b[D\x1b[D\x7f\x1b[F\n");
    terminal.wait_for("Sure?\r\n");
    terminal.wait_for("what should the agent do?");
    // The line before, with an addition.
    terminal.type_text("\x1b[A!\n");
    terminal.wait_for_end(0);
    let log = log(&home);
    let messages = select_events(&log, "action", "message");
    let user: Vec<_> = messages
        .iter()
        .filter(|event| event["source"] == "user")
        .collect();
    let contents: Vec<_> = user.iter().map(|event| &event["args"]["content"]).collect();
    assert_eq!(contents, ["work", "the first ne", "the first ne!"]);
    home.assert_nothing_runs();
}

#[test]
fn end_of_input_leaves_the_question_open() {
    let home = asking_home();
    let mut terminal = TestTerminal::start(&run(&home, &json!([bash("one"), finish()])));
    terminal.wait_for("approve?");
    terminal.type_text("\x04");
    terminal.wait_for_end(4);
    // Without an editor, which needs a cursor that moves.
    for (answer, code) in [("\x04", 4), ("s\n", 130)] {
        let mut terminal =
            TestTerminal::start(resume(&home, &home.conversations()[0]).env("TERM", "dumb"));
        terminal.wait_for("approve?");
        terminal.type_text(answer);
        terminal.wait_for_end(code);
    }
    home.assert_nothing_runs();
}

#[test]
fn terminal_has_its_mode_back_after_a_signal_at_a_prompt() {
    let home = asking_home();
    let glovebox = run(&home, &json!([bash("one"), finish()]));
    let mut shell = Command::new("/bin/sh");
    shell.args([
        "-c",
        "stty -a > before; \"$@\"; stty -a > after; cmp before after && echo same",
        "sh",
    ]);
    shell
        .arg(binary())
        .args(glovebox.get_args())
        .current_dir(home.path());
    shell.envs(
        glovebox
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut terminal = TestTerminal::start(&shell);
    terminal.wait_for("approve?");
    let start = format!("{} run work ", binary().display());
    let (id, _) = home
        .processes()
        .into_iter()
        .find(|(_, line)| line.starts_with(&start))
        .unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    terminal.wait_for("same\r\n");
    terminal.wait_for_end(0);
    home.assert_nothing_runs();
}

#[test]
fn question_of_the_agent_is_answered_at_the_terminal() {
    let home = Home::new();
    let mut terminal =
        TestTerminal::start(&run(&home, &json!([{"text": "Which file?"}, finish()])));
    terminal.wait_for("Which file?\r\n");
    terminal.wait_for("what should the agent do?");
    terminal.type_text("the first\n");
    terminal.wait_for_end(0);
    let output = log(&home);
    let output = select_events(&output, "action", "message");
    assert_eq!(output.last().unwrap()["args"]["content"], "the first");
    home.assert_nothing_runs();
}

#[test]
fn approval_of_a_command_survives_a_restart() {
    let home = asking_home();
    let build = || bash("echo built >> log");
    let responses = json!([build(), build(), bash("echo other"), build(), finish()]);
    let mut terminal = TestTerminal::start(&run(&home, &responses));
    terminal.wait_for("approve?");
    terminal.type_text("a\n");
    let prompt = terminal.wait_for("approve?");
    assert!(
        prompt.contains("$ echo other"),
        "the approved command is not asked about again: {prompt}"
    );
    terminal.type_text("s\n");
    terminal.wait_for_end(130);
    let id = home.conversations()[0].clone();
    let mut terminal = TestTerminal::start(&resume(&home, &id));
    terminal.wait_for_end(0);
    let built = std::fs::read_to_string(home.workspace().join("log")).unwrap();
    assert_eq!(built, "built\n".repeat(3));
    home.assert_nothing_runs();
}

#[test]
fn program_exits_with_130_when_interrupted_at_a_prompt() {
    let home = asking_home();
    let mut terminal = TestTerminal::start(&run(&home, &json!([bash("one"), finish()])));
    terminal.wait_for("approve?");
    terminal.type_text("\x03");
    terminal.wait_for_end(130);
    let mut terminal = TestTerminal::start(&run(&home, &json!([{"text": "Well?"}])));
    terminal.wait_for("what should the agent do?");
    terminal.type_text("\x03");
    terminal.wait_for_end(130);
    home.assert_nothing_runs();
}

#[test]
fn resume_prompts_for_a_message_when_the_agent_waits() {
    let home = asking_home();
    let mut terminal = TestTerminal::start(&run(&home, &json!([{"text": "Well?"}, finish()])));
    terminal.wait_for("what should the agent do?");
    terminal.type_text("\n");
    terminal.wait_for_end(4);
    let mut terminal = TestTerminal::start(&resume(&home, &home.conversations()[0]));
    let shown = terminal.wait_for("what should the agent do?");
    assert!(shown.contains("Well?\r\n"), "{shown}");
    terminal.type_text("go on\n");
    terminal.wait_for_end(0);
    home.assert_nothing_runs();
}

#[test]
fn status_is_cleared_before_a_line_is_written() {
    let home = Home::new();
    let mut terminal = TestTerminal::start(&run(&home, &json!([bash("sleep 1000"), finish()])));
    terminal.wait_for("$ sleep 1000");
    // The status line is drawn meanwhile, on most machines.
    std::thread::sleep(std::time::Duration::from_secs(1));
    terminal.type_text("\x03");
    let before = terminal.wait_for("glovebox: stopping");
    let line = before.rsplit("\x1b[2K").next().unwrap();
    assert!(!line.contains("running in the sandbox"), "{before:?}");
    terminal.wait_for_end(130);
    home.assert_nothing_runs();
}

#[test]
fn input_typed_during_a_run_does_not_reach_the_shell() {
    let home = Home::new();
    let glovebox = run(
        &home,
        &json!([
            bash("touch started; until [ -e go ]; do sleep 0.05; done"),
            finish()
        ]),
    );
    let mut shell = Command::new("/bin/sh");
    shell.args([
        "-c",
        "\"$@\"; echo ended; read line; echo \"the shell got <$line>\"",
        "sh",
    ]);
    shell
        .arg(binary())
        .args(glovebox.get_args())
        .current_dir(home.path());
    shell.envs(
        glovebox
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut terminal = TestTerminal::start(&shell);
    wait_until("the command runs", || {
        home.workspace().join("started").exists()
    });
    terminal.type_text("rm -rf everything\nexit");
    // The echo shows that the terminal has received it.
    terminal.wait_for("rm -rf everything\r\nexit");
    std::fs::write(home.workspace().join("go"), "").unwrap();
    terminal.wait_for("ended\r\n");
    terminal.type_text("echo safe\n");
    let shown = terminal.wait_for(">");
    assert!(shown.ends_with("the shell got <echo safe>"), "{shown}");
    terminal.wait_for_end(0);
    home.assert_nothing_runs();
}

#[test]
fn transcript_is_coloured_unless_colours_are_disabled() {
    let home = Home::new();
    let shown = |changes: &[(&str, &str)]| {
        let mut command = run(&home, &json!([bash("echo hi"), finish()]));
        command.envs(changes.iter().copied());
        let mut terminal = TestTerminal::start(&command);
        terminal.wait_for_end(0);
        terminal.wait_for("finished after ")
    };
    assert!(shown(&[]).contains("\x1b[1m$ echo hi\x1b[0m"));
    for forbidden in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = shown(&[forbidden]);
        assert!(shown.contains("\n$ echo hi\r\n"), "{forbidden:?}: {shown}");
    }
    home.assert_nothing_runs();
}

#[test]
fn help_is_wrapped_at_the_width_of_the_terminal() {
    let home = Home::new();
    let mut terminal = TestTerminal::start(&home.glovebox(&["run", "--help"]));
    terminal.wait_for_end(0);
    let help = terminal
        .wait_for("--version")
        .replace("\x1b[0m", "")
        .replace("\x1b[1m", "")
        .replace("\x1b[4m", "");
    let longest = help
        .lines()
        .map(|line| line.trim_end().chars().count())
        .max()
        .unwrap();
    assert!(longest <= 101, "{longest} columns in:\n{help}");
}

/// The terminal echoes `^C` behind the status, which must not reach the next line: there it would
/// not be cleared.
#[test]
fn status_leaves_room_for_an_echoed_interrupt() {
    let home = Home::new();
    let mut terminal = TestTerminal::start(&run(&home, &json!([bash("sleep 1000"), finish()])));
    terminal.wait_for("running in the sandbox (1s)");
    terminal.type_text("\u{3}");
    let shown = terminal.wait_for("resume with");
    let drawn: Vec<_> = shown
        .split("\r\u{1b}[2K")
        .filter(|text| text.contains("s) "))
        .collect();
    assert!(!drawn.is_empty(), "{shown:?}");
    for text in drawn {
        let line = text.lines().next_back().unwrap();
        let width = line.trim_end_matches("^C").chars().count();
        assert!(width <= 98, "of 101 columns: {text:?}");
    }
}
