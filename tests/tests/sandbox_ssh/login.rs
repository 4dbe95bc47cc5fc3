//! Logins: keys from files and agents, known and unknown hosts, jump hosts.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::sandbox::{Sandbox, SandboxError, SandboxProvider};
use sandbox_ssh::{SshConfig, SshProvider, UnknownHosts};
use tests::sandbox_contract::ssh::SshBackend;
use tests::sandbox_contract::{error, spec};
use tests::sshd::{SshdOptions, USER, new_key};

/// Logs in and lists the sandboxes. Nothing is uploaded.
async fn log_in(config: SshConfig) -> Result<(), SandboxError> {
    SshProvider::new(config).list().await.map(drop)
}

fn config_of(backend: &SshBackend) -> SshConfig {
    backend.config(backend.server())
}

/// A running `ssh-agent`, killed on drop.
struct SshAgent(Child, std::path::PathBuf);

impl SshAgent {
    fn with_key(folder: &Path, key: &Path) -> Self {
        let socket = folder.join("agent");
        let mut agent = Command::new("/usr/bin/ssh-agent");
        let agent = agent
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The socket file exists before the agent listens.
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let add = |key: &Path| {
            let added = Command::new("/usr/bin/ssh-add")
                .arg("-q")
                .arg(key)
                .env("SSH_AUTH_SOCK", &socket)
                .status();
            assert!(added.unwrap().success());
        };
        let other = folder.join("other");
        new_key(&other, "ed25519", "");
        add(&other);
        add(key);
        Self(agent, socket)
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As with many runs that start at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_that_the_server_drops_are_tried_again() {
    let options = SshdOptions {
        settings: "MaxStartups 2:100:2",
        ..SshdOptions::default()
    };
    let Some(backend) = SshBackend::with(&options) else {
        return;
    };
    let logins = (0..5).map(|_| log_in(config_of(&backend)));
    for login in futures_util::future::join_all(logins).await {
        login.unwrap();
    }
    assert!(backend.sshd.log().contains("past MaxStartups"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_every_kind_are_accepted_from_files() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let folder = backend.sshd.client_home().join(".ssh");
    std::fs::remove_file(folder.join("id_ed25519")).unwrap();
    std::fs::remove_file(folder.join("id_ed25519.pub")).unwrap();
    for (kind, name) in [
        ("rsa", "id_rsa"),
        ("ecdsa", "id_ecdsa"),
        ("ed25519", "named"),
    ] {
        let key = folder.join(name);
        new_key(&key, kind, "");
        backend
            .sshd
            .accept_keys(&std::fs::read_to_string(key.with_extension("pub")).unwrap());
        if name == "named" {
            let port = backend.sshd.port();
            backend.configure(&format!(
                "Host far\n HostName 127.0.0.1\n Port {port}\n User {USER}\n IdentityFile ~/.ssh/named\n"
            ));
        }
        log_in(config_of(&backend))
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        std::fs::remove_file(&key).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_key_is_named_when_no_ssh_agent_holds_it() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let encrypted = backend.sshd.client_home().join(".ssh/id_ed25519");
    for kind in ["ed25519", "rsa"] {
        let plain = folder.path().join(kind);
        new_key(&plain, kind, "");
        let agent = SshAgent::with_key(folder.path(), &plain);
        backend
            .sshd
            .accept_keys(&std::fs::read_to_string(plain.with_extension("pub")).unwrap());
        // The same key, encrypted, as a user with an agent stores it.
        std::fs::copy(&plain, &encrypted).unwrap();
        std::fs::copy(plain.with_extension("pub"), encrypted.with_extension("pub")).unwrap();
        let mut locked = Command::new("/usr/bin/ssh-keygen");
        locked.args(["-q", "-p", "-P", "", "-N", "a passphrase", "-f"]);
        assert!(
            locked
                .arg(&encrypted)
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );

        for only_named in ["no", "yes"] {
            let port = backend.sshd.port();
            backend.configure(&format!(
                "Host far\n HostName 127.0.0.1\n Port {port}\n User {USER}\n IdentitiesOnly {only_named}\n"
            ));
            log_in(SshConfig {
                agent: Some(agent.1.clone()),
                ..config_of(&backend)
            })
            .await
            .unwrap();
        }
        let failed = error(log_in(config_of(&backend)).await);
        assert!(matches!(failed, SandboxError::Start { .. }), "{failed}");
        let text = failed.to_string();
        assert!(
            text.contains("encrypted") && text.contains("ssh-add") && text.contains("id_ed25519"),
            "{text}"
        );
        drop(agent);
        std::fs::remove_file(folder.path().join("agent")).unwrap_or_default();
    }
    let gone = SshConfig {
        agent: Some(folder.path().join("agent")),
        ..config_of(&backend)
    };
    let text = error(log_in(gone).await).to_string();
    assert!(text.contains("does not answer"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_host_is_treated_according_to_the_policy() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let known_hosts = || {
        std::fs::read_to_string(backend.sshd.client_home().join(".ssh/known_hosts"))
            .unwrap()
            .trim()
            .to_owned()
    };
    let with = |unknown_hosts| SshConfig {
        unknown_hosts,
        ..config_of(&backend)
    };
    backend.sshd.write_known_hosts("");

    let refused = error(log_in(with(UnknownHosts::Refuse)).await);
    assert!(matches!(refused, SandboxError::Start { .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("is not known") && text.contains("SHA256:") && text.contains("ssh -p"),
        "{text}"
    );

    let asked = Arc::new(Mutex::new(Vec::new()));
    let answering = |answer: bool| {
        let asked = Arc::clone(&asked);
        UnknownHosts::Ask(Arc::new(move |question| {
            asked.lock().unwrap().push(question.clone());
            answer
        }))
    };
    let text = error(log_in(with(answering(false))).await).to_string();
    assert!(text.contains("was not accepted"), "{text}");
    assert_eq!(known_hosts(), "");
    log_in(with(answering(true))).await.unwrap();
    let questions = asked.lock().unwrap().clone();
    assert_eq!(questions.len(), 2);
    assert_eq!(
        questions[0].host,
        format!("[127.0.0.1]:{}", backend.sshd.port())
    );
    assert_eq!(questions[0].algorithm, "ssh-ed25519");
    assert!(
        known_hosts().starts_with(&questions[0].host),
        "{}",
        known_hosts()
    );
    log_in(with(UnknownHosts::Refuse)).await.unwrap();

    backend.sshd.write_known_hosts("");
    log_in(with(UnknownHosts::AcceptNew)).await.unwrap();
    log_in(with(UnknownHosts::Refuse)).await.unwrap();

    // The user's configuration file overrides the policy for its host.
    backend.sshd.write_known_hosts("");
    let port = backend.sshd.port();
    backend.configure(&format!(
        "Host far\n HostName 127.0.0.1\n Port {port}\n User {USER}\n StrictHostKeyChecking yes\n"
    ));
    assert!(log_in(with(UnknownHosts::AcceptNew)).await.is_err());
}

/// The user answers even if the time for a start is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_timeout_excludes_the_host_key_confirmation() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    backend.sshd.write_known_hosts("");
    let config = SshConfig {
        start_timeout: Duration::ZERO,
        unknown_hosts: UnknownHosts::Ask(Arc::new(|_| true)),
        ..config_of(&backend)
    };
    let failed = error(
        SshProvider::new(config)
            .create(&spec(&backend), &|_| {})
            .await,
    );
    assert!(
        failed.to_string().contains("was not ready within 0 s"),
        "{failed}"
    );
    let known_hosts = backend.sshd.client_home().join(".ssh/known_hosts");
    assert_ne!(
        std::fs::read_to_string(known_hosts).unwrap().trim(),
        "",
        "the answer was dropped"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_host_key_error_names_the_line_of_the_known_key() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for kind in ["ed25519", "ecdsa"] {
        let other = folder.path().join(kind);
        new_key(&other, kind, "");
        let key = std::fs::read_to_string(other.with_extension("pub")).unwrap();
        backend.sshd.write_known_hosts(&format!(
            "# mine\n[127.0.0.1]:{} {key}",
            backend.sshd.port()
        ));
        for unknown_hosts in [
            UnknownHosts::Refuse,
            UnknownHosts::AcceptNew,
            UnknownHosts::Ask(Arc::new(|_| true)),
        ] {
            let failed = error(
                log_in(SshConfig {
                    unknown_hosts,
                    ..config_of(&backend)
                })
                .await,
            );
            assert!(matches!(failed, SandboxError::Start { .. }), "{failed}");
            let text = failed.to_string();
            // The known key has another type, which the server does not have. The host is not new.
            assert!(
                text.contains("known_hosts:2") && text.contains("ssh-keygen -R"),
                "{text}"
            );
        }
    }
    // Hashed by ssh-keygen.
    backend.sshd.make_known();
    let known = backend.sshd.client_home().join(".ssh/known_hosts");
    let key = std::fs::read_to_string(&known).unwrap().replace(
        "[127.0.0.1]:*",
        &format!("[127.0.0.1]:{}", backend.sshd.port()),
    );
    backend.sshd.write_known_hosts(&key);
    let hashed = Command::new("/usr/bin/ssh-keygen")
        .args(["-q", "-H", "-f"])
        .arg(&known)
        .stderr(Stdio::null())
        .status();
    assert!(hashed.unwrap().success());
    assert!(std::fs::read_to_string(&known).unwrap().starts_with("|1|"));
    log_in(config_of(&backend)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_is_reached_through_a_jump_host() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let Some(between) = SshBackend::with(&SshdOptions {
        settings: "LogLevel DEBUG",
        ..SshdOptions::default()
    }) else {
        return;
    };
    let keys = |backend: &SshBackend| {
        let key = backend.sshd.client_home().join(".ssh/id_ed25519.pub");
        std::fs::read_to_string(key).unwrap()
    };
    between.sshd.accept_keys(&keys(&backend));
    let host_key = |backend: &SshBackend| {
        let known =
            std::fs::read_to_string(backend.sshd.client_home().join(".ssh/known_hosts")).unwrap();
        known.replace(
            "[127.0.0.1]:*",
            &format!("[127.0.0.1]:{}", backend.sshd.port()),
        )
    };
    let own_key = host_key(&backend);
    backend
        .sshd
        .write_known_hosts(&format!("{own_key}{}", host_key(&between)));
    backend.configure(&format!(
        "Host far\n HostName 127.0.0.1\n Port {}\n User {USER}\n ProxyJump between\n\
         Host between\n HostName 127.0.0.1\n Port {}\n User {USER}\n",
        backend.sshd.port(),
        between.sshd.port()
    ));
    let provider = SshProvider::new(config_of(&backend));
    let sandbox = provider.create(&spec(&backend), &|_| {}).await.unwrap();
    assert_eq!(
        tests::sandbox_contract::run(&*sandbox, 1, "echo far")
            .await
            .content
            .trim(),
        "far"
    );
    provider
        .destroy(&Sandbox::lease(&*sandbox).sandbox_id)
        .await
        .unwrap();
    let through = format!(
        "direct_tcpip: originator 127.0.0.1 port 0, target 127.0.0.1 port {}",
        backend.sshd.port()
    );
    assert!(
        between.sshd.log().contains(&through),
        "{}",
        between.sshd.log()
    );

    // The key of each host is verified.
    backend.sshd.write_known_hosts(&own_key);
    let text = error(log_in(config_of(&backend)).await).to_string();
    assert!(
        text.contains(&format!("[127.0.0.1]:{} is not known", between.sshd.port())),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_of_the_process_logs_in_when_user_is_not_set() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let program = |arguments: &[&str]| {
        let mut program = Command::new(tests::glovebox::binary());
        program
            .args(["sandbox"])
            .args(arguments)
            .args(["--runtime", "ssh", "--host", "far"]);
        // A service or a container has neither USER nor LOGNAME.
        program
            .env_clear()
            .env("HOME", backend.sshd.client_home())
            .stdin(Stdio::null());
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(program(&["create", "box"]), "box\n");
    assert_eq!(program(&["rm", "box"]), "box\n");
}
