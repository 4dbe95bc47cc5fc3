//! The files of `orchestrator/deploy`, and the services of systemd that they use.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;

use crate::skip::skip_without;
use crate::test_packages::pypi_packages;

/// Starts a program with its standard input as the socket of systemd.
const ACTIVATE: &str =
    "exec 3<&0 0</dev/null; [ $# -gt 0 ] && export LISTEN_PID=$$ LISTEN_FDS=$FDS && exec \"$@\"";

fn deploy_file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../orchestrator/deploy");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the command that serves on the socket. The shell has the process id that the server will
/// have.
fn activated(home: &Home, socket: TcpListener, count: &str, arguments: &[&str]) -> Command {
    let server = home.glovebox(arguments);
    let mut command = Command::new("sh");
    command
        .args(["-c", ACTIVATE, "sh"])
        .arg(server.get_program())
        .args(server.get_args());
    command
        .current_dir(home.path())
        .env_clear()
        .env("FDS", count);
    command.envs(
        server
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket)));
    command
}

#[tokio::test]
async fn socket_of_systemd_is_used_and_it_is_notified() {
    let home = Home::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let notifications = UnixDatagram::bind(home.path().join("notify")).unwrap();
    notifications
        .set_read_timeout(Some(tests::glovebox::TEST_TIMEOUT))
        .unwrap();
    let receive = || {
        let mut message = [0; 100];
        let length = notifications.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let model = home.script(&json!([finish()]));
    // Not the address that it listens on.
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:1",
        "--runtime",
        "local",
        "-l",
        &model,
    ];
    let mut command = activated(&home, socket.try_clone().unwrap(), "1", &arguments);
    command.env("NOTIFY_SOCKET", home.path().join("notify"));
    let server = HostServer::from_command(&home, &mut command);
    assert_eq!(server.url, format!("http://{address}"));
    assert_eq!(receive(), "READY=1\n");
    assert_eq!(server.status_with_key("/ready", None).await, 200);
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| tests::host_server::is_state(event, "finished"))
        .await;
    // Its sandbox has no descriptor of the socket.
    let inode = socket_inode(&socket);
    for (pid, line) in home.processes() {
        assert_eq!(
            has_descriptor(pid, &inode),
            line.contains(" serve --listen "),
            "{line}"
        );
    }
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    assert_eq!(receive(), "STOPPING=1\n");

    // Connections wait in the socket until the next start.
    let waiting = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
    let again = HostServer::from_command(&home, &mut activated(&home, socket, "1", &arguments));
    assert_eq!(
        again
            .request(Method::GET, "/alive")
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    drop(waiting);
    again.terminate();
    home.assert_nothing_runs();
}

/// The link of the socket in `/proc/PID/fd`.
fn socket_inode(socket: &TcpListener) -> String {
    use std::os::fd::AsRawFd as _;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
    link.to_str().unwrap().to_owned()
}

fn has_descriptor(pid: i32, link: &str) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .filter_map(|entry| entry.path().read_link().ok())
        .any(|target| target.to_str() == Some(link))
}

#[test]
fn several_sockets_of_systemd_are_refused() {
    let home = Home::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = activated(&home, socket, "2", &["serve", "--runtime", "local"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && error.contains("several sockets"),
        "{error}"
    );
}

#[test]
fn server_does_not_start_without_its_engine() {
    let home = Home::new();
    let nowhere = format!("unix://{}/no-engine", home.path().display());
    for command in ["serve", "sandbox-host"] {
        let mut command = home.glovebox(&[command, "--listen", "127.0.0.1:0"]);
        let output = command.env("DOCKER_HOST", &nowhere).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("the container engine does not answer"),
            "{error}"
        );
        assert_eq!(output.status.code(), Some(1), "systemd starts it again");
    }
}

#[test]
fn units_of_systemd_are_valid() {
    if skip_without("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The program is not installed here.
    let service = deploy_file("glovebox.service").replace("/usr/local/bin/glovebox", "/bin/true");
    let backup =
        deploy_file("glovebox-backup.service").replace("/usr/local/bin/glovebox", "/bin/true");
    let units = [
        ("glovebox.service", service),
        ("glovebox.socket", deploy_file("glovebox.socket")),
        ("glovebox-backup.service", backup),
        (
            "glovebox-backup.timer",
            deploy_file("glovebox-backup.timer"),
        ),
    ];
    // Each would make local sandboxes impossible: see the unit.
    for setting in [
        "ProtectKernelLogs",
        "ProtectKernelTunables",
        "ProtectControlGroups",
        "RestrictSUIDSGID",
        "RestrictNamespaces",
    ] {
        assert!(!units[0].1.contains(&format!("\n{setting}=")), "{setting}");
    }
    for (name, text) in &units {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let paths = units.map(|(name, _)| folder.path().join(name));
    let output = Command::new("systemd-analyze")
        .arg("verify")
        .args(paths)
        .output()
        .unwrap();
    let problems = String::from_utf8_lossy(&output.stderr);
    // Versions before 254 ignore it.
    let is_known = |line: &&str| !line.contains("'DelegateSubgroup'");
    let is_valid = output.status.success()
        && !problems
            .lines()
            .filter(is_known)
            .any(|line| line.contains("glovebox"));
    assert!(is_valid, "{problems}");
}

#[test]
fn backup_of_the_unit_can_be_restored() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let model = home.script(&json!([finish()]));
    home.run(&["run", "--runtime", "local", "-t", "work", "-l", &model])
        .expect(0);
    let unit = deploy_file("glovebox-backup.service");
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '"))
        .unwrap();
    // What systemd does with the line.
    let command = command.trim_end_matches('\'').replace("%%", "%");
    let command = command.replace(
        "/usr/local/bin/glovebox",
        tests::glovebox::binary().to_str().unwrap(),
    );
    for _ in 0..2 {
        let mut backup = Command::new("/bin/sh");
        backup
            .args(["-c", &command])
            .env("HOME", home.path())
            .env("STATE_DIRECTORY", folder.path());
        assert!(backup.status().unwrap().success());
    }
    let files: Vec<_> = folder
        .path()
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    let [file] = files.as_slice() else {
        panic!("{files:?}")
    };
    let restored = Home::new();
    restored
        .run(&[
            "store",
            "restore",
            "--without-settings",
            file.to_str().unwrap(),
        ])
        .expect(0);
    assert_eq!(restored.conversations(), home.conversations());
}

#[test]
fn compose_file_has_the_server_and_its_database() {
    let Some(packages) = pypi_packages() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("compose.yaml");
    std::fs::write(&file, deploy_file("compose.yaml")).unwrap();
    let mut parser = Command::new("python3");
    parser.args([
        "-c",
        "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))",
    ]);
    let output = parser
        .arg(&file)
        .env("PYTHONPATH", packages)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let compose: Value = serde_json::from_slice(&output.stdout).unwrap();
    let server = &compose["services"]["glovebox"];
    assert_eq!(
        server["depends_on"]["postgres"]["condition"],
        "service_healthy"
    );
    assert!(
        server["environment"]["STORE_URL"]
            .as_str()
            .unwrap()
            .contains("@postgres/"),
        "{server}"
    );
    // The flags are those of this version.
    let command: Vec<_> = server["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let output = Home::new()
        .glovebox(&[&command[..], &["--help"]].concat())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for port in server["ports"].as_array().unwrap() {
        assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{port}");
    }
}
