//! A canary: a secret that the agent gets to see in every way shows up nowhere.

use serde_json::json;
use tests::glovebox::{Home, bash, finish};

const CANARY: &str = "canary/7f3b+c2 \"x\"=END";

#[test]
fn a_secret_is_in_no_event_log_or_trajectory() {
    let home = Home::new();
    let workspace = home.workspace();
    std::fs::write(workspace.join("held"), format!("{CANARY}\n")).unwrap();
    let model = home.script(&json!([
        bash(
            "cat held; base64 -w0 held; (printf a; cat held) | base64 -w0; (printf ab; cat held) | base64 -w0"
        ),
        bash("head -c 9 held; sleep 0.5; tail -c +10 held"),
        bash(&format!("echo '{CANARY}'; cat /nowhere/'{CANARY}'")),
        finish(),
    ]));
    let trajectory = home.path().join("trajectory.json");
    let held = format!("CANARY=@{}", workspace.join("held").display());
    let task = format!("work with {CANARY}");
    for output in [&["--json"][..], &[]] {
        let arguments = [
            &[
                "--log-level",
                "trace",
                "run",
                "--runtime",
                "local",
                "-t",
                &task,
                "-l",
                &model,
                "--secret",
                &held,
            ],
            &["-d", workspace.to_str().unwrap(), "--save-trajectory", trajectory.to_str().unwrap()][..],
            output,
        ];
        let run = home.run(&arguments.concat()).expect(0);
        let saved = std::fs::read_to_string(&trajectory).unwrap();
        let list = home.run(&["conversations", "ls", "--json"]).expect(0).stdout;
        for (what, text) in
            [("stdout", &run.stdout), ("stderr", &run.stderr), ("trajectory", &saved), ("list", &list)]
        {
            assert_hidden(what, text);
        }
        assert!(saved.contains("<secret_hidden>"), "{saved}");
    }
    let kept = std::fs::read(home.path().join(".glovebox/glovebox.db")).unwrap();
    assert_hidden("the log", &String::from_utf8_lossy(&kept));
    home.assert_nothing_runs();
}

/// Neither the value nor what base64 makes of its middle.
fn assert_hidden(what: &str, text: &str) {
    for part in ["7f3b+c2", "dmM2IrYzIg", "3ZjNiK2MyIC", "N2YzYitjMi"] {
        if let Some(at) = text.find(part) {
            let around: String =
                text.get(at.saturating_sub(200)..).unwrap_or(text).chars().take(400).collect();
            panic!("{part} in {what}: {around}");
        }
    }
}
