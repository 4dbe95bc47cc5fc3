//! `glovebox sandbox …` as its users meet it: the program itself, in local sandboxes and in containers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::glovebox::{Ended, Home, PATIENCE, wait_until};
use tests::sandbox_contract::Backend as _;
use tests::sandbox_contract::docker::DockerBackend;

/// A home with one sandbox, called `box`, at one runtime.
struct Scene {
    home: Home,
    runtime: &'static str,
}

impl Scene {
    fn local() -> Self {
        Self::of(Home::new(), "local", &[])
    }

    /// Nothing without an engine.
    fn docker() -> Option<Self> {
        let image = DockerBackend::busybox()?.image()?;
        Some(Self::of(Home::new(), "docker", &["--image", &image]))
    }

    fn all() -> Vec<Self> {
        [Some(Self::local()), Self::docker()].into_iter().flatten().collect()
    }

    fn of(home: Home, runtime: &'static str, more: &[&str]) -> Self {
        let scene = Self { home, runtime };
        let name = scene.name();
        let create = [&["create", &name, "--env", "COLOR=green"], more].concat();
        assert_eq!(scene.run(&create).expect(0).stdout, format!("{name}\n"));
        scene
    }

    /// Containers of all tests lie together.
    fn name(&self) -> String {
        let folder = self.home.path().file_name().unwrap().to_str().unwrap();
        format!("box{}", folder.trim_start_matches('.'))
    }

    fn place(&self, path: &str) -> String {
        format!("{}:{path}", self.name())
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let (subcommand, more) = arguments.split_first().unwrap();
        self.home.glovebox(&[&["sandbox", subcommand, "--runtime", self.runtime], more].concat())
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn exec(&self, words: &[&str]) -> Ended {
        self.run(&[&["exec", &self.name(), "--"], words].concat())
    }

    fn list(&self) -> Vec<Value> {
        serde_json::from_str(&self.run(&["ls", "--json"]).expect(0).stdout).unwrap()
    }

    /// Removes the sandbox, and checks that nothing is left.
    fn end(self) {
        self.run(&["rm", "--all"]).expect(0);
        assert_eq!(self.list(), Vec::<Value>::new());
        self.home.assert_nothing_runs();
    }
}

/// What a failed test has left.
impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "--all"]);
    }
}

fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[track_caller]
fn refused(ended: &Ended, code: i32, part: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    let lines: Vec<_> = ended.stderr.lines().filter(|line| !line.contains("warning")).collect();
    assert!(ended.stderr.contains(part) && lines.len() == 1, "{part} in one line of: {}", ended.stderr);
}

#[test]
fn a_sandbox_is_made_listed_and_removed() {
    for scene in Scene::all() {
        let name = scene.name();
        let list = scene.list();
        assert_eq!(list.len(), 1);
        assert_eq!((&list[0]["name"], &list[0]["state"]), (&name.clone().into(), &"running".into()));
        assert_eq!((&list[0]["made"], &list[0]["runtime"]), (&"by hand".into(), &scene.runtime.into()));
        let table = scene.run(&["ls"]).expect(0).stdout;
        assert!(table.starts_with("NAME") && table.contains(&name) && table.contains("by hand"), "{table}");
        // Made by hand, it is for nobody else to remove, and its name is taken.
        assert_eq!(scene.run(&["prune"]).expect(0).stdout, "");
        refused(&scene.run(&["create", &name]), 2, "already");
        assert_eq!(scene.exec(&["sh", "-c", "echo $COLOR"]).expect(0).stdout, "green\n");
        assert_eq!(scene.run(&["rm", &format!("glovebox-{name}")]).expect(0).stdout, format!("{name}\n"));
        refused(&scene.run(&["rm", &name]), 2, "there is no sandbox");
        refused(&scene.exec(&["true"]), 2, "there is no sandbox");
        scene.end();
    }
}

#[test]
fn a_program_has_this_commands_input_output_and_exit_code() {
    for scene in Scene::all() {
        let script = "echo out; echo err >&2; exit 42";
        let ran = scene.exec(&["sh", "-c", script]).expect(42);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
        scene.exec(&["sh", "-c", "kill -9 $$"]).expect(137);
        assert_eq!(scene.exec(&["printf", "%s|", "a b", "$HOME"]).expect(0).stdout, "a b|$HOME|");
        refused(&scene.exec(&["no-such-program"]), 1, "no-such-program");

        let input: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 251) as u8).collect();
        let mut cat = scene.command(&["exec", &scene.name(), "--", "cat"]);
        let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, sent) = (cat.stdin.take().unwrap(), input.clone());
        let writing = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
        let output = cat.wait_with_output().unwrap();
        writing.join().unwrap();
        assert!(output.status.success() && output.stdout == input, "{}", output.stdout.len());

        // Nobody reads it any more: it is ended, not left.
        let mut yes =
            scene.command(&["exec", &scene.name(), "--", "yes"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 2];
        yes.stdout.take().unwrap().read_exact(&mut first).unwrap();
        assert_eq!((&first, yes.wait().unwrap().code()), (b"y\n", Some(141)));
        scene.end();
    }
}

#[test]
fn an_interrupt_ends_the_program_inside() {
    for scene in Scene::all() {
        let script = "echo $$ > pid; sleep 1000 & echo begun; wait";
        let mut exec = scene.command(&["exec", &scene.name(), "--", "sh", "-c", script]);
        let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(exec.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        kill_process(Pid::from_child(&exec), Signal::INT).unwrap();
        assert_eq!(exec.wait().unwrap().code(), Some(130));
        wait_until("the program inside is gone", || {
            scene.exec(&["sh", "-c", "kill -0 $(cat pid) 2>&-"]).code != 0
        });
        scene.end();
    }
}

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

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    for scene in Scene::all() {
        let source = scene.home.path().join("source");
        std::fs::create_dir_all(source.join("deep/er")).unwrap();
        std::fs::create_dir(source.join("empty")).unwrap();
        for (name, content) in [("plain", "1"), ("a b'c\"d$e\nf\\g", "2"), ("deep/er/-rf", "3"), ("ünï", "4")]
        {
            std::fs::write(source.join(name), content).unwrap();
        }
        std::fs::write(source.join("run.sh"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(source.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink("plain", source.join("link")).unwrap();
        let name = scene.name();
        scene.run(&["cp", source.to_str().unwrap(), &scene.place("in/side")]).expect(0);
        let target = scene.home.path().join("target");
        scene.run(&["cp", &scene.place("in/side"), target.to_str().unwrap()]).expect(0);
        let compared =
            std::process::Command::new("diff").arg("-r").args([&source, &target]).output().unwrap();
        assert!(compared.status.success(), "{compared:?}");
        assert_eq!(std::fs::read_link(target.join("link")).unwrap(), Path::new("plain"));
        assert_eq!(target.join("run.sh").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        // Into a folder that is there, and its contents alone.
        scene.run(&["cp", &scene.place("in/side"), target.to_str().unwrap()]).expect(0);
        assert!(target.join("side/deep/er/-rf").exists());
        scene.run(&["cp", &format!("{}/.", source.display()), &format!("{name}:")]).expect(0);
        assert_eq!(scene.exec(&["cat", "deep/er/-rf"]).expect(0).stdout, "3");
        scene.end();
    }
}

#[test]
fn a_large_file_goes_in_and_comes_out_whole() {
    for scene in Scene::all() {
        let content: Vec<u8> =
            (0..50_u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let file = scene.home.write("large", &content);
        let began = Instant::now();
        scene.run(&["cp", file.to_str().unwrap(), &scene.place("large")]).expect(0);
        let up = began.elapsed();
        scene.run(&["cp", &scene.place("large"), "back"]).expect(0);
        println!("{}: 50 MiB in {up:?} up, {:?} down", scene.runtime, began.elapsed() - up);
        assert!(std::fs::read(scene.home.path().join("back")).unwrap() == content);
        let out = scene.command(&["cp", &scene.place("large"), "-"]).output().unwrap();
        assert!(out.stdout == content);
        scene.end();
    }
}

#[test]
fn what_leads_out_of_a_folder_is_left_out_and_told() {
    for scene in Scene::all() {
        let outside = scene.home.write("outside", "untouched");
        let script = format!(
            "mkdir t; echo x >t/file; ln -s {} t/out; ln -s ../.. t/up; ln -s file t/in",
            outside.display()
        );
        scene.exec(&["sh", "-c", &script]).expect(0);
        let copied = scene.run(&["cp", &scene.place("t"), "t"]).expect(1);
        assert!(
            copied.stderr.contains("left out out: ") && copied.stderr.contains("left out up: "),
            "{copied:?}"
        );
        let target = scene.home.path().join("t");
        assert!(std::fs::symlink_metadata(target.join("out")).is_err());
        assert_eq!(std::fs::read_to_string(target.join("in")).unwrap(), "x\n");
        // The same on the way in.
        symlink("/etc/passwd", target.join("out")).unwrap();
        let copied = scene.run(&["cp", "t", &scene.place("u")]).expect(1);
        assert!(copied.stderr.contains("left out out: "), "{copied:?}");
        assert_eq!(scene.exec(&["ls", "u"]).expect(0).stdout, "file\nin\n");
        // A link that is here already is not gone through.
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::create_dir(&target).unwrap();
        symlink(scene.home.path(), target.join("t")).unwrap();
        scene.exec(&["sh", "-c", "mkdir t/t; echo hostile >t/t/outside"]).expect(0);
        let through = scene.run(&["cp", &scene.place("t/."), "t"]);
        refused(&through, 1, "no folder here");
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "untouched");
        refused(&scene.run(&["cp", &scene.place("nothing"), "."]), 2, "there is no nothing");
        refused(&scene.run(&["cp", "a", "b"]), 2, "one of the two");
        scene.end();
    }
}

#[test]
fn a_port_inside_serves_many_connections_here() {
    let scene = Scene::of(Home::new(), "local", &["--unsafe-local"]);
    // A server that answers each connection with what it heard; it is this test's, which a local sandbox reaches.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inside = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    forwarded(&scene, inside, |address| {
        let threads: Vec<_> = (0..40_u8)
            .map(|number| {
                let address = address.to_owned();
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    let sent = vec![number; 100_000];
                    let mut writer = stream.try_clone().unwrap();
                    let copy = sent.clone();
                    let writing = std::thread::spawn(move || {
                        writer.write_all(&copy).unwrap();
                        writer.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).unwrap();
                    writing.join().unwrap();
                    assert!(heard == sent);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let list: Vec<Value> =
        serde_json::from_str(&scene.run(&["port", &scene.name(), "--json"]).expect(0).stdout).unwrap();
    assert!(list.iter().any(|port| port["port"] == inside), "{list:?}");
    scene.end();
}

/// A command that goes on until it is interrupted; killed when the test fails before.
struct Running(Child);

impl Running {
    fn interrupt(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(130));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_forward(scene: &Scene, inside: u16, more: &[&str]) -> Running {
    let (name, ports) = (scene.name(), format!("{inside}:0"));
    let arguments = [&["port", name.as_str(), &ports], more].concat();
    Running(scene.command(&arguments).stdout(Stdio::piped()).spawn().unwrap())
}

fn address_of(port: &mut Running) -> String {
    let mut address = String::new();
    BufReader::new(port.0.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    address.trim().to_owned()
}

fn forwarded(scene: &Scene, inside: u16, check: impl FnOnce(&str)) {
    let mut port = start_forward(scene, inside, &[]);
    let address = address_of(&mut port);
    check(&address);
    port.interrupt();
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn what_is_left_of_conversations_is_pruned_and_what_is_used_is_not() {
    let home = Home::new();
    let mut exec = home.glovebox(&["exec", "--runtime", "local", "--", "echo begun; sleep 1000"]);
    let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(exec.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    let prune = |more: &[&str]| {
        home.run(&[&["sandbox", "prune", "--runtime", "local"], more].concat()).expect(0).stdout
    };
    assert_eq!(prune(&[]), "", "it is used");
    let list = home.run(&["sandbox", "ls", "--runtime", "local", "--json"]).expect(0).stdout;
    let list: Vec<Value> = serde_json::from_str(&list).unwrap();
    let name = list[0]["name"].as_str().unwrap();
    refused(&home.run(&["sandbox", "rm", "--runtime", "local", name]), 1, "another process");
    exec.kill().unwrap();
    exec.wait().unwrap();
    assert_eq!(prune(&["--dry-run"]), format!("{name}\n"));
    assert_eq!(prune(&[]), format!("{name}\n"));
    assert_eq!(prune(&[]), "");
    home.assert_nothing_runs();
}

#[test]
fn what_a_runtime_cannot_do_and_wrong_usage_are_one_line() {
    let scene = Scene::local();
    let name = scene.name();
    scene.run(&["logs", &name]).expect(0);
    refused(&scene.run(&["snapshot", &name]), 1, "the runtime local cannot make a snapshot");
    refused(&scene.run(&["fork", &name]), 1, "the runtime local cannot make a snapshot");
    refused(&scene.run(&["shell", &name]), 2, "must be a terminal");
    refused(&scene.run(&["create", "--env", "GLOVEBOX_NO_SUCH"]), 2, "GLOVEBOX_NO_SUCH");
    for (wrong, part) in [
        (["port", &name, "8080:x"].as_slice(), "expected a port"),
        (&["create", "--memory", "much"], "expected a size"),
        (&["exec", "../x", "--", "true"], "an id"),
        (&["rm"], "NAME"),
    ] {
        let ended = scene.run(wrong).expect(2);
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    for subcommand in ["create", "ls", "exec", "shell", "cp", "port", "logs", "stats", "pause", "rm", "prune"]
    {
        scene.run(&[subcommand, "--help"]).expect(0);
    }
    scene.end();
}
