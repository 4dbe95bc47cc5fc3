//! `glovebox sandbox shell` on terminals of the test.

use portable_pty::PtySize;
use rustix::process::{Pid, Signal, kill_process};
use tests::terminal::TestTerminal;

use super::SandboxFixture;

#[test]
fn shell_has_a_terminal_with_size_and_signals() {
    for fixture in SandboxFixture::all() {
        let name = fixture.name();
        let mut shell = TestTerminal::start(&fixture.command(&["shell", &name]));
        shell.type_text("echo $((40+2)) $COLOR; stty size\r");
        shell.wait_for("42 green");
        shell.wait_for("33 101");
        let size = PtySize {
            rows: 20,
            cols: 72,
            pixel_width: 0,
            pixel_height: 0,
        };
        shell.pair.master.resize(size).unwrap();
        // The new size arrives before the keys that follow it, but its signal may arrive after
        // them.
        shell.type_text("until stty size | grep '^20 72$'; do sleep 0.05; done\r");
        shell.wait_for("20 72\r\n");
        shell.type_text("echo started''; sleep 1000; echo $?''x\r");
        shell.wait_for("started\r\n");
        // The shell may receive the interrupt while it starts the program. Then it is typed again.
        shell.type_until("\x03echo still'' here\r", "still here");
        shell.type_until_end("exit 9\r", 9);
        fixture.end();
    }
}

#[test]
fn program_reads_the_terminal_and_interrupt_exits_with_130() {
    let fixture = SandboxFixture::local();
    let name = fixture.name();
    for (typed, code) in [("\x04", 0), ("\x03", 130)] {
        let mut exec =
            TestTerminal::start(&fixture.command(&["exec", &name, "--", "sed", "-u", "s/^/got /"]));
        exec.type_text("one\r");
        exec.wait_for("got one");
        exec.type_text(typed);
        exec.wait_for_end(code);
    }
    fixture.end();
}

#[test]
fn terminal_settings_are_restored_when_the_shell_ends() {
    let fixture = SandboxFixture::local();
    let name = fixture.name();
    let endings: [(&str, u32); 4] = [("exit", 3), ("escape", 130), ("signal", 130), ("server", 1)];
    for (ending, code) in endings {
        let mut shell = TestTerminal::start(&fixture.command(&[
            "shell",
            &name,
            "--",
            "echo ready; read x; exit 3",
        ]));
        shell.wait_for("ready");
        assert!(shell.settings().contains(" -echo "), "{}", shell.settings());
        match ending {
            "exit" => shell.type_text("\r"),
            "escape" => shell.type_text("~."),
            "signal" => {
                let pid = Pid::from_raw(shell.child.process_id().unwrap() as i32).unwrap();
                kill_process(pid, Signal::TERM).unwrap();
            }
            _ => {
                fixture.run(&["rm", &name]).expect(0);
            }
        }
        shell.wait_for_end(code);
        let after = shell.settings();
        for setting in [" echo ", " icanon ", " isig ", " opost "] {
            assert!(after.contains(setting), "{ending}: {after}");
        }
    }
    fixture.end();
}
