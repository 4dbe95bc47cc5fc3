//! `glovebox sandbox exec`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::glovebox::{unwritable, wait_until};

use super::{SandboxFixture, refused};

#[test]
fn exec_has_the_streams_and_exit_code_of_its_program() {
    for fixture in SandboxFixture::all() {
        let script = "echo out; echo err >&2; exit 42";
        let ran = fixture.exec(&["sh", "-c", script]).expect(42);
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str()),
            ("out\n", "err\n")
        );
        // The writer ends after the program.
        let late = "(sleep 0.5; echo late) & echo one; exit 3";
        let ran = fixture.exec(&["sh", "-c", late]).expect(3);
        assert_eq!(ran.stdout, "one\nlate\n");
        fixture.exec(&["sh", "-c", "kill -9 $$"]).expect(137);
        assert_eq!(
            fixture
                .exec(&["printf", "%s|", "a b", "$HOME"])
                .expect(0)
                .stdout,
            "a b|$HOME|"
        );
        refused(
            &fixture.exec(&["no-such-program"]),
            127,
            "glovebox: there is no program `no-such-program`",
        );
        refused(
            &fixture.exec(&["id; pwd"]),
            127,
            "for shell text: `sh -c '…'`",
        );
        refused(
            &fixture.exec(&["/etc/passwd"]),
            126,
            "`/etc/passwd` cannot be started",
        );
        for (option, value, part) in [
            ("-w", "/nope", "the working directory /nope"),
            ("-u", "nope", "there is no user `nope`"),
        ] {
            let ran = fixture.run(&["exec", &fixture.name(), option, value, "--", "true"]);
            refused(&ran, 2, part);
            assert!(!ran.stderr.contains("field"), "{}", ran.stderr);
        }

        let input: Vec<u8> = (0..2_000_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        let mut cat = fixture.command(&["exec", &fixture.name(), "--", "cat"]);
        let mut cat = cat
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, sent) = (cat.stdin.take().unwrap(), input.clone());
        let writing = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
        let output = cat.wait_with_output().unwrap();
        writing.join().unwrap();
        assert!(
            output.status.success() && output.stdout == input,
            "{}",
            output.stdout.len()
        );

        // A program whose output has no reader is terminated.
        let mut yes = fixture
            .command(&["exec", &fixture.name(), "--", "yes"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 2];
        yes.stdout.take().unwrap().read_exact(&mut first).unwrap();
        assert_eq!((&first, yes.wait().unwrap().code()), (b"y\n", Some(141)));

        // Its output is written only when it ends.
        for (full, code) in [(true, 1), (false, 141)] {
            let words = ["exec", &fixture.name(), "--", "echo", "short"];
            assert_eq!(
                fixture
                    .command(&words)
                    .stdout(unwritable(full))
                    .status()
                    .unwrap()
                    .code(),
                Some(code)
            );
            fixture.exec(&["sh", "-c", "echo short > short"]).expect(0);
            let words = ["cp", &fixture.path("short"), "-"];
            assert_eq!(
                fixture
                    .command(&words)
                    .stdout(unwritable(full))
                    .status()
                    .unwrap()
                    .code(),
                Some(code)
            );
        }
        fixture.end();
    }
}

#[test]
fn program_in_the_sandbox_ends_when_exec_is_interrupted() {
    for fixture in SandboxFixture::all() {
        let script = "echo $$ > pid; sleep 1000 & echo started; wait";
        let mut exec = fixture.command(&["exec", &fixture.name(), "--", "sh", "-c", script]);
        let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(exec.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "started\n");
        kill_process(Pid::from_child(&exec), Signal::INT).unwrap();
        assert_eq!(exec.wait().unwrap().code(), Some(130));
        wait_until("the program in the sandbox has exited", || {
            fixture.exec(&["sh", "-c", "kill -0 $(cat pid) 2>&-"]).code != 0
        });
        fixture.end();
    }
}

#[test]
fn slow_reader_of_exec_slows_the_program_down() {
    for fixture in SandboxFixture::all() {
        let script = "for n in $(seq 300); do head -c 1000000 /dev/zero; echo $n > progress; done";
        let mut exec = fixture.command(&["exec", &fixture.name(), "--", "sh", "-c", script]);
        let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
        let progress = || -> u32 {
            let written = fixture
                .exec(&["sh", "-c", "cat progress || echo 0"])
                .expect(0)
                .stdout;
            written.trim().parse().unwrap_or_default()
        };
        let mut before = 0;
        wait_until("the program is held", || {
            std::thread::sleep(Duration::from_millis(500));
            let now = progress();
            now > 0 && now == std::mem::replace(&mut before, now)
        });
        assert!(before < 30, "{before} MB were written without a reader");
        let length = std::io::copy(exec.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
        assert_eq!(
            (length, exec.wait().unwrap().code()),
            (300_000_000, Some(0))
        );
        assert_eq!(progress(), 300);
        fixture.end();
    }
}

#[test]
fn interrupt_ends_exec_when_its_output_is_not_read() {
    let fixture = SandboxFixture::local();
    let mut exec = fixture.command(&["exec", &fixture.name(), "--", "yes"]);
    let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
    let stdout = exec.stdout.take().unwrap();
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(&stdout).unwrap() >= 60_000
    });
    // Until the queue before the pipe is full too, and nothing reads what the sandbox sends.
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&exec), Signal::TERM).unwrap();
    let interrupted = Instant::now();
    assert_eq!(exec.wait().unwrap().code(), Some(130));
    assert!(
        interrupted.elapsed() < Duration::from_secs(9),
        "{:?}",
        interrupted.elapsed()
    );
    drop(stdout);
    fixture.end();
}

#[test]
fn sandbox_that_was_killed_is_reported_with_its_exit_code() {
    let Some(fixture) = SandboxFixture::docker() else {
        return;
    };
    let listed = fixture.list();
    let container = listed[0]["sandbox_id"].as_str().unwrap();
    let killed = std::process::Command::new("docker")
        .args(["kill", container])
        .output()
        .unwrap();
    assert!(killed.status.success(), "{killed:?}");
    for _ in 0..2 {
        refused(
            &fixture.exec(&["true"]),
            1,
            "has ended with code 137; `glovebox sandbox logs",
        );
    }
    fixture.end();
}
