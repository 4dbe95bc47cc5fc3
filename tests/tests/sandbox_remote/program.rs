//! `glovebox sandbox-host` as a process: kills, restarts and shutdown.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use engine::sandbox::{SandboxProvider, SandboxState};
use rustix::process::{Pid, Signal, kill_process};
use tests::glovebox::Home;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::remote::{SECRET, client_for};
use tests::sandbox_contract::{OutputRecorder, command, command_result, id, run, spec};

/// A running `glovebox sandbox-host`.
struct HostProcess {
    process: Child,
    address: SocketAddr,
}

impl HostProcess {
    fn start(home: &Home, listen: &str, more: &[&str]) -> Self {
        let keys = home.write("keys", format!("ann:{SECRET}\n"));
        let mut command = home.glovebox(&[
            "sandbox-host",
            "--runtime",
            "local",
            "--listen",
            listen,
            "--keys",
        ]);
        let mut process = command
            .arg(keys)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on http://")
            .expect(&line)
            .parse()
            .unwrap();
        Self { process, address }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends a signal and returns the exit code.
    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        self.process.wait().unwrap().code()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_host_recovers_its_leases_when_restarted_after_kill() {
    let home = Home::new();
    let host = HostProcess::start(&home, "127.0.0.1:0", &[]);
    let address = host.address;
    let provider = client_for(address, SECRET);
    let spec = spec(&LocalBackend::new().unwrap());
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
    let lease = sandbox.lease().clone();

    // The running action is not affected, and its client receives the result.
    let (output, first) = (OutputRecorder::default(), id(1));
    let (listener, request) = (
        output.listener(),
        command("echo star''ted; while [ ! -e go ]; do sleep 0.05; done; echo do''ne"),
    );
    let again = async {
        output.wait_for("started").await;
        host.kill();
        let host = HostProcess::start(&home, &address.to_string(), &[]);
        let listed = provider.list().await.unwrap();
        assert_eq!(
            (listed.len(), listed[0].condition),
            (1, SandboxState::Running)
        );
        assert_eq!(listed[0].sandbox, lease.sandbox_id);
        std::fs::write(format!("{}/go", lease.working_dir), "").unwrap();
        host
    };
    let (ended, host) = tokio::join!(sandbox.execute(&first, &request, &listener), again);
    let ran = command_result(ended.unwrap(), &output);
    assert!(
        ran.exit_code == 0 && String::from_utf8_lossy(&ran.streamed).contains("done"),
        "{ran:?}"
    );
    drop(sandbox);

    // Sandboxes are kept after an orderly shutdown too.
    assert_eq!(host.end(Signal::TERM), Some(0));
    assert!(!home.processes().is_empty());
    let host = HostProcess::start(&home, &address.to_string(), &["--remove-at-end"]);
    let sandbox = provider.attach(&lease).await.unwrap();
    assert_eq!(
        run(&*sandbox, 2, "echo still there").await.content.trim(),
        "still there"
    );
    assert_eq!(host.end(Signal::INT), Some(0));
    home.assert_nothing_runs();
}

#[test]
fn unusable_keys_are_a_usage_error() {
    let home = Home::new();
    let none = home.run(&["sandbox-host"]).expect(2);
    assert!(none.stderr.contains("give --keys FILE"), "{}", none.stderr);
    let keys = home.write("keys", "ann:short\n");
    let short = home
        .run(&["sandbox-host", "--keys", keys.to_str().unwrap()])
        .expect(2);
    assert!(
        short.stderr.contains("key 1 has a secret of less than 16"),
        "{}",
        short.stderr
    );
}
