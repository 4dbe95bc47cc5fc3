//! Commands on the conversations of a server: `glovebox --server URL`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use conversations::MIN_QUESTION_AGE;
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, TEST_TIMEOUT, bash, finish, wait_until};
use tests::host_server::HostServer;
use tests::tcp_proxy::TcpProxy;
use tests::terminal::TestTerminal;
use tokio::time::{sleep, timeout};

/// A server, and a home of a user on another machine who has its key.
struct Remote {
    server: HostServer,
    user: Home,
    operator: Home,
}

impl Remote {
    fn start(responses: &Value, arguments: &[&str]) -> Self {
        Self::start_on(Home::new(), responses, arguments)
    }

    fn start_on(operator: Home, responses: &Value, arguments: &[&str]) -> Self {
        operator.write(
            "asks.toml",
            "[security]\nconfirmation_policy = \"always\"\n",
        );
        let server = HostServer::start(&operator, &operator.script(responses), arguments);
        let user = Home::new();
        let key = user.write("key", &server.key);
        let login = ["login", &server.url, "--key-file", key.to_str().unwrap()];
        user.run(&login).expect(0);
        Self {
            server,
            user,
            operator,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let server = ["--server", self.server.url.as_str()];
        self.user.glovebox(&[arguments, &server].concat())
    }

    fn run(&self, arguments: &[&str]) -> CompletedRun {
        CompletedRun::from_output(&self.command(arguments).output().unwrap())
    }

    /// Waits until the latest conversation does not run.
    async fn wait_until_closed(&self) {
        let is_running = async || {
            let list = self.server.get("/api/v2/conversations").await;
            list["conversations"][0]["is_running"] != false
        };
        let closed = async {
            while is_running().await {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(TEST_TIMEOUT, closed).await.unwrap();
    }

    /// Returns the rows of `conversations ls --json`.
    fn rows(&self) -> Vec<Value> {
        let list = self.run(&["conversations", "ls", "--json"]).expect(0);
        serde_json::from_str(&list.stdout).unwrap()
    }
}

fn question() -> Value {
    json!({"text": "What is your name?"})
}

#[tokio::test]
async fn task_runs_on_a_server_as_on_this_machine() {
    let remote = Remote::start(&json!([bash("echo hello"), question(), finish()]), &[]);
    let asked = remote.run(&["run", "Greet me.", "--name", "Greeting"]);
    let asked = asked.expect(4);
    assert_eq!(asked.stdout, "What is your name?\n");
    for part in ["$ echo hello", "  hello", "resume with: glovebox resume"] {
        assert!(asked.stderr.contains(part), "{part} in {}", asked.stderr);
    }
    let row = remote.rows().remove(0);
    assert_eq!(row["title"], "Greeting");
    let id = row["conversation_id"].as_str().unwrap();
    let answered = remote.run(&["resume", &id[id.len() - 8..], "-t", "Ada", "--json"]);
    let answered = answered.expect(0);
    let events = answered.events();
    assert_eq!(events[0]["args"]["content"], "Ada");
    assert!(events.iter().any(|event| event["action"] == "finish"));
    let forked = remote.run(&["conversations", "fork", "--last"]).expect(0);
    let forked = forked.stdout.trim();
    let shown = remote.run(&["conversations", "show", forked, "--json"]);
    let shown = shown.expect(0);
    let head: Value = serde_json::from_str(shown.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(head["conversation"]["conversation_id"], forked);
    let shown = shown.events();
    let exported = remote.run(&["conversations", "export", id]).expect(0);
    let exported: Vec<Value> = serde_json::from_str(&exported.stdout).unwrap();
    let finished = exported.iter().filter(|event| event["action"] == "finish");
    assert_eq!(finished.count(), 1);
    let again = remote.run(&["resume", "--last"]).expect(0);
    assert!(again.stderr.contains("-t TEXT"), "{}", again.stderr);
    assert_eq!(
        shown
            .iter()
            .filter(|event| event["action"] == "finish")
            .count(),
        1
    );
    remote.run(&["conversations", "rm", id, forked]).expect(0);
    assert!(remote.rows().is_empty());
    assert!(
        remote.user.conversations().is_empty(),
        "nothing is on this machine"
    );
}

#[tokio::test]
async fn detached_task_continues_without_its_command() {
    let wait = bash("while [ ! -e go ]; do sleep 0.1; done");
    let remote = Remote::start(&json!([wait, finish()]), &[]);
    let id = remote.run(&["run", "--detach", "Work."]).expect(0).stdout;
    wait_until("the command runs", || {
        remote.rows()[0]["agent_state"] == "running"
    });
    let mut command = remote.command(&["resume", id.trim(), "--json"]);
    let mut following = remote.user.start(&mut command);
    following.wait_for("the command", |event| event["action"] == "run");
    let workspaces = remote.operator.path().join(".glovebox/workspaces");
    std::fs::write(workspaces.join(id.trim()).join("go"), "").unwrap();
    let followed = following.end().expect(0);
    assert!(
        followed
            .events()
            .iter()
            .any(|event| event["action"] == "finish")
    );
    let local = remote.user.run(&["run", "--detach", "Work."]).expect(2);
    assert!(
        local.stderr.contains("--detach needs --server"),
        "{}",
        local.stderr
    );
}

#[tokio::test]
async fn interrupt_stops_the_agent_of_a_server() {
    let remote = Remote::start(&json!([bash("echo started; sleep 60"), finish()]), &[]);
    let mut running = remote
        .user
        .start(&mut remote.command(&["run", "Work.", "--json"]));
    running.wait_for("the command", |event| event["action"] == "run");
    running.signal(Signal::INT);
    running.end().expect(130);
    wait_until("the agent is stopped", || {
        remote.rows()[0]["agent_state"] == "stopped"
    });
}

#[tokio::test]
async fn action_of_a_server_is_approved_at_the_terminal() {
    let responses = json!([bash("echo approved"), bash("echo other"), finish()]);
    let remote = Remote::start(&responses, &["--config-file", "asks.toml"]);
    let mut terminal = TestTerminal::start(&remote.command(&["run", "Work."]));
    let prompt = terminal.wait_for("approve? [y]es");
    assert!(
        prompt.contains("$ echo approved") && prompt.contains("risk: "),
        "{prompt}"
    );
    terminal.type_text("y\n");
    terminal.wait_for("  approved");
    terminal.wait_for("approve? [y]es");
    terminal.type_text("no\n");
    terminal.wait_for("reason for the agent");
    terminal.type_text("Not this one.\n");
    terminal.wait_for("Done.");
    let events = remote
        .run(&["conversations", "show", "--last", "--json"])
        .expect(0);
    assert!(events.stdout.contains("Not this one."), "{}", events.stdout);
    assert!(!events.stdout.contains("\"content\":\"other"));
}

/// What an agent asked before its conversation was closed is asked again, without a new start of
/// the sandbox.
#[tokio::test]
async fn question_of_a_closed_conversation_is_asked_again() {
    let operator = Home::new();
    operator.write(
        ".glovebox/config.toml",
        "[sandbox]\nclose_delay = 1\n[security]\nconfirmation_policy = \"always\"\n",
    );
    let responses = json!([question(), bash("echo approved"), finish()]);
    let remote = Remote::start_on(operator, &responses, &[]);
    remote.run(&["run", "Greet me."]).expect(4);
    remote.wait_until_closed().await;
    let events = remote.rows()[0]["events"].clone();
    let resumed = remote.run(&["resume", "--last"]).expect(4);
    assert_eq!(resumed.stdout, "What is your name?\n");
    assert_eq!(remote.rows()[0]["events"], events, "nothing was started");
    remote.run(&["resume", "--last", "-t", "Ada"]).expect(4);
    remote.wait_until_closed().await;
    let mut terminal = TestTerminal::start(&remote.command(&["resume", "--last"]));
    let prompt = terminal.wait_for("approve? [y]es");
    assert!(prompt.contains("$ echo approved"), "{prompt}");
    terminal.type_text("y\n");
    terminal.wait_for("Done.");
    terminal.wait_for_end(0);
}

#[tokio::test]
async fn closed_conversation_is_stopped_at_its_question() {
    let operator = Home::new();
    operator.write(
        ".glovebox/config.toml",
        "[sandbox]\nclose_delay = 1\n[security]\nconfirmation_policy = \"always\"\n",
    );
    let remote = Remote::start_on(operator, &json!([bash("echo no"), finish()]), &[]);
    remote.run(&["run", "Work."]).expect(4);
    remote.wait_until_closed().await;
    let mut terminal = TestTerminal::start(&remote.command(&["resume", "--last"]));
    terminal.wait_for("approve? [y]es");
    terminal.type_text("s\n");
    terminal.wait_for_end(130);
    assert_eq!(remote.rows()[0]["agent_state"], "stopped");
    let resumed = remote.run(&["resume", "--last", "--json"]).expect(0);
    let events = resumed.events();
    assert!(!events.iter().any(|event| event["observation"] == "run"));
    assert!(events.iter().any(|event| event["action"] == "finish"));
}

#[tokio::test]
async fn decision_of_another_client_is_accepted() {
    let responses = json!([bash("echo first"), bash("echo second"), finish()]);
    let remote = Remote::start(&responses, &["--config-file", "asks.toml"]);
    let mut terminal = TestTerminal::start(&remote.command(&["run", "Work."]));
    terminal.wait_for("approve? [y]es");
    // A decision that names no action needs a question of this age.
    std::thread::sleep(MIN_QUESTION_AGE);
    remote
        .run(&["resume", "--last", "--confirm", "--json"])
        .expect(4);
    terminal.type_text("n\n");
    terminal.wait_for("reason for the agent");
    terminal.type_text("\n");
    terminal.wait_for("another client has decided");
    let prompt = terminal.wait_for("approve? [y]es");
    assert!(prompt.contains("$ echo second"), "{prompt}");
    terminal.type_text("y\n");
    terminal.wait_for("Done.");
    terminal.wait_for_end(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupts_end_a_run_whose_server_cannot_be_reached() {
    let remote = Remote::start(&json!([bash("sleep 60"), finish()]), &[]);
    let proxy = TcpProxy::to(remote.server.port()).await;
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let mut command = remote.user.glovebox(&["run", "Work.", "--server", &url]);
    command.env("GLOVEBOX_KEY", &remote.server.key);
    let mut terminal = TestTerminal::start(&command);
    terminal.wait_for("$ sleep 60");
    proxy.refuse(true);
    terminal.type_text("\u{3}");
    terminal.wait_for("interrupt again to exit immediately");
    terminal.type_text("\u{3}");
    terminal.wait_for("the conversation may continue");
    terminal.wait_for_end(130);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_continues_when_its_connection_is_cut() {
    let remote = Remote::start(&json!([bash("sleep 2; echo late"), finish()]), &[]);
    let proxy = TcpProxy::to(remote.server.port()).await;
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let mut command = remote
        .user
        .glovebox(&["run", "Work.", "--json", "--server", &url]);
    command.env("GLOVEBOX_KEY", &remote.server.key);
    let mut running = remote.user.start(&mut command);
    running.wait_for("the command", |event| event["action"] == "run");
    assert!(proxy.cut() > 0);
    let run = running.end().expect(0);
    let results = run.events();
    let results = results.iter().filter(|event| event["observation"] == "run");
    assert_eq!(results.count(), 1);
}

#[tokio::test]
async fn mistakes_are_explained() {
    let remote = Remote::start(&json!([finish()]), &[]);
    let keys = remote.user.path().join(".glovebox/servers.json");
    assert_eq!(keys.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let wrong = remote.user.write("wrong", "a key of another server");
    let url = remote.server.url.as_str();
    for (arguments, text) in [
        (
            &["run", "--runtime", "docker", "Work."][..],
            "--runtime is chosen by the server",
        ),
        (
            &["run", "-l", "gpt", "Work."],
            "there is no key for the model gpt",
        ),
        (
            &["run", "-c", "./agent.md", "Work."],
            "a server has no files of this machine",
        ),
        (&["run", "-c", "Nobody", "Work."], "Nobody"),
        (&["sandbox", "ls"], "leave out --server"),
        (&["doctor"], "leave out --server"),
        (
            &["conversations", "show", "abc"],
            "there is no conversation abc at",
        ),
        (&["conversations", "ls", "--here"], "leave out --here"),
        (
            &["conversations", "fork", "--last"],
            "there is no conversation yet",
        ),
        (
            &["login", url, "--key-file", wrong.to_str().unwrap()],
            "leave out --server",
        ),
    ] {
        let run = remote.run(arguments).expect(2);
        assert!(run.stderr.contains(text), "{arguments:?}: {}", run.stderr);
    }
    for (arguments, text) in [
        (
            &["login", url, "--key-file", wrong.to_str().unwrap()][..],
            "not valid",
        ),
        (
            &["login", "localhost:3000"],
            "is not the address of a server",
        ),
        (&["login", "http://user:secret@localhost"], "no password"),
        (&["logout", "http://127.0.0.1:1"], "there is no key"),
        (
            &["run", "Work.", "--server", "http://127.0.0.1:1"],
            "glovebox login http://127.0.0.1:1",
        ),
    ] {
        let run = remote.user.run(arguments).expect(2);
        assert!(run.stderr.contains(text), "{arguments:?}: {}", run.stderr);
        assert!(!run.stderr.contains("secret"), "{}", run.stderr);
    }
    remote.user.run(&["logout", url]).expect(0);
    assert!(
        remote
            .run(&["conversations", "ls"])
            .expect(2)
            .stderr
            .contains("glovebox login")
    );
    // An empty variable counts as unset, and an option counts more than the variable.
    let mut local = remote.user.glovebox(&["conversations", "ls", "--json"]);
    let local = local.env("GLOVEBOX_SERVER", "").output().unwrap();
    assert_eq!(CompletedRun::from_output(&local).expect(0).stdout, "[]\n");
    let mut doctor = remote.command(&["doctor"]);
    let doctor = doctor.env("GLOVEBOX_SERVER", url).output().unwrap();
    CompletedRun::from_output(&doctor).expect(2);
    let mut unreachable = remote.user.glovebox(&["conversations", "ls"]);
    unreachable.envs([
        ("GLOVEBOX_SERVER", "http://127.0.0.1:1"),
        ("GLOVEBOX_KEY", remote.server.key.as_str()),
    ]);
    let run = CompletedRun::from_output(&unreachable.output().unwrap()).expect(1);
    assert!(
        run.stderr.contains("cannot reach the server"),
        "{}",
        run.stderr
    );
}
