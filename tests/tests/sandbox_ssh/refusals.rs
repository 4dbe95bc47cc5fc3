//! Unusable hosts: a typed error in one line with advice, in time, and nothing left.

use std::io::Write;
use std::time::{Duration, Instant};

use engine::sandbox::{SandboxError, SandboxProvider};
use sandbox_ssh::{SshConfig, SshProvider};
use tests::sandbox_contract::ssh::SshBackend;
use tests::sandbox_contract::{Backend, error, spec};
use tests::sshd::{SshdOptions, USER};

/// Returns the error of a start, which must have one line and be in time.
async fn refusal(backend: &SshBackend, config: SshConfig) -> SandboxError {
    let started = Instant::now();
    let spec = spec(backend);
    let failed = error(SshProvider::new(config).create(&spec, &|_| {}).await);
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    assert!(!failed.to_string().contains('\n'), "{failed}");
    assert_eq!(
        backend
            .remains(&format!("glovebox-{}", spec.conversation).parse().unwrap())
            .await,
        Vec::<String>::new()
    );
    failed
}

fn assert_start(failed: &SandboxError, words: &[&str]) {
    assert!(matches!(failed, SandboxError::Start { .. }), "{failed:?}");
    let text = failed.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_key_error_has_a_hint() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    backend.sshd.accept_keys("");
    let failed = refusal(&backend, backend.config(backend.server())).await;
    assert_start(&failed, &["id_ed25519", "ssh-copy-id", USER]);
    std::fs::remove_file(backend.sshd.client_home().join(".ssh/id_ed25519")).unwrap();
    std::fs::remove_file(backend.sshd.client_home().join(".ssh/id_ed25519.pub")).unwrap();
    let failed = refusal(&backend, backend.config(backend.server())).await;
    assert_start(&failed, &["no key that can be tried"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn home_without_programs_is_named() {
    let options = SshdOptions {
        home_kib: Some(40 << 10),
        noexec_home: true,
        ..SshdOptions::default()
    };
    let Some(backend) = SshBackend::with(&options) else {
        return;
    };
    let failed = refusal(&backend, backend.config(backend.server())).await;
    assert_start(&failed, &[".glovebox/bin", "noexec"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_is_unavailable_when_it_does_not_respond() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    backend.configure(&format!(
        "Host far\n HostName 127.0.0.1\n Port {silent}\n User {USER}\n"
    ));
    // The host accepts and is silent, so the login times out.
    let times_out = refusal(&backend, backend.config(backend.server())).await;
    assert!(
        times_out
            .to_string()
            .contains("logging in took longer than"),
        "{times_out}"
    );
    drop(listener);
    for failed in [
        times_out,
        refusal(&backend, backend.config(backend.server())).await,
    ] {
        assert!(
            matches!(
                failed,
                SandboxError::RuntimeUnavailable { runtime: "ssh", .. }
            ),
            "{failed:?}"
        );
        assert!(failed.to_string().contains(&silent.to_string()), "{failed}");
    }
}

/// Text before or instead of the SSH protocol is an error, and little of it is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_fails_when_the_host_sends_endless_text() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    for greeting in [
        &b""[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let flooding = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(greeting);
            let mut written = 0;
            // Until the client disconnects.
            while written < 64 << 20 && stream.write_all(&[b'x'; 4096]).is_ok() {
                written += 4096;
            }
            written
        });
        backend.configure(&format!(
            "Host far\n HostName 127.0.0.1\n Port {port}\n User {USER}\n"
        ));
        let failed = refusal(&backend, backend.config(backend.server())).await;
        assert!(
            matches!(failed, SandboxError::RuntimeUnavailable { .. }),
            "{failed:?}"
        );
        assert!(
            flooding.join().unwrap() < 64 << 20,
            "too much of it was read"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_error_names_an_account_without_a_shell() {
    let Some(backend) = SshBackend::with(&SshdOptions {
        shell: Some("/usr/sbin/nologin"),
        ..SshdOptions::default()
    }) else {
        return;
    };
    let failed = refusal(&backend, backend.config(backend.server())).await;
    assert_start(&failed, &["not available", "needs a POSIX shell", USER]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greeting_of_a_login_shell_is_skipped() {
    let Some(backend) = SshBackend::with(&SshdOptions {
        shell: Some("/bin/bash"),
        ..SshdOptions::default()
    }) else {
        return;
    };
    std::fs::write(
        backend.sshd.home().join(".bashrc"),
        "echo glovebox started /nowhere; printf 'Welcome'\n",
    )
    .unwrap();
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    tests::sandbox_contract::remove(&backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_error_names_a_home_that_is_not_writable() {
    let Some(backend) = SshBackend::with(&SshdOptions {
        locked_home: true,
        ..SshdOptions::default()
    }) else {
        return;
    };
    let failed = refusal(&backend, backend.config(backend.server())).await;
    assert_start(&failed, &["cannot write ", ".glovebox", "denied"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_error_reports_a_full_disk() {
    for without_sftp in [false, true] {
        let options = SshdOptions {
            home_kib: Some(256),
            without_sftp,
            ..SshdOptions::default()
        };
        let Some(backend) = SshBackend::with(&options) else {
            return;
        };
        let failed = refusal(&backend, backend.config(backend.server())).await;
        assert_start(&failed, &["No space left", "make room"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_error_names_an_unsupported_machine() {
    for (uname, words) in [
        ("Darwin arm64", "Darwin on arm64"),
        ("Linux sparc", "Linux on sparc"),
    ] {
        let Some(backend) = SshBackend::with(&SshdOptions {
            uname: Some(uname),
            ..SshdOptions::default()
        }) else {
            return;
        };
        let failed = refusal(&backend, backend.config(backend.server())).await;
        assert_start(&failed, &[words, std::env::consts::ARCH]);
    }
}
