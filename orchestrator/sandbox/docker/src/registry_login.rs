//! Registry credentials of `docker login`, passed to the engine for a pull.
//!
//! The order is that of Docker's client: the registry's helper in `credHelpers`, then `credsStore`,
//! then `auths`. A helper is the program `docker-credential-NAME`, which reads the registry from
//! standard input and prints JSON. If credentials cannot be read, the pull is tried without, since
//! public images need none; the reason is part of the pull's error.
//!
//! docker_credential 1.4 was tried: it reads the output of a helper without a limit, so that one
//! that prints endlessly takes all memory, and waits for a helper without a timeout. It cannot be
//! asked for `auths` alone.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// Key of Docker Hub in `config.json`.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// User name of a helper whose secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// Output of a helper without credentials for a registry.
const NOTHING_FOUND: &str = "credentials not found";

/// Long enough for a keychain, but not for a prompt that waits for the user.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_FILE_BYTES: usize = 1 << 20;
const MAX_HELPER_OUTPUT_BYTES: u64 = 64 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientConfig {
    auths: BTreeMap<String, Login>,
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Login {
    /// `USER:PASSWORD` in base64.
    auth: String,
    identitytoken: Option<String>,
}

/// Output of a helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Secret {
    username: String,
    secret: String,
}

/// Credentials of a pull.
#[derive(Debug, Default)]
pub(super) struct RegistryLogin {
    /// `None` if there are none, or if they cannot be read.
    pub(super) credentials: Option<DockerCredentials>,
    /// Reason why credentials may be missing or invalid.
    pub(super) problem: Option<String>,
}

impl RegistryLogin {
    /// Reads the credentials for the registry of a repository from Docker's configuration file.
    pub(super) async fn find(config: Option<&Path>, repository: &str) -> Self {
        let Some(config) = config else {
            return Self::default();
        };
        match find(config, registry_of(repository)).await {
            Ok(credentials) => {
                let problem = credentials.as_ref().and_then(encoding_problem);
                Self {
                    credentials,
                    problem,
                }
            }
            Err(error) => {
                let problem = format!("cannot get its login from {}: {error}", config.display());
                Self {
                    credentials: None,
                    problem: Some(problem),
                }
            }
        }
    }
}

/// Returns the registry of a repository, as it appears in `config.json`.
fn registry_of(repository: &str) -> &str {
    match repository.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => match first {
            "docker.io" | "index.docker.io" => DOCKER_HUB,
            registry => registry,
        },
        _ => DOCKER_HUB,
    }
}

async fn find(path: &Path, registry: &str) -> Result<Option<DockerCredentials>, String> {
    let text = match tokio::fs::read(path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| error.to_string())?,
    };
    if text.len() > MAX_FILE_BYTES {
        return Err(format!("the file has more than {MAX_FILE_BYTES} bytes"));
    }
    let config: ClientConfig = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if let Some(helper) = config
        .cred_helpers
        .get(registry)
        .or(config.creds_store.as_ref())
    {
        let is_name = |name: &str| !name.is_empty() && !name.contains('/');
        if !is_name(helper) {
            return Err(format!("{helper:?} is no helper's name"));
        }
        let program = format!("docker-credential-{helper}");
        if let Some(found) = request_credentials(program.as_ref(), registry, HELPER_TIMEOUT).await?
        {
            return Ok(Some(found));
        }
    }
    let written = config
        .auths
        .iter()
        .find(|(name, _)| host_of(name) == host_of(registry));
    written.map_or(Ok(None), |(_, login)| stored_credentials(login, registry))
}

/// Returns the host. Older clients stored a URL.
fn host_of(registry: &str) -> &str {
    let host = registry
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    host.split('/').next().unwrap_or(host)
}

fn stored_credentials(login: &Login, registry: &str) -> Result<Option<DockerCredentials>, String> {
    if let Some(token) = login
        .identitytoken
        .as_ref()
        .filter(|token| !token.is_empty())
    {
        return Ok(Some(with_token(registry, token.clone())));
    }
    if login.auth.is_empty() {
        return Ok(None); // a helper has it
    }
    let decoded = BASE64_STANDARD
        .decode(login.auth.trim())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded =
        decoded.ok_or_else(|| format!("what stands under auths for {registry} is not base64"))?;
    let (user, password) = decoded
        .split_once(':')
        .ok_or_else(|| format!("what stands under auths for {registry} has no colon"))?;
    // Some clients append a NUL.
    Ok(Some(with_password(
        registry,
        user.to_owned(),
        password.trim_end_matches('\0').to_owned(),
    )))
}

/// Requests credentials from a helper. `None` if it has none.
async fn request_credentials(
    program: &OsStr,
    registry: &str,
    limit: Duration,
) -> Result<Option<DockerCredentials>, String> {
    let name = program.display();
    let output = timeout(limit, run_helper(program, registry)).await;
    let output =
        output.map_err(|_| format!("{name} did not respond within {} s", limit.as_secs_f32()))?;
    let (is_success, output) = output.map_err(|error| format!("{name}: {error}"))?;
    if !is_success {
        let output = String::from_utf8_lossy(&output);
        if output.contains(NOTHING_FOUND) {
            return Ok(None);
        }
        return Err(format!(
            "{name}: {}",
            output.lines().next().unwrap_or("it failed")
        ));
    }
    // The error's text is omitted: it may quote the secret.
    let secret: Secret = serde_json::from_slice(&output)
        .map_err(|_| format!("cannot parse the output of {name}"))?;
    Ok(Some(match secret.username.as_str() {
        TOKEN_USER => with_token(registry, secret.secret),
        _ => with_password(registry, secret.username, secret.secret),
    }))
}

/// Runs a helper. Returns whether it succeeded, and its output.
async fn run_helper(program: &OsStr, registry: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut command = Command::new(program);
    command
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut helper = command.kill_on_drop(true).spawn()?;
    if let Some(mut stdin) = helper.stdin.take() {
        // A helper that exits without reading reports the reason in its output.
        let _ = stdin.write_all(registry.as_bytes()).await;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = helper.stdout.take() {
        stdout
            .take(MAX_HELPER_OUTPUT_BYTES)
            .read_to_end(&mut answer)
            .await?;
    }
    Ok((helper.wait().await?.success(), answer))
}

fn with_password(registry: &str, user: String, password: String) -> DockerCredentials {
    DockerCredentials {
        username: Some(user),
        password: Some(password),
        serveraddress: Some(registry.to_owned()),
        ..DockerCredentials::default()
    }
}

fn with_token(registry: &str, token: String) -> DockerCredentials {
    DockerCredentials {
        identitytoken: Some(token),
        serveraddress: Some(registry.to_owned()),
        ..DockerCredentials::default()
    }
}

/// Detects credentials that are lost in transit: bollard encodes them in another base64 alphabet
/// than engines decode, and engines ignore what they cannot decode.
fn encoding_problem(login: &DockerCredentials) -> Option<String> {
    let sent = serde_json::to_vec(login)
        .map(|json| BASE64_STANDARD.encode(json))
        .unwrap_or_default();
    let is_lost = sent.contains(['+', '/']);
    is_lost.then(|| {
        "its login may not reach the registry: use a token of letters and digits".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use bollard::auth::DockerCredentials;
    use tempfile::TempDir;

    use super::{DOCKER_HUB, find, registry_of, request_credentials};

    #[test]
    fn registry_is_the_first_path_segment_when_it_is_a_host() {
        for (repository, registry) in [
            ("debian", DOCKER_HUB),
            ("library/debian", DOCKER_HUB),
            ("docker.io/library/debian", DOCKER_HUB),
            ("ghcr.io/a/b", "ghcr.io"),
            ("localhost/a", "localhost"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000"),
        ] {
            assert_eq!(registry_of(repository), registry, "{repository}");
        }
    }

    async fn found(config: &str, registry: &str) -> Result<Option<(String, String)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, config).unwrap();
        let pair = |login: DockerCredentials| (login.username.unwrap(), login.password.unwrap());
        find(&path, registry).await.map(|login| login.map(pair))
    }

    #[tokio::test]
    async fn credentials_are_read_as_old_and_new_clients_write_them() {
        // `me:a:b` and `hub:secret`
        let config = r#"{"auths":{"r.test:5000":{"auth":"bWU6YTpi"},"https://index.docker.io/v1/":{"auth":"aHViOnNlY3JldA=="},
            "https://old.test/v1/":{"auth":"bWU6YTpi"},"kept.test":{},"odd.test":{"auth":"%"}},"credHelpers":{},"other":[1]}"#;
        let me = Ok(Some(("me".into(), "a:b".into())));
        assert_eq!(found(config, "r.test:5000").await, me);
        assert_eq!(found(config, "old.test").await, me);
        assert_eq!(
            found(config, DOCKER_HUB).await,
            Ok(Some(("hub".into(), "secret".into())))
        );
        assert_eq!(found(config, "r.test").await, Ok(None));
        assert_eq!(found(config, "kept.test").await, Ok(None));
        assert!(
            found(config, "odd.test")
                .await
                .unwrap_err()
                .contains("not base64")
        );
        assert!(found("{", "r.test").await.is_err());
        assert!(
            found(r#"{"credsStore":"../x"}"#, "r.test")
                .await
                .unwrap_err()
                .contains("no helper's name")
        );
    }

    fn helper(script: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docker-credential-test");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[tokio::test]
    async fn helper_supplies_credentials_within_its_timeout() {
        let asked = async |script: &str| {
            let (_folder, path) = helper(script);
            request_credentials(path.as_os_str(), "r.test", Duration::from_secs(5)).await
        };
        let credentials = asked(
            r#"[ "$1 $(cat)" = "get r.test" ] && echo '{"ServerURL":"r.test","Username":"me","Secret":"s"}'"#,
        )
        .await;
        let credentials = credentials.unwrap().unwrap();
        assert_eq!(
            (
                credentials.username.as_deref(),
                credentials.password.as_deref()
            ),
            (Some("me"), Some("s"))
        );
        let token = asked(r#"echo '{"Username":"<token>","Secret":"t"}'"#)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (token.identitytoken.as_deref(), token.password),
            (Some("t"), None)
        );
        assert_eq!(
            asked("echo credentials not found in native keychain; exit 1").await,
            Ok(None)
        );
        assert!(
            asked("echo locked; exit 1")
                .await
                .unwrap_err()
                .ends_with("locked")
        );
        let malformed = asked("echo secret").await.unwrap_err();
        assert!(
            malformed.contains("cannot parse the output") && !malformed.contains("secret"),
            "{malformed}"
        );
        assert!(asked("yes").await.is_err(), "an answer without end");

        let (_folder, path) = helper("exec sleep 1000");
        let started = Instant::now();
        let late = request_credentials(path.as_os_str(), "r.test", Duration::from_millis(200))
            .await
            .unwrap_err();
        assert!(
            late.contains("did not respond within 0.2 s")
                && started.elapsed() < Duration::from_secs(5),
            "{late}"
        );
    }
}
