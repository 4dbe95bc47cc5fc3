//! From a list of hosts to a connection with the last of them: each is reached through the one before it.

use std::sync::Arc;
use std::time::Duration;

use russh::Preferred;
use russh::client::{self, Handle};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::authentication::authenticate;
use super::config::{HostKeyQuestion, UnknownHosts};
use super::error::SshError;
use super::host_key::{Found, HostKeyCheck};
use super::known_hosts::{KnownKeys, UnknownKey};
use super::target::Hop;

/// For the exchange of keys and the login of one host, once it has answered.
const LOGIN_WAIT: Duration = Duration::from_secs(15);
/// A host that says nothing for so long is asked whether it is there; three times unanswered, the connection is over.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVES_UNANSWERED: usize = 3;
/// What one channel may have in flight.
const WINDOW: u32 = 2 << 20;

/// The way to a host.
pub(super) struct Way {
    pub(super) handle: Handle<HostKeyCheck>,
    /// The connections that this one goes through.
    pub(super) through: Vec<Handle<HostKeyCheck>>,
}

/// Logs in to one host after another. Somebody who is asked about a host's key may take their time: meanwhile no
/// connection is open, and it is made anew when they said yes.
pub(super) async fn log_in(hops: &[Hop]) -> Result<Way, SshError> {
    let mut accepted: Vec<UnknownKey> = Vec::new();
    loop {
        match attempt(hops, &accepted).await {
            Err(SshError::UnknownKey(unknown)) if accepted.len() < hops.len() => {
                ask(hops, &unknown).await?;
                learn(&unknown);
                accepted.push(*unknown);
            }
            done => return done,
        }
    }
}

async fn attempt(hops: &[Hop], accepted: &[UnknownKey]) -> Result<Way, SshError> {
    let mut way: Vec<Handle<HostKeyCheck>> = Vec::new();
    for hop in hops {
        let handle = match way.last() {
            None => {
                let stream = reach(hop).await?;
                shake_hands(hop, accepted, stream).await?
            }
            Some(last) => {
                let channel = last.channel_open_direct_tcpip(&hop.address, hop.port.into(), "127.0.0.1", 0);
                let channel = timeout(hop.connect_wait, channel)
                    .await
                    .map_err(|_| {
                        SshError::late(
                            &hop.place(),
                            "connecting through the host before it",
                            hop.connect_wait,
                        )
                    })?
                    .map_err(|error| {
                        SshError::unreachable(
                            &hop.place(),
                            format_args!("the host before it does not connect to it: {error}"),
                        )
                    })?;
                shake_hands(hop, accepted, channel.into_stream()).await?
            }
        };
        way.push(handle);
    }
    let handle = way.pop().ok_or_else(|| SshError::Hopeless("there is no host to log in to".into()))?;
    Ok(Way { handle, through: way })
}

async fn reach(hop: &Hop) -> Result<TcpStream, SshError> {
    let connected = timeout(hop.connect_wait, TcpStream::connect((hop.address.as_str(), hop.port))).await;
    let stream = connected
        .map_err(|_| SshError::late(&hop.place(), "connecting", hop.connect_wait))?
        .map_err(|error| SshError::unreachable(&hop.place(), error))?;
    let _ = stream.set_nodelay(true); // slower without, and no worse
    Ok(stream)
}

/// Exchanges keys, checks the host's and shows ours.
async fn shake_hands(
    hop: &Hop,
    accepted: &[UnknownKey],
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Handle<HostKeyCheck>, SshError> {
    let known = KnownKeys::of(&hop.known_as, &hop.known_hosts)
        .map_err(|error| SshError::Hopeless(format!("reading known hosts: {error}")))?;
    let settings = Arc::new(settings(&known));
    let (check, outcome) = HostKeyCheck::new(hop.clone(), known, accepted);
    let logged_in = async {
        let connected = client::connect_stream(settings, stream, check).await;
        let found = outcome.take();
        let mut handle = match (connected, found) {
            (_, Some(Found::Refused(error))) => return Err(error),
            (Err(error), _) => return Err(SshError::unreachable(&hop.place(), error)),
            (Ok(handle), Some(Found::New(key))) => {
                learn(&key);
                handle
            }
            (Ok(handle), None) => handle,
        };
        authenticate(&mut handle, hop).await?;
        Ok(handle)
    };
    let late = |_| Err(SshError::late(&hop.place(), "logging in", LOGIN_WAIT));
    timeout(LOGIN_WAIT, logged_in).await.unwrap_or_else(late)
}

fn settings(known: &KnownKeys) -> client::Config {
    let ecdsa = |curve| Algorithm::Ecdsa { curve };
    let host_keys = [
        Algorithm::Ed25519,
        ecdsa(EcdsaCurve::NistP256),
        ecdsa(EcdsaCurve::NistP384),
        ecdsa(EcdsaCurve::NistP521),
        Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
        Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
    ];
    client::Config {
        window_size: WINDOW,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES_UNANSWERED,
        preferred: Preferred { key: known.preferred(&host_keys).into(), ..Preferred::DEFAULT },
        ..client::Config::default()
    }
}

async fn ask(hops: &[Hop], unknown: &UnknownKey) -> Result<(), SshError> {
    let refused = || SshError::Hopeless(format!("the host key of {} was not accepted", unknown.host));
    let hop = hops.iter().find(|hop| hop.known_as == unknown.host).ok_or_else(refused)?;
    let UnknownHosts::Ask(ask) = hop.unknown_hosts.clone() else { return Err(refused()) };
    let question = HostKeyQuestion {
        host: unknown.host.clone(),
        algorithm: unknown.key.algorithm().to_string(),
        fingerprint: unknown.fingerprint(),
    };
    let is_accepted = spawn_blocking(move || ask(&question)).await.unwrap_or(false); // a panic is no yes
    if is_accepted { Ok(()) } else { Err(refused()) }
}

/// A file that cannot be written only means that the question comes again.
fn learn(unknown: &UnknownKey) {
    match unknown.learn() {
        Ok(()) => tracing::info!(host = unknown.host, "a new host key was written down"),
        Err(error) => tracing::warn!(host = unknown.host, %error, "a new host key cannot be written down"),
    }
}
