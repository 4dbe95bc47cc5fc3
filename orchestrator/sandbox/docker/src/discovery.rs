//! Search for an engine on the default sockets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::sandbox::SandboxError;
use tokio::time::timeout;

use super::RUNTIME;
use super::engine::{Engine, USE_LOCAL};

/// A local engine responds in milliseconds. An engine that hangs must not block the next candidate.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the sockets of Docker, rootless Docker, rootless Podman and Podman, in this order.
pub(super) fn usual_sockets(runtime_dir: Option<&Path>) -> Vec<PathBuf> {
    let of_user = |name: &str| runtime_dir.map(|folder| folder.join(name));
    [
        Some("/var/run/docker.sock".into()),
        of_user("docker.sock"),
        of_user("podman/podman.sock"),
        Some("/run/podman/podman.sock".into()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a program listens on the socket of this host, or without one on any of the usual
/// sockets. False for a host with another address than a socket.
pub(super) fn accepts_connections(host: Option<&str>, runtime_dir: Option<&Path>) -> bool {
    let sockets = match host {
        Some(host) => host
            .strip_prefix("unix://")
            .map(PathBuf::from)
            .into_iter()
            .collect(),
        None => usual_sockets(runtime_dir),
    };
    sockets
        .iter()
        .any(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
}

/// Returns the first engine that responds. The error lists each candidate and its failure.
pub(super) async fn first_responding(sockets: &[PathBuf]) -> Result<Engine, SandboxError> {
    let mut tried = Vec::with_capacity(sockets.len());
    for socket in sockets {
        let host = format!("unix://{}", socket.display());
        if !socket.exists() {
            tried.push(format!("there is no {}", socket.display()));
            continue;
        }
        match timeout(RESPONSE_TIMEOUT, Engine::connect(&host)).await {
            Ok(Ok(engine)) => return Ok(engine),
            Ok(Err(error)) => tried.push(error.to_string()),
            Err(_) => tried.push(format!(
                "{host} does not answer within {} s",
                RESPONSE_TIMEOUT.as_secs()
            )),
        }
    }
    Err(SandboxError::RuntimeUnavailable {
        runtime: RUNTIME,
        detail: format!(
            "no engine answers: {}; start Docker or Podman, set DOCKER_HOST, or {USE_LOCAL}",
            tried.join("; ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::{first_responding, usual_sockets};

    #[test]
    fn dockers_socket_comes_first_then_the_users_then_podmans() {
        let sockets = usual_sockets(Some(Path::new("/run/user/7")));
        let expected = [
            "/var/run/docker.sock",
            "/run/user/7/docker.sock",
            "/run/user/7/podman/podman.sock",
            "/run/podman/podman.sock",
        ];
        assert_eq!(sockets, expected.map(PathBuf::from));
        assert_eq!(usual_sockets(None).len(), 2);
    }

    #[tokio::test]
    async fn all_sockets_are_named_when_no_engine_answers() {
        let folder = tempfile::tempdir().unwrap();
        let [missing, deaf, answering] =
            ["missing", "deaf", "answering"].map(|name| folder.path().join(name));
        drop(UnixListener::bind(&deaf).unwrap());
        let error = first_responding(&[missing.clone(), deaf.clone()])
            .await
            .unwrap_err()
            .to_string();
        for socket in [&missing, &deaf] {
            assert!(error.contains(socket.to_str().unwrap()), "{error}");
        }
        assert!(!error.contains('\n'), "{error}");

        let listener = UnixListener::bind(&answering).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let body = r#"{"ApiVersion":"1.41","Version":"20.10"}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let engine = first_responding(&[missing, deaf, answering]).await.unwrap();
        assert!(engine.is_local);
    }
}
