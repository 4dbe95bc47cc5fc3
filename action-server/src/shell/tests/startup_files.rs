//! Start-up files of the user: the shell has their effects, and survives what they do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Starts a bash whose home has these files. `None` if the machine has no bash.
fn bash_at_home(files: &[(&str, &str)]) -> Option<Fixture> {
    let path = find_shell("bash")?;
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let folder = Arc::new(TempDir::new().unwrap());
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(Fixture {
        shell: Shell::start_program(config(folder.path()), ShellProgram::at(path)),
        folder,
    })
}

/// Whether the last observation contains the warning that the shell runs without the files.
fn is_warned(result: &CommandObservation) -> bool {
    result.metadata.suffix.contains("it runs without them")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bash_has_the_effects_of_bashrc() {
    // As Debian's, with an installer's lines at the end.
    let bashrc = "[ -z \"$PS1\" ] && return\ncase $- in *i*) ;; *) return;; esac\n[ -t 0 ] && [ -t 1 ] || return\n\
                  HISTCONTROL=ignoreboth\nshopt -s checkwinsize\nPS1='\\u@\\h:\\w\\$ '\nalias ll='echo listed'\n\
                  conda() { PATH=$HOME/env/bin:$PATH; CONDA_DEFAULT_ENV=$2; export CONDA_DEFAULT_ENV; }\n\
                  conda activate testbed\nexport NVM_DIR=$HOME/.nvm; . \"$NVM_DIR/nvm.sh\"\n. \"$HOME/.cargo/env\"\n";
    let files = [
        (".bashrc", bashrc),
        (".nvm/nvm.sh", "nvm() { echo \"nvm $1\"; }"),
        (".cargo/env", "PATH=$HOME/.cargo/bin:$PATH"),
        ("env/bin/python3", "#!/bin/sh"),
    ];
    let Some(fixture) = bash_at_home(&files) else {
        return;
    };
    let python = fixture.folder.path().join("env/bin/python3");
    let command = action("ll; nvm use; echo $CONDA_DEFAULT_ENV; echo $PATH");
    let home = fixture.folder.path().display();
    let expected = format!("listed\nnvm use\ntestbed\n{home}/.cargo/bin:{home}/env/bin:");
    for is_static in [false, true] {
        let command = RunAction {
            is_static,
            ..command.clone()
        };
        let ran = fixture.act(command, None, CancellationToken::new()).await;
        assert!(ran.content.starts_with(&expected), "{ran:?}");
        assert_eq!(ran.metadata.py_interpreter_path.as_deref(), python.to_str());
    }
    assert_eq!(
        fixture.succeed("ll; echo \"$TERM $PAGER\"").await,
        "listed\ndumb cat"
    );
    assert!(!is_warned(&fixture.run("exit 3").await));
    assert_eq!(fixture.succeed("ll").await, "listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harmless_bashrc_changes_no_result() {
    for bashrc in [
        "echo welcome; printf '\\033[31mred'; echo wrong >&2",
        "false",
        "if",
        "set -e",
        "set -x",
        "set -u",
        "trap 'true' DEBUG; trap 'true' ERR; trap 'true' INT",
        "PROMPT_COMMAND=true; PROMPT_COMMAND=\"$PROMPT_COMMAND;:\"",
        "PS1='$(false)> '; PS2=more; PS0=",
        "exec >/dev/null 2>&1 </dev/null",
        "alias set=false cd=false export=false test=false printf=false",
        "cd() { false; }; cd /; \\builtin cd /",
        "stty raw; stty -icanon",
        "export PAGER=less TERM=xterm-256color",
        "sleep 1000 & disown",
        "exec 9>&- 10>&- 251>&- 252>&-; set -o history; set -o vi",
        "shopt -u expand_aliases; ulimit -c 0; umask 077",
    ] {
        let Some(fixture) = bash_at_home(&[(".bashrc", bashrc)]) else {
            return;
        };
        let ran = fixture.run("echo hi; pwd").await;
        let own = ran
            .content
            .lines()
            .filter(|line| !line.starts_with('+'))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(
            own,
            format!("hi\n{}", fixture.path().display()),
            "{bashrc}: {ran:?}"
        );
        assert_eq!(ran.metadata.exit_code, 0, "{bashrc}");
        assert_eq!(
            fixture.run("(exit 4)").await.metadata.suffix,
            completed(4),
            "{bashrc}"
        );
        assert!(
            !fixture.run("true").await.metadata.suffix.contains("shell"),
            "{bashrc}"
        );
        fixture.shell.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bashrc_that_ends_the_shell_is_skipped_with_a_warning() {
    for bashrc in [
        "exit 3",
        "set -e; false",
        "exec cat",
        "exec bash --norc",
        "exec sleep 1000",
        "kill -9 $$",
        "PROMPT_COMMAND='exit 1'",
    ] {
        let Some(fixture) = bash_at_home(&[(".bashrc", bashrc)]) else {
            return;
        };
        let ran = fixture.run("echo hi").await;
        assert_eq!(
            (ran.content.as_str(), is_warned(&ran)),
            ("hi", true),
            "{bashrc}: {ran:?}"
        );
        assert!(!is_warned(&fixture.run("exit 1").await), "{bashrc}");
        let ran = fixture.run("echo again").await;
        assert_eq!(
            (ran.content.as_str(), is_warned(&ran)),
            ("again", false),
            "{bashrc}: {ran:?}"
        );
        fixture.shell.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bashrc_that_hangs_is_skipped_with_a_warning() {
    let hanging = [
        "echo $$ >pid; sleep 1000",
        "read answer",
        "while :; do :; done",
        "bash --norc",
        "PROMPT_COMMAND='sleep 1000'",
    ]
    .map(|bashrc| async move {
        let Some(fixture) = bash_at_home(&[(".bashrc", bashrc)]) else {
            return;
        };
        let ran = fixture.run("echo hi").await;
        assert_eq!(
            (ran.content.as_str(), is_warned(&ran)),
            ("hi", true),
            "{bashrc}: {ran:?}"
        );
        let ran = fixture
            .run("! [ -e pid ] || kill -0 $(cat pid) 2>/dev/null || echo gone; echo hi")
            .await;
        let expected = if bashrc.contains("pid") {
            "gone\nhi"
        } else {
            "hi"
        };
        assert_eq!(
            (ran.content.as_str(), is_warned(&ran)),
            (expected, false),
            "{bashrc}: {ran:?}"
        );
        fixture.shell.shut_down().await;
    });
    futures_util::future::join_all(hanging).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posix_shell_reads_the_file_of_env() {
    for name in ["dash", "busybox"] {
        let Some(path) = find_shell(name) else {
            continue;
        };
        for (file, text, expected) in [
            ("$HOME/rc", "alias hello='echo hi'; cd /", (0, false)),
            ("$HOME/missing", "", (127, false)),
            ("$HOME/rc", "exit 3", (127, true)),
            ("$HOME/rc", "exec sleep 1000", (127, true)),
        ] {
            let folder = Arc::new(TempDir::new().unwrap());
            fs::write(folder.path().join("rc"), text).unwrap();
            let config = config(folder.path());
            config
                .environment
                .set([("ENV".to_owned(), file.to_owned())].into())
                .unwrap();
            let shell = Shell::start_program(config, ShellProgram::at(path.clone()));
            let fixture = Fixture { shell, folder };
            let ran = fixture.run("hello && pwd").await;
            assert_eq!(
                (ran.metadata.exit_code, is_warned(&ran)),
                expected,
                "{name}: {text}: {ran:?}"
            );
            if expected.0 == 0 {
                assert_eq!(
                    ran.content,
                    format!("hi\n{}", fixture.path().display()),
                    "{name}"
                );
            }
            fixture.shell.shut_down().await;
        }
    }
}
