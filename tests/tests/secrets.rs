//! A canary: a secret that commands use and print in every way appears nowhere.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::json;
use tests::glovebox::{Home, bash, finish, tool_call};
use tests::sandbox_contract::docker::DockerBackend;

/// Longer than a line of base64. Tests search for its middle, which has no hexadecimal digits,
/// because ids of other processes consist of them.
const CANARY: &str = "canary/begins with some text, so that it is long; qv7jzk+c2 \"x\"=it's wy9xhp?u8&END of the canary";

/// The same in a URL.
const IN_URL: &str = "canary%2Fbegins%20with%20some%20text%2C%20so%20that%20it%20is%20long%3B%20qv7jzk%2Bc2%20%22x%22%3Dit%27s%20wy9xhp%3Fu8%26END%20of%20the%20canary";

/// Returns texts that reveal the canary: parts of its middle, plain, escaped and in base64.
fn revealing_texts() -> Vec<String> {
    let middle = "qv7jzk+c2 \"x\"=it's wy9xhp?u8&END";
    let in_base64 = (0..3).map(|before| {
        let letters = STANDARD_NO_PAD.encode(format!("{}{middle}", "a".repeat(before)));
        // The first and the last depend on the adjacent bytes.
        letters[4..letters.len() - 4].to_owned()
    });
    ["qv7jzk", "wy9xhp", "u8&END"]
        .map(str::to_owned)
        .into_iter()
        .chain(in_base64)
        .collect()
}

fn assert_hidden(what: &str, text: &str) {
    let one_line = text
        .replace(['\r', '\n'], "")
        .replace("\\r", "")
        .replace("\\n", "");
    for sign in revealing_texts() {
        for text in [text, &one_line] {
            if let Some(at) = text.find(&sign) {
                let around: String = text
                    .get(at.saturating_sub(200)..)
                    .unwrap_or(text)
                    .chars()
                    .take(400)
                    .collect();
                panic!("{sign} in {what}: {around}");
            }
        }
    }
}

/// Checks all files below a folder, except those in which the test itself put the canary.
fn assert_hidden_below(folder: &Path, own: &[&Path]) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if own.contains(&path.as_path()) {
            continue;
        } else if kind.is_dir() {
            assert_hidden_below(&path, own);
        } else if kind.is_file() {
            assert_hidden(
                &path.display().to_string(),
                &String::from_utf8_lossy(&std::fs::read(&path).unwrap()),
            );
        }
    }
}

/// Samples the command lines of all processes until `stop` is set. Returns those with the canary.
fn watch_arguments(stop: Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut shown = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            for entry in std::fs::read_dir("/proc").unwrap().flatten() {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                shown.extend(
                    revealing_texts()
                        .iter()
                        .any(|sign| line.contains(sign))
                        .then_some(line),
                );
            }
        }
        shown
    })
}

/// In hexadecimal digits.
fn digest(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn secret_is_visible_only_to_commands_that_use_it_on_local() {
    secret_is_visible_only_to_commands_that_use_it(&["--runtime", "local"]);
}

#[test]
fn secret_is_visible_only_to_commands_that_use_it_on_docker() {
    if let Some(image) = DockerBackend::debian_image() {
        secret_is_visible_only_to_commands_that_use_it(&["--runtime", "docker", "--image", &image]);
    }
}

fn secret_is_visible_only_to_commands_that_use_it(runtime: &[&str]) {
    let home = Home::new();
    let held = home.write("held-by-the-user", format!("{CANARY}\n"));
    let model = home.script(&json!([
        bash("printf %s \"$CANARY\" | sha256sum; sleep 0.3"),
        // Neither the next command nor another shell has it, and the shell does not reveal it.
        bash("env | grep -c '^CANAR[Y]='; tr '\\0' '\\n' </proc/$$/environ | grep -c 'CANAR[Y]'; grep -c 'qv7jz[k]' /proc/self/fd/250"),
        // The command prints it in every way.
        bash("echo \"$CANARY\"; printf %s \"$CANARY\" | base64; printf %s \"$CANARY\" | base64 -w0; echo \"a$CANARY\" | base64"),
        bash("echo \"ab$CANARY\" | base64 -w 64; set -x; : \"$CANARY\"; set +x; export -p | grep CANARY; printf %q \"$CANARY\""),
        bash("printf %s \"$CANARY\" | head -c 60; sleep 0.4; printf %s \"$CANARY\" | tail -c +61"),
        bash("printf %s \"$CANARY\" | base64 | head -c 70; sleep 0.4; printf %s \"$CANARY\" | base64 | tail -c +71"),
        // By the shell itself, because another program would have it in its arguments.
        bash(": <\"/nowhere/$CANARY\"; \"$CANARY\"; cd \"$CANARY\""),
        // The model knows it from elsewhere.
        bash(&format!("echo {}; echo {IN_URL}", quoted(CANARY))),
        bash(&format!("cat <<'END'\n{}\nEND", json!({"k": CANARY}))),
        tool_call("str_replace_editor", &json!({"command": "view", "path": format!("/nowhere/{CANARY}")})),
        tool_call("think", &json!({"thought": CANARY})),
        bash("env | grep -c '^CANAR[Y]='"),
        finish(),
    ]));
    let (trajectory, recorded) = (
        home.path().join("trajectory.json"),
        home.path().join("recorded"),
    );
    let secret = format!("CANARY=@{}", held.display());
    let task = format!("work with {CANARY}");
    for output in [&["--json"][..], &[]] {
        let first_arguments = [
            "--log-level",
            "trace",
            "run",
            "-l",
            &model,
            "--secret",
            &secret,
            "-d",
            "work",
        ];
        let files = [
            "--save-trajectory",
            "trajectory.json",
            "--record",
            "recorded",
        ];
        // Not as an argument, which other processes can read.
        let task = home.write("task", &task);
        let task = ["-f", task.to_str().unwrap()];
        let stop = Arc::new(AtomicBool::new(false));
        let arguments = watch_arguments(Arc::clone(&stop));
        let run = home.run(&[&first_arguments[..], runtime, &files, &task, output].concat());
        stop.store(true, Ordering::Relaxed);
        let shown = arguments.join().unwrap();
        let run = run.expect(0);
        assert!(shown.is_empty(), "{shown:?}");
        assert_hidden("stdout", &run.stdout);
        assert_hidden("stderr", &run.stderr);
        let saved = std::fs::read_to_string(&trajectory).unwrap();
        assert!(
            saved.contains("<secret_hidden>") && saved.contains("\"CANARY\": \"\""),
            "{saved}"
        );
        // Only the command had it, completely.
        assert!(saved.contains(&digest(CANARY)), "{saved}");
        let events: Vec<serde_json::Value> = serde_json::from_str(&saved).unwrap();
        let contents: Vec<_> = events
            .iter()
            .filter(|event| event["observation"] == "run")
            .map(|event| event["content"].as_str().unwrap())
            .collect();
        assert_eq!(
            (contents[1], contents.last().copied()),
            ("0\n0\n0", Some("0")),
            "{contents:#?}"
        );
        let list = home
            .run(&["conversations", "ls", "--json"])
            .expect(0)
            .stdout;
        assert_hidden("list", &list);
    }
    // The redacted recording matches the same calls, because the log is redacted too.
    let again = [
        "run", "-f", "task", "-l", &model, "--secret", &secret, "-d", "work", "--replay",
        "recorded",
    ];
    home.run(&[&again[..], runtime].concat()).expect(0);
    assert_eq!(std::fs::read_dir(&recorded).unwrap().count(), 26);
    assert!(home.path().join(".glovebox/glovebox.db").exists());
    let own = [
        held.as_path(),
        &home.path().join("task"),
        &home.path().join("script.json"),
    ];
    assert_hidden_below(home.path(), &own);
    home.assert_nothing_runs();
}

#[test]
fn exec_injects_and_redacts_secrets() {
    let home = Home::new();
    let description = "for the forge";
    let secrets = format!(
        "[secrets]\nCANARY = {{ value = '''{CANARY}''', description = \"{description}\" }}\n"
    );
    home.write(".glovebox/config.toml", secrets);
    let words = "printf %s \"$CANARY\" | sha256sum; printf %s \"$CANARY\"; printf %s \"$CANARY\" | base64 >&2";
    for json in [&["--json"][..], &[]] {
        let run = home
            .run(&[&["exec", "--runtime", "local"], json, &["--", words]].concat())
            .expect(0);
        assert!(
            run.stdout.contains(&digest(CANARY)) && run.stdout.contains("<secret_hidden>"),
            "{}",
            run.stdout
        );
        if !json.is_empty() {
            let observation: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
            assert_eq!(observation["extras"]["command"], words);
        }
        assert_hidden("exec", &(run.stdout + &run.stderr));
    }
    home.run(&["sandbox", "create", "box", "--runtime", "local"])
        .expect(0);
    let held = home.write("held", CANARY);
    home.run(&[
        "sandbox",
        "cp",
        "--runtime",
        "local",
        held.to_str().unwrap(),
        "box:held",
    ])
    .expect(0);
    let exec = ["sandbox", "exec", "--runtime", "local", "box", "-n", "--"];
    let words = [
        "sh",
        "-c",
        "printf a; head -c 60 held; sleep 0.4; tail -c +61 held; base64 held >&2; printf b",
    ];
    let shown = home.run(&[&exec[..], &words].concat()).expect(0);
    assert_eq!(shown.stdout, "a<secret_hidden>b");
    assert_hidden("sandbox exec", &shown.stderr);
    let bytes = home
        .run(&[&exec[..], &["head", "-c", "60", "held"]].concat())
        .expect(0)
        .stdout;
    assert_eq!(
        bytes,
        CANARY[..60],
        "a text that shares only a prefix is not redacted"
    );
    home.run(&["sandbox", "rm", "--runtime", "local", "box"])
        .expect(0);
    home.assert_nothing_runs();
}

#[test]
fn agent_gets_the_descriptions_of_secrets() {
    let home = Home::new();
    let secrets =
        "[secrets]\nFORGE_TOKEN = { value = 'secret value', description = 'for the forge' }\n";
    home.write(".glovebox/config.toml", secrets);
    let model = home.script(&json!([finish()]));
    let run = home.run(&[
        "run",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
        "-d",
        "work",
        "--json",
    ]);
    let events = run.expect(0).events();
    let recall = events
        .iter()
        .find(|event| event["observation"] == "recall")
        .unwrap();
    let descriptions = &recall["extras"]["custom_secrets_descriptions"];
    assert_eq!(descriptions, &json!({"FORGE_TOKEN": "for the forge"}));
}

#[test]
fn resume_error_names_a_missing_secret() {
    let home = Home::new();
    let model = home.script(&json!([bash("echo \"$TOKEN\""), finish()]));
    // In an argument, so unlike the canary, which another test looks for in all arguments.
    let secret = ["--secret", "TOKEN=a swordfish"];
    let run = [
        "run",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
        "-d",
        "work",
        "-i",
        "1",
    ];
    let run = home.run(&[&run[..], &secret].concat()).expect(3);
    assert!(
        !(run.stdout.clone() + &run.stderr).contains("swordfish"),
        "{} {}",
        run.stdout,
        run.stderr
    );
    let id = run
        .stderr
        .rsplit("glovebox resume ")
        .next()
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let resume = ["resume", id, "-l", &model, "-i", "1"];
    let resumed = home.run(&resume);
    assert!(
        resumed.stderr.contains("add --secret TOKEN"),
        "{}",
        resumed.stderr
    );
    let again = home.run(&[&resume[..], &secret].concat());
    assert!(!again.stderr.contains("--secret"), "{}", again.stderr);
}
