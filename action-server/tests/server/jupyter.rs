//! Cells, run by IPython from PyPI.

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{Observation, ObservationKind};
use serde_json::{Value, json};

use crate::harness::{CompletedAction, TestServer, is_gone, pids, wait_until};
use crate::pypi::packages;
use crate::skip::skip_without;

const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// Starts a server whose sandbox has IPython. `None`, and the test is skipped, if the tests have
/// none.
async fn server() -> Option<TestServer> {
    let packages = packages("ipython", include_str!("../../../tests/ipython.txt"), &[])?;
    let server = TestServer::start();
    set_python_path(&server, &packages.display().to_string()).await;
    Some(server)
}

async fn set_python_path(server: &TestServer, path: &str) {
    let set = server
        .send(
            Method::PUT,
            "/v1/environment",
            json!({"PYTHONPATH": path}).to_string(),
        )
        .await;
    assert_eq!(set.status, 204);
}

fn cell(code: &str) -> Value {
    json!({"action": "run_ipython", "args": {"code": code, "include_extra": false}})
}

fn cell_with_timeout(seconds: f64, code: &str) -> Value {
    let mut action = cell(code);
    action["timeout"] = seconds.into();
    action
}

async fn run(server: &TestServer, id: &str, code: &str) -> CompletedAction {
    server.act(id, cell(code)).await
}

async fn content(server: &TestServer, id: &str, code: &str) -> String {
    run(server, id, code).await.observation.content
}

fn images(observation: &Observation) -> &[String] {
    let ObservationKind::RunIpython(ran) = &observation.kind else {
        panic!("{observation:?}")
    };
    ran.image_urls.as_deref().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_share_variables_and_report_folder_and_python() {
    let Some(server) = server().await else { return };
    assert_eq!(
        content(&server, "a", "x = 40").await,
        "[Code executed successfully with no output]"
    );
    let answer = run(&server, "b", "print('\\x1b[31mred\\x1b[0m')\nx + 2").await;
    assert_eq!(
        (answer.observation.content.as_str(), answer.text().as_str()),
        ("red\n42", "\x1b[31mred\x1b[0m\n42\n")
    );
    assert_eq!(answer.observation.kind.kind(), "run_ipython");
    // A repeated request does not run the cell again.
    assert_eq!(content(&server, "c", "x += 1; x").await, "41");
    assert_eq!(content(&server, "c", "x += 1; x").await, "41");
    assert_eq!(
        content(&server, "d", "import asyncio\nawait asyncio.sleep(0)\nx").await,
        "41"
    );
    fs::create_dir(server.file("below")).unwrap();
    server.run("cd", "cd below").await;
    let extra =
        json!({"action": "run_ipython", "args": {"code": "import sys; print(sys.executable)"}});
    let result = server.act("e", extra).await.observation.content;
    let [python, folder, interpreter] = result.lines().collect::<Vec<_>>()[..] else {
        panic!("{result}")
    };
    let below = server.file("below").canonicalize().unwrap();
    assert_eq!(
        folder,
        format!("[Jupyter current working directory: {}]", below.display())
    );
    assert_eq!(
        interpreter,
        format!("[Jupyter Python interpreter: {python}]")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_belongs_to_the_cell_that_wrote_it() {
    let Some(server) = server().await else { return };
    for number in 0..200 {
        let code =
            format!("import os\nos.system('echo a{number}')\nprint('b{number}')\n'c{number}'");
        let expected = format!("a{number}\nb{number}\n'c{number}'");
        assert_eq!(
            content(&server, &format!("c{number}"), &code).await,
            expected
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_cell_is_streamed() {
    let Some(server) = server().await else { return };
    let gate = server.gate("gate");
    let mut client = server.http2().await;
    let waiting = cell("print('early')\nopen('gate').read()\nprint('late')").to_string();
    let request = Request::post("http://sandbox/v1/actions/a")
        .body(Full::<Bytes>::from(waiting))
        .unwrap();
    let mut body = client.send_request(request).await.unwrap().into_body();
    let mut read = Vec::new();
    while !read.windows(5).any(|window| window == b"early") {
        read.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    tokio::task::spawn_blocking(move || fs::write(gate, "").unwrap())
        .await
        .unwrap();
    body.collect().await.unwrap();
    let again = server.send(Method::GET, "/v1/actions/a", "").await.answer();
    assert_eq!(again.text(), "early\nlate\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_is_a_traceback_and_input_is_not_answered() {
    let Some(server) = server().await else { return };
    let result = content(&server, "a", "1 / 0").await;
    assert!(
        result.contains("Traceback (most recent call last)")
            && result.contains("ZeroDivisionError"),
        "{result}"
    );
    assert!(!result.contains('\x1b'), "{result}");
    let result = content(&server, "b", "input('name? ')").await;
    assert!(
        result.contains("EOFError: no input is available to a cell"),
        "{result}"
    );
    assert_eq!(frames(&result), ["Cell In[1], line 1"], "{result}");
    assert!(
        content(&server, "c", "def f(:")
            .await
            .contains("SyntaxError")
    );
    assert_eq!(content(&server, "d", "1").await, "1");
    // An exception without a traceback is reported too.
    let result = content(
        &server,
        "e",
        "class E(Exception): __cause__ = 'no'\nraise E()",
    )
    .await;
    assert!(
        !result.is_empty() && !result.contains("successfully"),
        "{result}"
    );
}

// Two versions that create a database in their profile's folder at start, and one that does not.

#[tokio::test(flavor = "multi_thread")]
async fn kernel_of_8_5_writes_nothing_to_the_working_directory() {
    writes_nothing_to_the_working_directory("8.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_of_9_8_writes_nothing_to_the_working_directory() {
    writes_nothing_to_the_working_directory("9.8.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_of_9_10_writes_nothing_to_the_working_directory() {
    writes_nothing_to_the_working_directory("9.10.1").await;
}

async fn writes_nothing_to_the_working_directory(version: &str) {
    let name = format!("ipython-{version}");
    let Some(packages) = packages(&name, &format!("ipython=={version}\n"), &[]) else {
        return;
    };
    let server = TestServer::start();
    set_python_path(&server, &packages.display().to_string()).await;
    // The place of the database. A file there prevents it even for root, who can write to read-only
    // folders.
    fs::write(server.file("db"), "the user's").unwrap();
    let before = names(&server);
    assert_eq!(content(&server, "a", "6 * 7").await, "42");
    assert_eq!(names(&server), before);
}

fn names(server: &TestServer) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(server.file(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn same_error_has_the_same_traceback() {
    let Some(server) = server().await else { return };
    let first = content(&server, "a", "1 / 0").await;
    assert_eq!(content(&server, "b", "1 / 0").await, first);
}

/// Returns the frames of a traceback.
fn frames(traceback: &str) -> Vec<&str> {
    traceback
        .lines()
        .filter(|line| line.starts_with("Cell ") || line.starts_with("File "))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn traceback_contains_no_frames_of_the_kernel() {
    let Some(server) = server().await else { return };
    let handled = "def ask():\n    return input()\ntry:\n    ask()\nexcept EOFError:\n    1 / 0";
    let result = content(&server, "a", handled).await;
    let expected = [
        "Cell In[1], line 4",
        "Cell In[1], line 2, in ask()",
        "Cell In[1], line 6",
    ];
    assert_eq!(frames(&result), expected, "{result}");
    let waits = "import time\ndef wait():\n    time.sleep(1000)\nwait()";
    let result = server
        .act("b", cell_with_timeout(0.5, waits))
        .await
        .observation
        .content;
    let expected = ["Cell In[1], line 4", "Cell In[1], line 3, in wait()"];
    assert!(
        result.contains("KeyboardInterrupt") && frames(&result) == expected,
        "{result}"
    );
    let result = server
        .act(
            "c",
            cell_with_timeout(0.5, "import asyncio\nawait asyncio.sleep(1000)"),
        )
        .await;
    let expected = "KeyboardInterrupt\n[Execution timed out (0.5 seconds).]";
    assert_eq!(result.observation.content, expected);
    // A task that ignores its cancellation does not ignore the interrupt.
    let deaf = "import asyncio\nkept = 7\nasync def deaf():\n    while True:\n        try: await asyncio.sleep(1000)\n        \
                except asyncio.CancelledError: pass\nasyncio.run(deaf())";
    let result = server
        .act("e", cell_with_timeout(0.5, deaf))
        .await
        .observation
        .content;
    assert!(result.contains("KeyboardInterrupt"), "{result}");
    assert_eq!(content(&server, "f", "kept").await, "7");
    // Frames of libraries that the user calls are kept.
    let result = content(&server, "d", "import json\njson.loads('{')").await;
    assert!(
        frames(&result)
            .iter()
            .any(|frame| frame.contains("json/decoder.py")),
        "{result}"
    );
    assert!(!result.contains("IPython"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_data_urls_of_limited_number() {
    let Some(server) = server().await else { return };
    let show = format!(
        "import base64\nfrom IPython.display import Image, display\ndot = Image(base64.b64decode('{DOT}'))\ndisplay(dot)\ndot"
    );
    let shown = run(&server, "a", &show).await.observation;
    assert_eq!(
        images(&shown),
        [DOT, DOT].map(|dot| format!("data:image/png;base64,{dot}"))
    );
    let many = run(&server, "b", "for _ in range(20): display(dot)")
        .await
        .observation;
    assert_eq!(images(&many).len(), 8);
    assert!(
        many.content.ends_with("\n[12 more images were omitted.]"),
        "{}",
        many.content
    );
    let large = "display(Image(b'x' * (4 << 20), format='png'))";
    let large = run(&server, "c", large).await.observation;
    assert!(
        images(&large).is_empty() && large.content.ends_with("[1 more images were omitted.]"),
        "{large:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_cell_keeps_the_variables() {
    let Some(server) = server().await else { return };
    let wait = "kept = 7\nimport os, time\nopen('started', 'w').close()\ntime.sleep(1000)";
    let running = server.start_request(Method::POST, "/v1/actions/a", cell(wait).to_string());
    wait_until("the cell is running", || server.file("started").exists());
    server.send(Method::DELETE, "/v1/actions/a", "").await;
    let result = running.await.unwrap().answer().observation.content;
    assert!(
        result.contains("KeyboardInterrupt") && result.ends_with("\n[The cell was cancelled.]"),
        "{result}"
    );
    let result = server
        .act("b", cell_with_timeout(0.5, "time.sleep(1000)"))
        .await
        .observation
        .content;
    assert!(result.contains("KeyboardInterrupt"), "{result}");
    assert!(
        result.ends_with("\n[Execution timed out (0.5 seconds).]"),
        "{result}"
    );
    // `os.system` ignores the interrupt, but its child process is interrupted too.
    let result = server
        .act("c", cell_with_timeout(0.5, "os.system('sleep 1000')"))
        .await
        .observation
        .content;
    assert!(
        result.ends_with("[Execution timed out (0.5 seconds).]") && !result.contains("exited"),
        "{result}"
    );
    assert_eq!(content(&server, "d", "kept").await, "7");
    let deaf =
        "import signal\nwhile True:\n  try: time.sleep(1000)\n  except KeyboardInterrupt: pass";
    let result = server
        .act("e", cell_with_timeout(0.5, deaf))
        .await
        .observation
        .content;
    assert!(
        result.contains("[The kernel exited: signal 9. The next cell starts without"),
        "{result}"
    );
    assert!(content(&server, "f", "kept").await.contains("NameError"));
}

#[tokio::test(flavor = "multi_thread")]
async fn next_cell_has_a_new_kernel_when_the_kernel_exits() {
    let Some(server) = server().await else { return };
    let dying =
        "import os\nprint('last words')\nos.system('sleep 1000 & echo $! >> pids')\nos._exit(3)";
    let result = content(&server, "a", dying).await;
    let expected =
        "last words\n[The kernel exited: exit code 3. The next cell starts without its variables.]";
    assert_eq!(result.trim_start_matches("0\n"), expected);
    let started = pids(&server.file("pids"), 1)[0];
    wait_until("the child processes of the cells have exited", || {
        is_gone(started)
    });
    let result = content(
        &server,
        "b",
        "import os\nprint(os.getpid(), file=open('kernel', 'w'))\nexit()",
    )
    .await;
    assert!(
        result.starts_with("[The kernel exited: a cell requested it."),
        "{result}"
    );
    let result = content(
        &server,
        "c",
        "import os\nprint(os.getpid(), file=open('kernel', 'w'))",
    )
    .await;
    assert_eq!(result, "[Code executed successfully with no output]");
    let kernel = pids(&server.file("kernel"), 1)[0];
    kill(Pid::from_raw(kernel), Signal::SIGKILL).unwrap();
    wait_until("the kernel has exited", || is_gone(kernel));
    let result = content(&server, "d", "1 + 1").await;
    assert_eq!(
        result,
        "2\n[The kernel exited before this cell. A new one starts without its variables.]"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_is_killed_when_the_server_ends() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let Some(mut server) = server().await else {
            return;
        };
        let begin = "import os, subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n\
                     print(os.getpid(), child.pid, sep='\\n', file=open('pids', 'w'))";
        run(&server, "a", begin).await;
        let started = pids(&server.file("pids"), 2);
        let running = server.start_request(
            Method::POST,
            "/v1/actions/b",
            cell("while True: pass").to_string(),
        );
        let requested = Instant::now();
        kill(server.pid(), signal).unwrap();
        server.wait();
        assert!(
            requested.elapsed() < Duration::from_secs(2),
            "{:?}",
            requested.elapsed()
        );
        for pid in started {
            wait_until("all processes have exited", || is_gone(pid));
        }
        running.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_of_a_cell_is_truncated_with_a_note() {
    let Some(server) = server().await else { return };
    let answer = run(&server, "a", "for _ in range(1000): print('x' * 9_999)").await;
    assert_eq!(answer.output.len(), 10_000_000);
    let shown = answer.observation.content;
    assert!(shown.contains("[... Observation truncated due to length ...]"));
    assert!(
        shown.ends_with("\n[9970000 characters were left out of the middle.]"),
        "{}",
        &shown[shown.len() - 100..]
    );
    assert!(shown.chars().count() < 31_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_cell_cannot_forge_a_reply() {
    let Some(server) = server().await else { return };
    let forged = r#"import os
line = '{"mark": "", "folder": "/forged", "python": "forged", "images": ["x"], "left_out": 9}'
print(line)
for fd in range(3, 20):
    try: os.write(fd, (line + "\nnoise\n").encode())
    except OSError: pass
"#;
    let mut action = cell(forged);
    action["args"]["include_extra"] = true.into();
    let observation = server.act("a", action).await.observation;
    assert!(images(&observation).is_empty(), "{observation:?}");
    assert!(
        !observation.content.contains("interpreter: forged]"),
        "{observation:?}"
    );
    assert_eq!(content(&server, "b", "1 + 1").await, "2");
    // A forked copy of the kernel sends no reply.
    assert_eq!(
        content(
            &server,
            "c",
            "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('both')"
        )
        .await,
        "both\nboth"
    );
    assert_eq!(content(&server, "d", "2 + 2").await, "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn cell_variables_are_not_visible_to_other_cells() {
    let Some(server) = server().await else { return };
    let mut action = cell("import os; print(os.environ['TOKEN'][::-1])");
    action["environment"] = json!({"TOKEN": "s3cret"});
    assert_eq!(server.act("a", action).await.observation.content, "terc3s");
    assert_eq!(
        content(&server, "b", "os.environ.get('TOKEN'), os.getenv('PAGER')").await,
        "(None, 'cat')"
    );
    assert_eq!(content(&server, "c", "!echo [$TOKEN]").await, "[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_code_runs_when_a_kernel_starts() {
    let Some(server) = server().await else { return };
    for (id, expected) in [("a", "1"), ("b", "2")] {
        let mut action = cell("count += 1; count");
        action["args"]["kernel_init_code"] = "count = 0".into();
        assert_eq!(server.act(id, action).await.observation.content, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cell_is_not_run_when_stopped_before_the_kernel_is_ready() {
    let Some(server) = server().await else { return };
    let packages = packages("ipython", include_str!("../../../tests/ipython.txt"), &[]).unwrap();
    // This module precedes the real IPython in Python's path. It notifies the test, waits, and
    // loads the real one.
    let slow = server.file("slow");
    fs::create_dir_all(slow.join("IPython")).unwrap();
    let waiting = "import os, sys, time\nopen('loading', 'w').close()\n\
                   while not os.path.exists('gate'): time.sleep(0.01)\n\
                   sys.path = [p for p in sys.path if not p.endswith('slow')]\n\
                   del sys.modules['IPython']\nimport IPython\n";
    fs::write(slow.join("IPython/__init__.py"), waiting).unwrap();
    set_python_path(
        &server,
        &format!("{}:{}", slow.display(), packages.display()),
    )
    .await;
    let effect = "open('effect', 'w').close()";
    let running = server.start_request(Method::POST, "/v1/actions/a", cell(effect).to_string());
    wait_until("IPython is loading", || server.file("loading").exists());
    server.send(Method::DELETE, "/v1/actions/a", "").await;
    let result = running.await.unwrap().answer().observation.content;
    assert_eq!(result, "[The cell was cancelled before it started.]");
    let result = server
        .act("b", cell_with_timeout(0.2, effect))
        .await
        .observation
        .content;
    assert_eq!(
        result,
        "[Execution timed out before it started (0.2 seconds).]"
    );
    fs::write(server.file("gate"), "").unwrap();
    assert_eq!(
        content(&server, "c", "import os; os.path.exists('effect')").await,
        "False"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cell_runs_when_the_init_code_was_interrupted() {
    let Some(server) = server().await else { return };
    let with = |init: &str, timeout: f64| {
        let mut action = cell_with_timeout(timeout, "open('effect', 'w').close()");
        action["args"]["kernel_init_code"] = init.into();
        action
    };
    let waiting = "import time\nopen('started', 'w').close()\ntime.sleep(1000)";
    let running = server.start_request(
        Method::POST,
        "/v1/actions/a",
        with(waiting, 100.0).to_string(),
    );
    wait_until("the init code has started", || {
        server.file("started").exists()
    });
    server.send(Method::DELETE, "/v1/actions/a", "").await;
    let interrupted = running.await.unwrap().answer().observation.content;
    assert!(
        interrupted.ends_with("\n[The cell was cancelled.]"),
        "{interrupted}"
    );
    let failed = server
        .act("b", with("1 / 0", 100.0))
        .await
        .observation
        .content;
    for (result, error) in [
        (interrupted, "KeyboardInterrupt"),
        (failed, "ZeroDivisionError"),
    ] {
        let is_reported =
            result.contains("The cell was not run: the init code of the kernel failed.");
        assert!(result.contains(error) && is_reported, "{result}");
    }
    assert!(!server.file("effect").exists());
    server.act("c", with("", 100.0)).await;
    assert!(server.file("effect").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_modules_do_not_replace_those_of_the_kernel() {
    let Some(server) = server().await else { return };
    for name in ["queue", "token", "calendar", "random", "types", "json"] {
        fs::write(
            server.file(&format!("{name}.py")),
            "raise SystemError('not for the kernel')",
        )
        .unwrap();
    }
    fs::write(server.file("mine.py"), "x = 42").unwrap();
    assert_eq!(content(&server, "a", "import mine; mine.x").await, "42");
    let result = content(&server, "b", "1 / 0").await;
    assert!(
        result.contains("ZeroDivisionError") && !result.contains("SystemError"),
        "{result}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_the_missing_program() {
    if skip_without("python3") {
        return;
    }
    let server = TestServer::start();
    // An IPython that cannot be imported, whatever this machine has.
    let broken = server.file("IPython");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("__init__.py"), "raise ImportError('not here')").unwrap();
    set_python_path(&server, server.dir.path().to_str().unwrap()).await;
    let result = run(&server, "a", "1").await.observation;
    assert_eq!(result.kind.kind(), "error");
    assert!(
        result
            .content
            .starts_with("A cell needs IPython in Python 3: "),
        "{}",
        result.content
    );
    assert!(
        result.content.ends_with(" has no IPython (not here)."),
        "{}",
        result.content
    );
    let path = json!({"PATH": server.dir.path()}).to_string();
    assert_eq!(
        server
            .send(Method::PUT, "/v1/environment", path)
            .await
            .status,
        204
    );
    let event = json!({"action": cell("1")}).to_string();
    let reply = server.send(Method::POST, "/execute_action", event).await;
    let result = reply.json();
    assert_eq!(
        (reply.status, &result["observation"]),
        (200, &json!("error"))
    );
    assert!(
        result["content"]
            .as_str()
            .unwrap()
            .contains("there is no program `python3`"),
        "{result}"
    );
}
