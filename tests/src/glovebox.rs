//! The program `glovebox` as a user runs it, in a process with its own home.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use llm::testing::StrictProvider;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::strict_server::StrictServer;

/// Maximum time of any wait in a test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A temporary home: state, configuration and workspace below one folder. Drop kills the processes
/// that a failed test left in it.
pub struct Home {
    folder: TempDir,
    /// The provider of the scripted model. `None` if no wire is used.
    provider: Option<StrictServer>,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// Creates an empty home.
    pub fn new() -> Self {
        let home = Self {
            folder: tempfile::tempdir().unwrap(),
            provider: None,
        };
        std::fs::create_dir(home.workspace()).unwrap();
        home
    }

    /// Runs a test in one empty home for each wire. Its strict provider writes the responses of
    /// scripts.
    pub fn on_each_wire(test: impl Fn(&Self)) {
        let models = [
            "openai/gpt-4o",
            "anthropic/claude-fable-5-2",
            "openai/responses/gpt-6-luna",
        ];
        let providers = StrictProvider::all(0).into_iter();
        for provider in providers.filter(|provider| models.contains(&provider.model())) {
            println!("with {}", provider.model());
            let mut home = Self::new();
            home.provider = Some(StrictServer::start(provider));
            test(&home);
        }
    }

    /// Returns the home, the working directory of programs.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the workspace, for `-d`.
    pub fn workspace(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Writes a file below the home; `.glovebox/config.toml` is the user's own configuration.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path.parent().unwrap())
            .unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes a script of model responses and returns its name for `--model`.
    pub fn script(&self, responses: &Value) -> String {
        if let Some(provider) = &self.provider {
            provider.set_script(responses);
            return provider.model.to_owned();
        }
        let path = self.write("script.json", json!({"responses": responses}).to_string());
        format!("scripted:{}", path.display())
    }

    /// Returns the command with these arguments and a minimal environment.
    pub fn glovebox(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        for name in ["PATH", "DOCKER_HOST"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("HOME", self.path());
        if let Some(provider) = &self.provider {
            command.envs([
                ("LLM_BASE_URL", provider.base_url.as_str()),
                ("LLM_API_KEY", "key-of-the-test"),
            ]);
        }
        command
    }

    /// Adds a key of a user with `glovebox user key add`. Returns the key and its id.
    pub fn add_key(&self, user: &str, arguments: &[&str]) -> (String, String) {
        let all = [&["user", "key", "add", user, "--json"], arguments].concat();
        let output = self.glovebox(&all).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let added: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |name: &str| added[name].as_str().unwrap().to_owned();
        (text("key"), text("id"))
    }

    /// Adds a user, and returns a key that can do everything.
    pub fn add_user(&self, name: &str) -> String {
        let added = self.glovebox(&["user", "add", name]).output().unwrap();
        assert!(
            added.status.success(),
            "{}",
            String::from_utf8_lossy(&added.stderr)
        );
        self.add_key(name, &[]).0
    }

    /// Runs the program to completion.
    pub fn run(&self, arguments: &[&str]) -> CompletedRun {
        CompletedRun::from_output(&self.glovebox(arguments).output().unwrap())
    }

    /// Runs the program to completion in another folder.
    pub fn run_in(&self, folder: &Path, arguments: &[&str]) -> CompletedRun {
        CompletedRun::from_output(
            &self
                .glovebox(arguments)
                .current_dir(folder)
                .output()
                .unwrap(),
        )
    }

    /// Runs the program without root's capability to override file modes.
    pub fn run_without_capabilities(&self, arguments: &[&str]) -> CompletedRun {
        let plain = self.glovebox(arguments);
        if !rustix::process::geteuid().is_root() {
            return self.run(arguments);
        }
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", "--inh-caps", "-all"]);
        command
            .arg(plain.get_program())
            .args(plain.get_args())
            .env_clear();
        command.envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        CompletedRun::from_output(
            &command
                .current_dir(self.path())
                .stdin(Stdio::null())
                .output()
                .unwrap(),
        )
    }

    /// Sets the mode of the state folder, and the one of each file in it.
    pub fn set_state_modes(&self, file: u32, folder: u32) {
        let state_dir = self.path().join(".glovebox");
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let entries = state_dir
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.is_file())
            .for_each(|path| set(&path, file));
        set(&state_dir, folder);
    }

    /// Returns the candidates that bash offers for the next word. Other output is a failure: it
    /// would disturb the prompt.
    pub fn completed(&self, words: &str, engine: Option<&Path>) -> String {
        let script = "source <(\"$0\" completions bash); COMP_WORDS=($1 \"\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                      COMP_TYPE=9; _clap_complete_glovebox glovebox \"\"; printf '%s\n' \"${COMPREPLY[@]}\"";
        let program = self.glovebox(&[]);
        let mut bash = Command::new("bash");
        bash.args(["-c", script])
            .arg(program.get_program())
            .arg(words)
            .env_clear();
        bash.envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        bash.envs(engine.map(|engine| ("DOCKER_HOST", format!("unix://{}", engine.display()))));
        let output = bash.output().unwrap();
        assert!(output.stderr.is_empty(), "output at the prompt: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the ids of the conversations, the latest first.
    pub fn conversations(&self) -> Vec<String> {
        let list = self
            .run(&["conversations", "ls", "--json"])
            .expect(0)
            .stdout;
        let list: Vec<Value> = serde_json::from_str(&list).unwrap();
        list.iter()
            .map(|row| row["conversation_id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Starts the program with its events on standard output.
    pub fn start(&self, command: &mut Command) -> RunningProgram {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        RunningProgram {
            child,
            events,
            seen: Vec::new(),
        }
    }

    /// Returns the processes whose command line contains this home: action servers and their
    /// children.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let own = self.path().to_str().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| {
                let id = entry.file_name().to_str()?.parse().ok()?;
                let line = std::fs::read(entry.path().join("cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                line.contains(own).then_some((id, line))
            })
            .collect()
    }

    /// Returns the containers of this home, running or not.
    fn containers(&self) -> String {
        let Some(_) = std::env::var_os("DOCKER_HOST") else {
            return String::new();
        };
        // Without a secret no sandbox was ever created.
        let Ok(secret) = std::fs::read(self.path().join(".glovebox/secret")) else {
            return String::new();
        };
        let owner = sandbox_client::HostSecret::new(secret.try_into().unwrap()).owner();
        let owner = format!("label=glovebox.owner={owner}");
        let listed = Command::new("docker")
            .args(["ps", "--all", "--quiet", "--filter", &owner])
            .output()
            .unwrap();
        assert!(listed.status.success(), "listing containers");
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }

    /// Checks that the engine has no containers of this home, and waits until its processes have
    /// exited.
    pub fn assert_nothing_runs(&self) {
        assert_eq!(self.containers(), "", "containers left");
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.processes().is_empty() {
            assert!(
                Instant::now() < deadline,
                "left running: {:?}",
                self.processes()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for (id, _) in self.processes() {
            if let Some(id) = rustix::process::Pid::from_raw(id) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
    }
}

/// The exit code and the output of a completed run.
#[derive(Debug)]
pub struct CompletedRun {
    /// The exit code, or −1 if a signal killed the program.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CompletedRun {
    /// Returns what a process that has ended has printed, and its exit code.
    pub fn from_output(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Parses the events on standard output, without the head of `conversations show --json`.
    pub fn events(&self) -> Vec<Value> {
        let lines = self
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line.get("conversation").is_none())
            .collect()
    }

    /// Checks the exit code, and panics with the whole output if it differs.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }
}

/// A running program and its stream of events.
pub struct RunningProgram {
    child: Child,
    events: BufReader<ChildStdout>,
    /// The events that were received so far.
    pub seen: Vec<Value>,
}

impl RunningProgram {
    /// Reads events until one matches, and returns it.
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            if self.events.read_line(&mut line).unwrap() == 0 {
                let mut output = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    std::io::Read::read_to_string(&mut stderr, &mut output).unwrap();
                }
                panic!(
                    "ended before {what}; seen: {:#?}, stderr: {output}",
                    self.seen
                );
            }
            let event: Value = serde_json::from_str(&line).unwrap();
            self.seen.push(event.clone());
            if is_it(&event) {
                return event;
            }
        }
    }

    /// Waits for the lease of the sandbox and returns the id of the conversation.
    pub fn conversation(&mut self) -> String {
        let leased = self.wait_for("a lease", |event| event["record"] == "sandbox_leased");
        let sandbox = leased["args"]["sandbox_id"].as_str().unwrap();
        sandbox.rsplit('-').next().unwrap().to_owned()
    }

    /// Sends SIGKILL and waits for the exit.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits for the exit and reads the remaining output.
    pub fn end(mut self) -> CompletedRun {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.events, &mut rest).unwrap();
        let mut ended = CompletedRun::from_output(&self.child.wait_with_output().unwrap());
        let seen = self.seen.iter().map(|event| format!("{event}\n"));
        ended.stdout = seen.collect::<String>() + &rest;
        ended
    }
}

/// Returns an output that cannot be written: a full disk, or a pipe without a reader.
pub fn unwritable(is_full_disk: bool) -> Stdio {
    match is_full_disk {
        true => std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
            .into(),
        false => std::io::pipe().unwrap().1.into(),
    }
}

/// Returns the events as stored, without the id of their conversation.
pub fn as_stored(events: &[Value]) -> Vec<Value> {
    let mut events = events.to_owned();
    for event in events.iter_mut().filter_map(Value::as_object_mut) {
        event.remove("conversation_id");
    }
    events
}

/// Waits until a condition holds that another process brings about.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a scripted model response that calls one tool.
pub fn tool_call(tool: &str, arguments: &Value) -> Value {
    json!({"tool_calls": [{"name": tool, "arguments": arguments}]})
}

/// Returns a scripted model response that runs a command.
pub fn bash(command: &str) -> Value {
    tool_call("execute_bash", &json!({"command": command}))
}

/// Returns a scripted model response that finishes the task.
pub fn finish() -> Value {
    tool_call("finish", &json!({"message": "Done."}))
}

/// Returns the path of the program that `cargo ci` built. Without `cargo ci`, builds it.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("GLOVEBOX_TEST_BINARY") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    // Test binaries are in the folder `deps` of the profile, programs one level above.
    let program = std::env::current_exe().unwrap();
    let folder = program
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps"))
        .unwrap();
    let mut build = Command::new(env!("CARGO"));
    // Selects all crates, as the tests do: otherwise cargo would compile the libraries with other
    // features.
    build.args([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--bin",
        "glovebox",
    ]);
    build.args(folder.ends_with("release").then_some("--release"));
    build.arg("--target-dir").arg(folder.parent().unwrap());
    // Build scripts of libraries watch these variables, which the test runner sets, and would run
    // again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            build.env_remove(&name);
        }
    }
    assert!(build.status().unwrap().success(), "building glovebox");
    folder.join("glovebox")
}
