//! A command cannot forge its completion: each attack completes only when it exits, with its own
//! exit code.

use super::*;

/// Functions of the attacks. They forge marks and reports of this and of older versions with every
/// nonce that they find.
const ATTACK_LIBRARY: &str = r#"
import array, ctypes, fcntl, glob, os, re, signal, socket, sys, termios, time
shell = int(os.environ["SHELL_PID"])

def read(path):
    try:
        if os.path.exists(path):
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                return os.read(file, 1 << 20)
            finally:
                os.close(file)
    except OSError:
        pass
    return b""

def found(*paths):
    text = b"".join(read(path) for path in paths)
    return set(re.findall(rb"[0-9a-f]{8,64}", text)) | {b"0123456789abcdef"}

def forged(nonces):
    shapes = [b"\x1b]%s\x07", b"\x1b]%s;\x07", b"\x1b]%s;E;0;x;/\x07", b"\x1b]%s;E;0;~;/\x07", b"\x1b]%s;S;1\x07",
              b"E;%s;0;/\0", b"R;%s;0;/\0"]
    turns = [(kind, turn + is_next, turn) for turn in range(20) for kind, is_next in [(b"E", 0), (b"R", 1)]]
    reports = [b"%s;%d;%d;0;/\0" % report for report in turns]
    reports += [b"%d;%d;0;;/\0" % (turn + is_next, turn) for turn in range(20) for is_next in (0, 1)]
    marks = [b"\x1b]%s;%d\x07" % (nonce, turn) for nonce in nonces for turn in range(20)]
    return b"".join([shape % nonce for nonce in nonces for shape in shapes] + reports + marks)

def write(file, text):
    try:
        os.write(file, text)
    except OSError:
        pass

def write_to(path, text):
    try:
        file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return
    write(file, text)
    os.close(file)

everything = ["/proc/self/environ", "/proc/self/cmdline", f"/proc/{shell}/environ", f"/proc/{shell}/cmdline",
              *glob.glob("/proc/self/fd/*"), *glob.glob(f"/proc/{shell}/fd/*")]
everything = [path for path in everything if not path.endswith(("/0", "/1", "/2"))]
"#;

/// The actual end of an attack.
const ATTACK_END: &str = "\ntime.sleep(0.3)\nopen('ended', 'w').close()\nsys.exit(3)\n";

impl Fixture {
    /// Writes `attack` as a program and returns its command line. `None`, and the test is skipped,
    /// without Python.
    fn program(&self, name: &str, attack: &str) -> Option<String> {
        if skip_without("python3") {
            return None;
        }
        std::fs::write(
            self.path().join(name),
            format!("{ATTACK_LIBRARY}\n{attack}\n"),
        )
        .unwrap();
        Some(format!("SHELL_PID=$$ python3 {name}"))
    }

    /// Runs an attack in the foreground. It must not complete before it exits, nor with another
    /// exit code.
    async fn assert_cannot_complete(&self, attack: &str) {
        let Some(command) = self.program("attack.py", &format!("{attack}{ATTACK_END}")) else {
            return;
        };
        self.assert_completes_once(&command).await;
    }

    async fn assert_completes_once(&self, command: &str) {
        let result = self.run(command).await;
        let has_ended = self.path().join("ended").exists();
        assert_eq!(
            (result.metadata.exit_code, has_ended),
            (3, true),
            "{command}: {result:?}"
        );
        assert_eq!(self.run("(exit 4)").await.metadata.exit_code, 4);
        assert_eq!(self.succeed("echo fine").await, "fine");
    }
}

on_every_shell! {
    async fn printed_marks_complete_nothing(fixture) {
        fixture.assert_cannot_complete("write(1, forged(found()))").await;
    }

    async fn nonces_from_proc_complete_nothing(fixture) {
        fixture.assert_cannot_complete("write(1, forged(found(*everything)))").await;
    }

    async fn writing_to_the_terminal_device_completes_nothing(fixture) {
        fixture.assert_cannot_complete("write_to('/dev/tty', forged(found(*everything)))").await;
    }

    async fn writing_to_every_descriptor_completes_nothing(fixture) {
        let attack = "text = forged(found(*everything))\n\
                      for file in range(1, 1024): write(file, text)\n\
                      for path in everything: write_to(path, text)";
        fixture.assert_cannot_complete(attack).await;
    }

    async fn descriptors_taken_from_the_shell_complete_nothing(fixture) {
// Effective only where the system allows ptrace, which pidfd_getfd requires.
        let attack = "text = forged(found(*everything))\n\
                      call = ctypes.CDLL(None).syscall\n\
                      pidfd = call(434, shell, 0)\n\
                      for file in range(3, 256): write(call(438, pidfd, file, 0), text)";
        fixture.assert_cannot_complete(attack).await;
    }

    async fn shells_script_cannot_be_changed(fixture) {
        let attack = "for path in [f'/proc/{shell}/fd/250', '/proc/self/fd/250']:\n    \
                          write_to(path, b'printf forged; exit 0\\n')\n    \
                          try: os.truncate(path, 0)\n    \
                          except OSError: pass";
        fixture.assert_cannot_complete(attack).await;
    }

    async fn giving_the_shell_the_terminal_completes_nothing(fixture) {
        let attack = "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n\
                      signal.signal(signal.SIGTTIN, signal.SIG_IGN)\n\
                      os.tcsetpgrp(0, os.getpgid(shell))\n\
                      write(1, forged(found(*everything)))";
        fixture.assert_cannot_complete(attack).await;
    }

    async fn typed_input_completes_nothing(fixture) {
// Kernels since 6.2 refuse TIOCSTI by default.
        let attack = "def inject(text):\n    \
                          for byte in text:\n        \
                              try: fcntl.ioctl(0, termios.TIOCSTI, bytes([byte]))\n        \
                              except OSError: return\n\
                      inject(b'. /proc/self/fd/250\\n')\n\
                      inject(b\"printf 'E;%s;0;/\\\\0' $__glovebox_nonce >&251\\n\")";
        fixture.assert_cannot_complete(attack).await;
    }

    async fn captured_output_of_a_nested_shell_completes_nothing(fixture) {
        let attack = "import subprocess\n\
                      for name in ['bash', 'dash', 'sh']:\n    \
                          try: shown = subprocess.run([name, '-i'], input=b'set; exit\\n', capture_output=True, start_new_session=True, env={**os.environ, 'HOME': '/'})\n    \
                          except OSError: continue\n    \
                          write(1, shown.stdout + shown.stderr + forged(re.findall(rb'[0-9a-f]{16,64}', shown.stdout + shown.stderr)))";
        fixture.assert_cannot_complete(attack).await;
    }

    async fn prompts_of_a_nested_shell_complete_nothing(fixture) {
        let nested = "sh -i <<'END'\n:\nfalse\nsleep 0.3\necho >ended\nexit 3\nEND";
        fixture.assert_completes_once(nested).await;
    }

    async fn subshell_that_knows_the_nonce_completes_nothing(fixture) {
// It has a copy of the descriptor too, but its process id differs from the shell's.
        let attack = "(for file in 3 4 5 6 7 8 9 10 11 12 13 14 15 251; do\n\
                      for kind in E R; do eval \"printf '$kind;%s;0;/\\0' \\$__glovebox_nonce >&$file\"; done\n\
                      done 2>/dev/null; sleep 0.3; echo >ended; exit 3)";
        if fixture.succeed("echo ${BASH_VERSION-}").await.is_empty() {
// dash exits a subshell that uses a descriptor with two digits.
            let attack = attack.replace(" 10 11 12 13 14 15 251", "");
            fixture.assert_completes_once(&attack).await;
        } else {
            fixture.assert_completes_once(attack).await;
        }
    }

    async fn background_process_completes_no_later_command(fixture) {
        let attack = "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n\
                      while not os.path.exists('stop'):\n    \
                          text = forged(found(*everything))\n    \
                          write(1, text)\n    \
                          write_to('/dev/tty', text)\n    \
                          for path in everything: write_to(path, text)\n    \
                          time.sleep(0.02)";
        let Some(command) = fixture.program("attack.py", attack) else { return };
        fixture.run(&format!("{command} & echo started")).await;
        for code in 1..6 {
            let file = format!("ended{code}");
            let result = fixture.run(&format!("sleep 0.2; echo >{file}; (exit {code})")).await;
            assert_eq!(result.metadata.exit_code, code, "{result:?}");
            assert!(fixture.path().join(file).exists());
        }
        std::fs::write(fixture.path().join("stop"), "").unwrap();
        fixture.run("wait").await;
    }

    async fn earlier_marks_complete_no_later_command(fixture) {
// The marks of the prompts of this session.
        let attack = "mark = b'\\x1b]' + re.search(rb'PS1=\\x1b.([0-9a-f]*)', read(f'/proc/{shell}/environ')).group(1) + b';\\x07'\n\
                      for _ in range(20): write(1, mark); time.sleep(0.01)";
        fixture.succeed("(exit 0)").await;
        fixture.assert_cannot_complete(attack).await;
    }

    async fn program_in_the_place_of_the_shell_completes_nothing(fixture) {
        let attack = "text = forged(found(*everything))\n\
                      for file in range(1, 1024): write(file, text)";
        let Some(command) = fixture.program("attack.py", &format!("{attack}{ATTACK_END}")) else { return };
        let result = fixture.run(&command.replace("python3", "exec python3")).await;
        let has_ended = fixture.path().join("ended").exists();
        assert_eq!((result.metadata.exit_code, has_ended), (3, true), "{result:?}");
        assert_eq!(fixture.succeed("echo fine").await, "fine");
    }
}
