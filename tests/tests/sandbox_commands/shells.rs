//! `glovebox sandbox shell`, on terminals of the test's own.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use tests::glovebox::PATIENCE;

use super::Scene;

/// After how long a text is typed again.
const TYPING_PAUSE: Duration = Duration::from_secs(2);

/// The same, counted in looks whether a program has ended.
const TYPING_TICKS: u32 = 400;

/// The program on a terminal of its own, with what it shows.
struct Terminal {
    child: Box<dyn portable_pty::Child + Send + Sync>,
    writer: Box<dyn std::io::Write + Send>,
    shown: std::sync::mpsc::Receiver<Vec<u8>>,
    seen: String,
    pair: portable_pty::PtyPair,
}

impl Terminal {
    fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let size = PtySize { rows: 33, cols: 101, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let plain = scene.command(arguments);
        let mut command = CommandBuilder::new(plain.get_program());
        command.args(plain.get_args());
        command.env_clear();
        plain.get_envs().for_each(|(name, value)| command.env(name, value.unwrap()));
        command.env("TERM", "xterm");
        command.cwd(scene.home.path());
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (send, shown) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let writer = pair.master.take_writer().unwrap();
        Self { child, writer, shown, seen: String::new(), pair }
    }

    fn type_text(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until a text was shown, and forgets what was before it.
    fn until(&mut self, text: &str) {
        self.type_until("", text);
    }

    /// The same, and types again and again: what is typed before a shell has its prompt back may be lost.
    fn type_until(&mut self, typed: &str, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        self.type_text(typed);
        while !self.seen.contains(text) {
            match self.shown.recv_timeout(TYPING_PAUSE) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) if Instant::now() < deadline => self.type_text(typed),
                Err(_) => panic!("{text:?} not in {:?}", self.seen),
            }
        }
        let at = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..at);
    }

    /// How the terminal is set, in stty's words.
    fn settings(&self) -> String {
        let path = self.pair.master.tty_name().unwrap();
        let output = std::process::Command::new("stty").arg("-F").arg(path).arg("-a").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().replace('\n', " ")
    }

    fn wait_for_end(&mut self, code: u32) {
        self.type_until_end("", code);
    }

    fn type_until_end(&mut self, typed: &str, code: u32) {
        let deadline = Instant::now() + PATIENCE;
        for tick in 0_u32.. {
            if tick.is_multiple_of(TYPING_TICKS) && !typed.is_empty() {
                // Half a line may be there, of which the other half was lost. The program may have ended meanwhile.
                let clear = if tick == 0 { "" } else { "\x03" };
                let _ = self.writer.write_all(format!("{clear}{typed}").as_bytes());
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                assert_eq!(status.exit_code(), code, "shown: {:?}", self.seen);
                return;
            }
            assert!(Instant::now() < deadline, "still there; shown: {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

#[test]
fn a_shell_is_a_terminal_inside() {
    for scene in Scene::all() {
        let name = scene.name();
        let mut shell = Terminal::start(&scene, &["shell", &name]);
        shell.type_text("echo $((40+2)) $COLOR; stty size\r");
        shell.until("42 green");
        shell.until("33 101");
        let size = PtySize { rows: 20, cols: 72, pixel_width: 0, pixel_height: 0 };
        shell.pair.master.resize(size).unwrap();
        // The size goes before the keys that come after it, but the signal may come after them.
        shell.type_text("until stty size | grep '^20 72$'; do sleep 0.05; done\r");
        shell.until("20 72\r\n");
        shell.type_text("echo begun''; sleep 1000; echo $?''x\r");
        shell.until("begun\r\n");
        // One that comes while the shell is starting the program is its own, and it goes on.
        shell.type_until("\x03echo still'' here\r", "still here");
        shell.type_until_end("exit 9\r", 9);
        scene.end();
    }
}

#[test]
fn program_reads_the_terminal_and_interrupt_exits_with_130() {
    let scene = Scene::local();
    let name = scene.name();
    for (typed, code) in [("\x04", 0), ("\x03", 130)] {
        let mut exec = Terminal::start(&scene, &["exec", &name, "--", "sed", "-u", "s/^/got /"]);
        exec.type_text("one\r");
        exec.until("got one");
        exec.type_text(typed);
        exec.wait_for_end(code);
    }
    scene.end();
}

#[test]
fn the_terminal_is_as_it_was_whatever_ends_the_shell() {
    let scene = Scene::local();
    let name = scene.name();
    let endings: [(&str, u32); 3] = [("exit", 3), ("signal", 130), ("server", 1)];
    for (ending, code) in endings {
        let mut shell = Terminal::start(&scene, &["shell", &name, "--", "echo ready; read x; exit 3"]);
        shell.until("ready");
        assert!(shell.settings().contains(" -echo "), "{}", shell.settings());
        match ending {
            "exit" => shell.type_text("\r"),
            "signal" => {
                let pid = Pid::from_raw(shell.child.process_id().unwrap() as i32).unwrap();
                kill_process(pid, Signal::TERM).unwrap();
            }
            _ => {
                scene.run(&["rm", &name]).expect(0);
            }
        }
        shell.wait_for_end(code);
        let after = shell.settings();
        for setting in [" echo ", " icanon ", " isig ", " opost "] {
            assert!(after.contains(setting), "{ending}: {after}");
        }
    }
    scene.end();
}
