//! The environment that the start-up files of an image's user make, in each command that gives a
//! shell.

use serde_json::Value;
use tests::glovebox::Home;
use tests::sandbox_contract::docker::DockerBackend;
use tests::terminal::TestTerminal;

use super::SandboxFixture;

/// Makes a home as installers leave it: the shell of a session has conda and its environment, a
/// plain one has neither.
const INSTALL: &str = r#"mkdir -p /opt/env/bin && printf '#!/bin/sh\necho Python 3.6' >/opt/env/bin/python && chmod +x /opt/env/bin/python
cat >~/.bashrc <<'end'
case $- in *i*) ;; *) return;; esac
echo welcome; echo wrong >&2
conda() { export PATH=/opt/env/bin:$PATH CONDA_DEFAULT_ENV=$2; }
conda activate testbed
end"#;

const ASK: &str = "python; echo $CONDA_DEFAULT_ENV";

const ANSWER: &str = "Python 3.6\ntestbed\n";

#[test]
fn activated_environment_of_an_image_counts_in_each_shell() {
    let Some(image) = DockerBackend::debian_image() else {
        return;
    };
    let fixture = SandboxFixture::create(Home::new(), "docker", &["--image", &image]);
    fixture.exec(&["sh", "-c", INSTALL]).expect(0);
    let image = fixture
        .run(&["snapshot", &fixture.name()])
        .expect(0)
        .stdout
        .trim()
        .to_owned();

    let runtime = ["exec", "--runtime", "docker", "--image", &image];
    let ran = fixture
        .home
        .run(&[runtime.as_slice(), &["--", ASK]].concat())
        .expect(0);
    assert_eq!(ran.stdout, ANSWER);
    assert!(
        !ran.stderr.contains("welcome") && !ran.stderr.contains("wrong"),
        "{}",
        ran.stderr
    );
    let ran = fixture
        .home
        .run(&[runtime.as_slice(), &["--json", "--", ASK]].concat())
        .expect(0);
    let observation: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(observation["content"], ANSWER.trim());
    assert_eq!(
        observation["extras"]["metadata"]["py_interpreter_path"],
        "/opt/env/bin/python"
    );
    let mut shell = TestTerminal::start(&fixture.command(&["shell", &fixture.name(), "--", ASK]));
    shell.wait_for(&ANSWER.replace('\n', "\r\n"));
    shell.wait_for_end(0);

    fixture.run(&["rm", "--snapshot", &image]).expect(0);
    fixture.end();
}

#[test]
fn exec_runs_without_startup_files_that_fail() {
    let home = Home::new();
    let workspace = home.workspace();
    let config = format!(
        "[sandbox]\nruntime_startup_env_vars = {{ HOME = {:?}, FROM = \"sandbox\" }}\n",
        workspace.display()
    );
    home.write(".glovebox/config.toml", config);
    let folder = workspace.to_str().unwrap();
    for (bashrc, warning, expected) in [
        ("export FROM=file; alias cat=false; set -e", "", "file\n"),
        ("exit 3", "did not leave a shell that works", "sandbox\n"),
        (
            "head -c 1000000 /dev/zero; exec head -c 1000000 /dev/zero",
            "did not leave a shell that works",
            "sandbox\n",
        ),
        (
            "exec head -c 1000000 /dev/zero >&3",
            "too large an environment",
            "sandbox\n",
        ),
        ("sleep 1000", "did not end in time", "sandbox\n"),
    ] {
        std::fs::write(workspace.join(".bashrc"), bashrc).unwrap();
        let ran = home
            .run(&[
                "exec",
                "--runtime",
                "local",
                "-d",
                folder,
                "--",
                "echo $FROM",
            ])
            .expect(0);
        assert_eq!(ran.stdout, expected, "{bashrc}: {}", ran.stderr);
        assert_eq!(
            ran.stderr.contains("start-up files"),
            !warning.is_empty(),
            "{bashrc}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains(warning), "{bashrc}: {}", ran.stderr);
    }
    home.assert_nothing_runs();
}
