//! A terminal with a program, used like an interactive user.

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::glovebox::TEST_TIMEOUT;

/// Interval after which a text is typed again.
const TYPING_PAUSE: Duration = Duration::from_secs(2);

/// The same interval, counted in polls of the program's exit.
const TYPING_TICKS: u32 = 400;

/// A program on its own terminal, and its output.
pub struct TestTerminal {
    /// The program.
    pub child: Box<dyn portable_pty::Child + Send + Sync>,
    writer: Box<dyn std::io::Write + Send>,
    shown: std::sync::mpsc::Receiver<Vec<u8>>,
    /// The output that was not consumed yet.
    pub seen: String,
    /// Both sides of the pseudo-terminal.
    pub pair: portable_pty::PtyPair,
}

impl TestTerminal {
    /// Starts a command on a new terminal.
    pub fn start(plain: &Command) -> Self {
        let size = PtySize {
            rows: 33,
            cols: 101,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(plain.get_program());
        command.args(plain.get_args());
        command.env_clear();
        command.env("TERM", "xterm");
        plain
            .get_envs()
            .for_each(|(name, value)| command.env(name, value.unwrap()));
        plain
            .get_current_dir()
            .into_iter()
            .for_each(|folder| command.cwd(folder));
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
        Self {
            child,
            writer,
            shown,
            seen: String::new(),
            pair,
        }
    }

    /// Types a text.
    pub fn type_text(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until a text was shown. Consumes and returns the output up to it.
    pub fn wait_for(&mut self, text: &str) -> String {
        self.type_until("", text)
    }

    /// Waits like `until`, and types a text repeatedly: input before a shell shows its prompt may
    /// be lost.
    pub fn type_until(&mut self, typed: &str, text: &str) -> String {
        let deadline = Instant::now() + TEST_TIMEOUT;
        self.type_text(typed);
        while !self.seen.contains(text) {
            match self.shown.recv_timeout(TYPING_PAUSE) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) if Instant::now() < deadline => self.type_text(typed),
                Err(_) => panic!("{text:?} not in {:?}", self.seen),
            }
        }
        let at = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..at).collect()
    }

    /// Returns the terminal settings as printed by stty.
    pub fn settings(&self) -> String {
        let path = self.pair.master.tty_name().unwrap();
        let output = Command::new("stty")
            .arg("-F")
            .arg(path)
            .arg("-a")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().replace('\n', " ")
    }

    /// Waits for the program's exit and checks the exit code.
    pub fn wait_for_end(&mut self, code: u32) {
        self.type_until_end("", code);
    }

    /// Waits like `wait_for_end`, and types a text repeatedly.
    pub fn type_until_end(&mut self, typed: &str, code: u32) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        for tick in 0_u32.. {
            if tick.is_multiple_of(TYPING_TICKS) && !typed.is_empty() {
                // Part of a line may have been lost. The program may have exited in between.
                let clear = if tick == 0 { "" } else { "\x03" };
                let _ = self.writer.write_all(format!("{clear}{typed}").as_bytes());
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                assert_eq!(status.exit_code(), code, "shown: {:?}", self.seen);
                return;
            }
            assert!(
                Instant::now() < deadline,
                "still there; shown: {:?}",
                self.seen
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}
