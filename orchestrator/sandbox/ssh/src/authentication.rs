//! Public-key authentication with keys of an SSH agent and with key files. Never prompts for a
//! password.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{
    Error as KeyError, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, decode_secret_key,
    load_public_key,
};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::error::SshError;
use super::host_key::HostKeyCheck;
use super::target::Hop;

/// Servers disconnect after too many attempts.
const MAX_AUTH_ATTEMPTS: usize = 16;
const MAX_KEY_FILE_LENGTH: u64 = 256 << 10;
/// Time to connect to the agent and list its keys. Signing may need the user's confirmation and is
/// bounded by the login.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

type Agent = AgentClient<UnixStream>;

/// A key to authenticate with.
enum CandidateKey {
    File(PathBuf, Arc<PrivateKey>),
    Agent(PublicKey),
}

/// Keys to try in order, and the reasons why others cannot be used.
#[derive(Default)]
struct AvailableKeys {
    candidates: Vec<CandidateKey>,
    agent: Option<Agent>,
    problems: Vec<String>,
}

/// Authenticates with one key after another. `Err` if none is accepted.
pub(super) async fn authenticate(
    handle: &mut Handle<HostKeyCheck>,
    hop: &Hop,
) -> Result<(), SshError> {
    let mut keys = AvailableKeys::collect(hop).await;
    let broken = |error: &dyn std::fmt::Display| {
        SshError::unreachable(&hop.description(), format_args!("logging in: {error}"))
    };
    let mut rsa_hash = None;
    let mut refused = Vec::new();
    for candidate in keys.candidates.iter().take(MAX_AUTH_ATTEMPTS) {
        let hash = match (candidate.is_rsa(), rsa_hash) {
            (false, _) => None,
            (true, Some(hash)) => hash,
            (true, None) => {
                let best = handle
                    .best_supported_rsa_hash()
                    .await
                    .map_err(|error| broken(&error))?;
                // A server without `server-sig-algs` supports SHA-512, as OpenSSH does since 2016.
                *rsa_hash.insert(best.unwrap_or(Some(HashAlg::Sha512)))
            }
        };
        let reply = match (candidate, keys.agent.as_mut()) {
            (CandidateKey::File(_, key), _) => {
                let key = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
                handle
                    .authenticate_publickey(&hop.user, key)
                    .await
                    .map_err(|error| broken(&error))?
            }
            (CandidateKey::Agent(key), Some(agent)) => {
                match handle
                    .authenticate_publickey_with(&hop.user, key.clone(), hash, agent)
                    .await
                {
                    Ok(reply) => reply,
                    Err(error) => {
                        keys.problems.push(format!(
                            "the agent did not sign with {}: {error}",
                            candidate.name()
                        ));
                        continue;
                    }
                }
            }
            (CandidateKey::Agent(_), None) => continue,
        };
        match reply {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure {
                partial_success: true,
                ..
            } => {
                return Err(SshError::Permanent(format!(
                    "{} requires more than a key, which is not supported",
                    hop.description()
                )));
            }
            // The connection broke before a reply, which names methods. After refusals, it is the
            // server's limit of attempts.
            AuthResult::Failure {
                remaining_methods, ..
            } if remaining_methods.is_empty() && handle.is_closed() && refused.is_empty() => {
                return Err(broken(&"the connection was closed"));
            }
            AuthResult::Failure { .. } => refused.push(candidate.name()),
        }
        if handle.is_closed() {
            break; // the server's limit of attempts is reached
        }
    }
    if refused.is_empty()
        && handle
            .authenticate_none(&hop.user)
            .await
            .is_ok_and(|reply| reply.success())
    {
        return Ok(()); // some servers authenticate the client by other means, such as its address
    }
    Err(SshError::Permanent(no_key_accepted(
        hop,
        &refused,
        &keys.problems,
    )))
}

fn no_key_accepted(hop: &Hop, refused: &[String], problems: &[String]) -> String {
    let tried = match refused {
        [] => "there is no key that can be tried".to_owned(),
        refused => format!("it accepts none of {}", refused.join(", ")),
    };
    let problems: String = problems
        .iter()
        .map(|problem| format!("; {problem}"))
        .collect();
    format!(
        "logging in to {}: {tried}{problems}; give it a key with `ssh-copy-id`, or name one with IdentityFile",
        hop.description()
    )
}

impl CandidateKey {
    fn public_key(&self) -> &PublicKey {
        match self {
            Self::File(_, key) => key.public_key(),
            Self::Agent(key) => key,
        }
    }

    fn is_rsa(&self) -> bool {
        self.public_key().algorithm().is_rsa()
    }

    fn name(&self) -> String {
        match self {
            Self::File(path, _) => path.display().to_string(),
            Self::Agent(key) => format!("{} (agent)", key.fingerprint(HashAlg::Sha256)),
        }
    }
}

impl AvailableKeys {
    /// Orders keys as OpenSSH does: agent keys that match a key file, then key files, then other
    /// agent keys.
    async fn collect(hop: &Hop) -> Self {
        let mut keys = Self::default();
        let held = match &hop.agent {
            Some(socket) => keys.list_agent_keys(socket).await,
            None => Vec::new(),
        };
        let is_held = |key: &PublicKey| held.iter().any(|held| held.key_data() == key.key_data());
        let mut from_files = Vec::new();
        for path in &hop.key_files {
            match read_key_file(path) {
                KeyFile::Missing => {}
                KeyFile::Usable(key) if is_held(key.public_key()) => {
                    keys.candidates
                        .push(CandidateKey::Agent(key.public_key().clone()));
                }
                KeyFile::Usable(key) => from_files.push(CandidateKey::File(path.clone(), key)),
                KeyFile::Public(key) if is_held(&key) => {
                    keys.candidates.push(CandidateKey::Agent(*key));
                }
                KeyFile::Public(_) => {
                    let path = path.display();
                    keys.problems.push(format!(
                        "the key {path} is encrypted or not here: add it with `ssh-add {path}`"
                    ));
                }
                KeyFile::Encrypted => {
                    let path = path.display();
                    keys.problems.push(format!(
                        "the key {path} is encrypted: add it to an agent with `ssh-add {path}`"
                    ));
                }
                KeyFile::Unusable(reason) => {
                    keys.problems
                        .push(format!("cannot use the key {}: {reason}", path.display()));
                }
            }
        }
        keys.candidates.extend(from_files);
        if !hop.only_key_files {
            let is_new = |key: &&PublicKey| {
                keys.candidates
                    .iter()
                    .all(|candidate| candidate.public_key().key_data() != key.key_data())
            };
            let others: Vec<CandidateKey> = held
                .iter()
                .filter(is_new)
                .cloned()
                .map(CandidateKey::Agent)
                .collect();
            keys.candidates.extend(others);
        }
        keys
    }

    /// Lists the agent's keys. Empty if the agent does not answer, which is recorded as a problem.
    async fn list_agent_keys(&mut self, socket: &Path) -> Vec<PublicKey> {
        let asked = timeout(AGENT_TIMEOUT, async {
            let mut agent = AgentClient::connect_uds(socket).await?;
            let held = agent.request_identities().await?;
            Ok::<_, KeyError>((agent, held))
        });
        match asked.await {
            Ok(Ok((agent, held))) => {
                self.agent = Some(agent);
                let plain = held.into_iter().filter_map(|identity| match identity {
                    AgentIdentity::PublicKey { key, .. } => Some(key),
                    AgentIdentity::Certificate { .. } => None,
                });
                plain.collect()
            }
            Ok(Err(error)) => {
                self.problems.push(format!(
                    "the agent {} does not answer: {error}",
                    socket.display()
                ));
                Vec::new()
            }
            Err(_) => {
                self.problems
                    .push(format!("the agent {} does not answer", socket.display()));
                Vec::new()
            }
        }
    }
}

/// Result of reading a key file.
enum KeyFile {
    Missing,
    Usable(Arc<PrivateKey>),
    /// Only the public key is readable.
    Public(Box<PublicKey>),
    Encrypted,
    Unusable(String),
}

fn read_key_file(path: &Path) -> KeyFile {
    let public = || {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".pub");
        [Path::new(&beside), path]
            .iter()
            .find_map(|path| load_public_key(path).ok())
    };
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_KEY_FILE_LENGTH).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return public().map_or(KeyFile::Missing, |key| KeyFile::Public(Box::new(key)));
        }
        Err(error) => return KeyFile::Unusable(error.to_string()),
        Ok(_) => {}
    }
    match decode_secret_key(&text, None) {
        Ok(key) => KeyFile::Usable(Arc::new(key)),
        Err(error) => match (public(), error) {
            (Some(key), _) => KeyFile::Public(Box::new(key)),
            (None, KeyError::KeyIsEncrypted) => KeyFile::Encrypted,
            (None, error) => KeyFile::Unusable(error.to_string()),
        },
    }
}
