//! Proves to a host who we are: with keys that an agent holds, and with key files. Nothing is ever typed in.

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

/// Keys that are tried at most: hosts end connections that try many.
const MAX_TRIES: usize = 16;
const MAX_KEY_FILE_LENGTH: u64 = 256 << 10;
/// An agent may ask somebody before it signs; the login's own time bounds that.
const AGENT_WAIT: Duration = Duration::from_secs(5);

type Agent = AgentClient<UnixStream>;

/// A key that can be tried.
enum Candidate {
    File(PathBuf, Arc<PrivateKey>),
    Agent(PublicKey),
}

/// What there is to try, and what could not be used and why.
#[derive(Default)]
struct Keys {
    candidates: Vec<Candidate>,
    agent: Option<Agent>,
    problems: Vec<String>,
}

/// Tries one key after another.
pub(super) async fn authenticate(handle: &mut Handle<HostKeyCheck>, hop: &Hop) -> Result<(), SshError> {
    let mut keys = Keys::of(hop).await;
    let broken = |error: &dyn std::fmt::Display| {
        SshError::unreachable(&hop.place(), format_args!("logging in: {error}"))
    };
    let mut rsa_hash = None;
    let mut refused = Vec::new();
    for candidate in keys.candidates.iter().take(MAX_TRIES) {
        let hash = match (candidate.is_rsa(), rsa_hash) {
            (false, _) => None,
            (true, Some(hash)) => hash,
            (true, None) => {
                let best = handle.best_supported_rsa_hash().await.map_err(|error| broken(&error))?;
                // A host that does not say takes what all take since 2016.
                *rsa_hash.insert(best.unwrap_or(Some(HashAlg::Sha512)))
            }
        };
        let answer = match (candidate, keys.agent.as_mut()) {
            (Candidate::File(_, key), _) => {
                let key = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
                handle.authenticate_publickey(&hop.user, key).await.map_err(|error| broken(&error))?
            }
            (Candidate::Agent(key), Some(agent)) => {
                match handle.authenticate_publickey_with(&hop.user, key.clone(), hash, agent).await {
                    Ok(answer) => answer,
                    Err(error) => {
                        keys.problems
                            .push(format!("the agent did not sign with {}: {error}", candidate.name()));
                        continue;
                    }
                }
            }
            (Candidate::Agent(_), None) => continue,
        };
        match answer {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure { partial_success: true, .. } => {
                return Err(SshError::Hopeless(format!(
                    "{} wants more than a key, which cannot be given here",
                    hop.place()
                )));
            }
            AuthResult::Failure { .. } => refused.push(candidate.name()),
        }
        if handle.is_closed() {
            break; // too many tries for this host
        }
    }
    if refused.is_empty() && handle.authenticate_none(&hop.user).await.is_ok_and(|answer| answer.success()) {
        return Ok(()); // some hosts know who is calling in other ways
    }
    Err(SshError::Hopeless(no_key_accepted(hop, &refused, &keys.problems)))
}

fn no_key_accepted(hop: &Hop, refused: &[String], problems: &[String]) -> String {
    let tried = match refused {
        [] => "there is no key that can be tried".to_owned(),
        refused => format!("it accepts none of {}", refused.join(", ")),
    };
    let problems: String = problems.iter().map(|problem| format!("; {problem}")).collect();
    format!(
        "logging in to {}: {tried}{problems}; give it a key with `ssh-copy-id`, or name one with IdentityFile",
        hop.place()
    )
}

impl Candidate {
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

impl Keys {
    /// Those of the agent that belong to a key file come first, then the files, then what else the agent holds.
    async fn of(hop: &Hop) -> Self {
        let mut keys = Self::default();
        let held = match &hop.agent {
            Some(socket) => keys.ask_agent(socket).await,
            None => Vec::new(),
        };
        let is_held = |key: &PublicKey| held.iter().any(|held| held.key_data() == key.key_data());
        let mut from_files = Vec::new();
        for path in &hop.key_files {
            match load(path) {
                Loaded::Missing => {}
                Loaded::Usable(key) if is_held(key.public_key()) => {
                    keys.candidates.push(Candidate::Agent(key.public_key().clone()));
                }
                Loaded::Usable(key) => from_files.push(Candidate::File(path.clone(), key)),
                Loaded::Public(key) if is_held(&key) => keys.candidates.push(Candidate::Agent(*key)),
                Loaded::Public(_) => {
                    let path = path.display();
                    keys.problems.push(format!(
                        "the key {path} is encrypted or not here: add it with `ssh-add {path}`"
                    ));
                }
                Loaded::Encrypted => {
                    let path = path.display();
                    keys.problems.push(format!(
                        "the key {path} is encrypted: add it to an agent with `ssh-add {path}`"
                    ));
                }
                Loaded::Unusable(reason) => {
                    keys.problems.push(format!("the key {} cannot be used: {reason}", path.display()));
                }
            }
        }
        keys.candidates.extend(from_files);
        if !hop.only_key_files {
            let is_new = |key: &&PublicKey| {
                keys.candidates.iter().all(|candidate| candidate.public_key().key_data() != key.key_data())
            };
            let others: Vec<Candidate> = held.iter().filter(is_new).cloned().map(Candidate::Agent).collect();
            keys.candidates.extend(others);
        }
        keys
    }

    /// The keys that an agent holds. One that does not answer is a problem, not an end.
    async fn ask_agent(&mut self, socket: &Path) -> Vec<PublicKey> {
        let asked = timeout(AGENT_WAIT, async {
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
                self.problems.push(format!("the agent {} does not answer: {error}", socket.display()));
                Vec::new()
            }
            Err(_) => {
                self.problems.push(format!("the agent {} does not answer", socket.display()));
                Vec::new()
            }
        }
    }
}

enum Loaded {
    Missing,
    Usable(Arc<PrivateKey>),
    /// Only its public half can be read.
    Public(Box<PublicKey>),
    Encrypted,
    Unusable(String),
}

fn load(path: &Path) -> Loaded {
    let public = || {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".pub");
        [Path::new(&beside), path].iter().find_map(|path| load_public_key(path).ok())
    };
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_FILE_LENGTH).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return public().map_or(Loaded::Missing, |key| Loaded::Public(Box::new(key)));
        }
        Err(error) => return Loaded::Unusable(error.to_string()),
        Ok(_) => {}
    }
    match decode_secret_key(&text, None) {
        Ok(key) => Loaded::Usable(Arc::new(key)),
        Err(error) => match (public(), error) {
            (Some(key), _) => Loaded::Public(Box::new(key)),
            (None, KeyError::KeyIsEncrypted) => Loaded::Encrypted,
            (None, error) => Loaded::Unusable(error.to_string()),
        },
    }
}
