//! Creation, lists, pruning and removal of sandboxes, and refused requests.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::glovebox::Home;

use super::{SandboxFixture, refused};

#[test]
fn sandbox_is_created_listed_and_removed() {
    for fixture in SandboxFixture::all() {
        let name = fixture.name();
        let list = fixture.list();
        assert_eq!(list.len(), 1);
        assert_eq!(
            (&list[0]["name"], &list[0]["state"]),
            (&name.clone().into(), &"running".into())
        );
        assert_eq!(
            (&list[0]["made"], &list[0]["runtime"]),
            (&"by hand".into(), &fixture.runtime.into())
        );
        let table = fixture.run(&["ls"]).expect(0).stdout;
        assert!(
            table.starts_with("NAME") && table.contains(&name) && table.contains("by hand"),
            "{table}"
        );
        assert_eq!(
            fixture.run(&["ls", "-q"]).expect(0).stdout,
            format!("{name}\n")
        );
        // A sandbox that a user created is not swept, and its name is taken.
        assert_eq!(fixture.run(&["prune"]).expect(0).stdout, "");
        refused(&fixture.run(&["create", &name]), 2, "already");
        assert_eq!(
            fixture.exec(&["sh", "-c", "echo $COLOR"]).expect(0).stdout,
            "green\n"
        );
        assert_eq!(
            fixture
                .run(&["rm", &format!("glovebox-{name}")])
                .expect(0)
                .stdout,
            format!("{name}\n")
        );
        refused(&fixture.run(&["rm", &name]), 2, "there is no sandbox");
        refused(&fixture.exec(&["true"]), 2, "there is no sandbox");
        fixture.end();
    }
}

#[test]
fn sandbox_is_inspected_with_its_settings() {
    for fixture in SandboxFixture::all() {
        let (name, workspace) = (fixture.name(), fixture.home.workspace());
        let other = format!("{name}-other");
        let create = [
            "create",
            &other,
            "-d",
            workspace.to_str().unwrap(),
            "--network",
            "host",
        ];
        let image = fixture.list()[0]["image"].as_str().map(str::to_owned);
        let image: Vec<_> = image.iter().flat_map(|image| ["--image", image]).collect();
        fixture.run(&[&create[..], &image].concat()).expect(0);
        let inspect = |name: &str| -> Value {
            serde_json::from_str(&fixture.run(&["inspect", name, "--json"]).expect(0).stdout)
                .unwrap()
        };
        let (plain, shared) = (inspect(&name), inspect(&other));
        assert_eq!(
            (&plain["state"], &plain["runtime"]),
            (&"running".into(), &fixture.runtime.into())
        );
        assert_eq!(
            (&plain["networks"], &shared["networks"]),
            (&json!(["none"]), &json!(["host"]))
        );
        assert_eq!(
            (&plain["workspace"], &shared["workspace"]),
            (&Value::Null, &json!(workspace))
        );
        assert_eq!(
            (&plain["conversation_id"], &plain["ports"]),
            (&Value::Null, &json!([]))
        );
        assert!(!plain["user"].as_str().unwrap().is_empty(), "{plain}");
        let text = fixture.run(&["inspect", &other]).expect(0).stdout;
        for line in [
            "owner      you\n",
            "removal    by `glovebox sandbox rm`\n",
            "network    host\n",
            "ports      ",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        refused(
            &fixture.run(&["inspect", "missing"]),
            2,
            "there is no sandbox missing",
        );
        fixture.run(&["rm", &other]).expect(0);
        fixture.end();
    }
    let fixture = SandboxFixture::local();
    refused(
        &fixture.run(&["create", "--network", "moon"]),
        2,
        "supports `none` and `host`, not \"moon\"",
    );
    fixture.end();
}

#[test]
fn reason_of_an_ended_sandbox_is_inspected() {
    let fixture = SandboxFixture::local();
    // The parent of a program is the action server.
    fixture.exec(&["sh", "-c", "kill -9 $PPID"]);
    let name = fixture.name();
    let inspected = fixture.run(&["inspect", &name, "--json"]).expect(0).stdout;
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["state"], "ended");
    let reason = inspected["end_reason"].as_str().unwrap();
    let text = fixture.run(&["inspect", &name]).expect(0).stdout;
    assert!(
        text.contains(&format!("state      ended: {reason}")),
        "{text}"
    );
    fixture.end();
}

#[test]
fn sandbox_is_removed_when_its_time_is_over() {
    for fixture in SandboxFixture::all() {
        let kept = fixture.name();
        let short = format!("{kept}-short");
        let image = fixture.list()[0]["image"].as_str().map(str::to_owned);
        let image: Vec<_> = image.iter().flat_map(|image| ["--image", image]).collect();
        fixture
            .run(&[&["create", &short, "--ttl", "1h"][..], &image].concat())
            .expect(0);
        let expiry = |name: &str| {
            fixture
                .list()
                .into_iter()
                .find(|row| row["name"] == name)
                .map(|row| row["expires_at"].clone())
        };
        assert_eq!(expiry(&kept), Some(Value::Null));
        assert!(expiry(&short).unwrap().is_string());
        let table = fixture.run(&["ls"]).expect(0).stdout;
        assert!(
            table.contains("  60 min  ") || table.contains("  59 min  "),
            "{table}"
        );
        assert!(
            fixture
                .run(&["inspect", &short])
                .expect(0)
                .stdout
                .contains("(in "),
            "its removal is shown"
        );
        assert_eq!(
            fixture.run(&["prune"]).expect(0).stdout,
            "",
            "its time is not over"
        );
        fixture.run(&["rm", &short]).expect(0);

        fixture
            .run(&[&["create", &short, "--ttl", "1s"][..], &image].concat())
            .expect(0);
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(
            fixture.run(&["prune", "--dry-run"]).expect(0).stdout,
            format!("{short}\n")
        );
        let listed = fixture.run(&["ls", "-q"]).expect(0);
        assert_eq!(listed.stdout, format!("{kept}\n"));
        assert!(
            listed
                .stderr
                .contains(&format!("removed the sandbox {short}")),
            "{listed:?}"
        );
        let long = fixture.run(&["create", "--ttl", "400d"]).expect(2);
        assert!(long.stderr.contains("at most 365d"), "{long:?}");
        fixture.end();
    }
}

#[test]
fn missing_sandbox_keeps_none_of_the_others_from_removal() {
    let fixture = SandboxFixture::local();
    let name = fixture.name();
    fixture.run(&["create", "other"]).expect(0);
    let removed = fixture
        .run(&["rm", &name, "missing", "other", &name])
        .expect(2);
    assert_eq!(removed.stdout, format!("{name}\nother\n"));
    refused(&removed, 2, "there is no sandbox missing at local");
    for subcommand in ["pause", "resume", "stats"] {
        refused(
            &fixture.run(&[subcommand, "missing"]),
            2,
            "there is no sandbox missing",
        );
    }
    fixture.end();
}

#[test]
fn sandbox_names_are_completed_without_waiting_for_an_engine() {
    for fixture in SandboxFixture::all() {
        let (name, runtime) = (fixture.name(), fixture.runtime);
        for subcommand in ["rm", "exec", "shell", "logs", "pause", "snapshot", "stats"] {
            let words = format!("glovebox sandbox {subcommand} --runtime {runtime}");
            assert!(
                fixture
                    .home
                    .completed(&words, None)
                    .lines()
                    .any(|line| line == name),
                "{words}"
            );
        }
        fixture.end();
    }
    let fixture = SandboxFixture::local();
    let silent = fixture.home.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    for engine in [silent, fixture.home.path().join("no.sock")] {
        let started = Instant::now();
        let offered = fixture
            .home
            .completed("glovebox sandbox rm --runtime docker", Some(&engine));
        assert!(!offered.contains(&fixture.name()), "{offered}");
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
    }
    fixture.end();
}

#[test]
fn list_names_failed_runtimes_when_no_runtime_is_given() {
    let fixture = SandboxFixture::local();
    let list = |more: &[&str]| {
        let mut command = fixture
            .home
            .glovebox(&[&["sandbox", "ls", "--json"], more].concat());
        let no_engine = format!("unix://{}", fixture.home.path().join("no.sock").display());
        let output = command.env("DOCKER_HOST", no_engine).output().unwrap();
        (
            output.status.code(),
            output.stdout,
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, stdout, stderr) = list(&[]);
    let found: Vec<Value> = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(
        (code, &found[0]["name"], &found[0]["runtime"]),
        (Some(1), &fixture.name().into(), &"local".into())
    );
    assert!(
        stderr.starts_with("glovebox: warning: docker is left out: ")
            && stderr.lines().count() == 1,
        "{stderr}"
    );
    let (code, _, stderr) = list(&["--runtime", "docker"]);
    assert!(code == Some(1) && stderr.lines().count() == 1, "{stderr}");
    let mut without_engine = fixture.home.glovebox(&["sandbox", "ls", "-q"]);
    let listed = without_engine
        .env("RUNTIME", "local")
        .env_remove("DOCKER_HOST")
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&listed.stdout),
        String::from_utf8_lossy(&listed.stderr),
    );
    assert_eq!(
        (stdout.trim(), &*stderr),
        (fixture.name().as_str(), ""),
        "no engine was used"
    );
    fixture.end();
}

#[test]
fn sandbox_is_found_without_naming_its_runtime() {
    for fixture in SandboxFixture::all() {
        let (name, no_engine) = (
            fixture.name(),
            format!("unix://{}", fixture.home.path().join("no.sock").display()),
        );
        let run = |arguments: &[&str]| {
            let mut command = fixture.home.glovebox(&[&["sandbox"], arguments].concat());
            match fixture.runtime {
                "local" => command
                    .env("RUNTIME", "docker")
                    .env("DOCKER_HOST", &no_engine),
                _ => command.env("RUNTIME", "local"),
            };
            let output = command.output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (
                output.status.code(),
                text(output.stdout),
                text(output.stderr),
            )
        };
        assert_eq!(
            run(&["exec", &name, "--", "echo", "hi"]),
            (Some(0), "hi\n".into(), String::new())
        );
        let (code, _, stderr) = run(&["exec", "missing", "--", "true"]);
        // A runtime that does not respond may have it.
        let (missing, text, complete) = match fixture.runtime {
            "local" => (1, "docker cannot be searched: ", Some(1)),
            _ => (2, "there is no sandbox missing at ", Some(0)),
        };
        assert!(code == Some(missing) && stderr.contains(text), "{stderr}");
        let (code, used, stderr) = run(&["stats", "--json"]);
        // The runtime local cannot tell it, which is no reason not to tell of the others.
        let notice = if fixture.runtime == "local" {
            stderr
        } else {
            used
        };
        assert!(code == complete && notice.contains(&name), "{notice}");
        let (code, pruned, _) = run(&["prune"]);
        assert_eq!(
            (code, pruned),
            (complete, String::new()),
            "it was made by hand"
        );
        let (code, removed, _) = run(&["rm", "--all"]);
        assert_eq!((code, removed), (complete, format!("{name}\n")));
        fixture.end();
    }
}

#[test]
fn prune_removes_only_sandboxes_that_are_unused() {
    let home = Home::new();
    let mut exec = home.glovebox(&[
        "exec",
        "--runtime",
        "local",
        "--",
        "echo started; sleep 1000",
    ]);
    let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(exec.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "started\n");
    let prune = |more: &[&str]| {
        home.run(&[&["sandbox", "prune", "--runtime", "local"], more].concat())
            .expect(0)
            .stdout
    };
    assert_eq!(prune(&[]), "", "it is used");
    let list = home
        .run(&["sandbox", "ls", "--runtime", "local", "--json"])
        .expect(0)
        .stdout;
    let list: Vec<Value> = serde_json::from_str(&list).unwrap();
    let name = list[0]["name"].as_str().unwrap();
    refused(
        &home.run(&["sandbox", "rm", "--runtime", "local", name]),
        1,
        "another process",
    );
    exec.kill().unwrap();
    exec.wait().unwrap();
    let logs = home.run(&["sandbox", "logs", "--runtime", "local", &name[..20]]);
    assert_eq!(
        logs.code, 0,
        "the beginning of a conversation's is enough: {logs:?}"
    );
    assert_eq!(prune(&["--dry-run"]), format!("{name}\n"));
    assert_eq!(prune(&[]), format!("{name}\n"));
    assert_eq!(prune(&[]), "");
    home.assert_nothing_runs();
}

#[test]
fn error_is_one_line_when_unsupported_or_misused() {
    let fixture = SandboxFixture::local();
    let name = fixture.name();
    fixture.run(&["logs", &name]).expect(0);
    refused(
        &fixture.run(&["snapshot", &name]),
        1,
        "the runtime local cannot make snapshots",
    );
    refused(
        &fixture.run(&["fork", &name]),
        1,
        "the runtime local cannot make snapshots",
    );
    refused(&fixture.run(&["shell", &name]), 2, "must be a terminal");
    refused(
        &fixture.run(&["create", "--env", "GLOVEBOX_NO_SUCH"]),
        2,
        "GLOVEBOX_NO_SUCH",
    );
    for (wrong, part) in [
        (["port", &name, "8080:x"].as_slice(), "expected a port"),
        (&["create", "--memory", "much"], "expected a size"),
        (&["exec", "../x", "--", "true"], "an id"),
        (&["rm"], "NAME"),
    ] {
        let ended = fixture.run(wrong).expect(2);
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    for subcommand in [
        "create", "ls", "exec", "shell", "cp", "port", "logs", "stats", "pause", "rm", "prune",
    ] {
        fixture.run(&[subcommand, "--help"]).expect(0);
    }
    fixture.end();
}
