//! Login to the last host of a chain. Each host is reached through the one before it, as with
//! `ProxyJump`.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt as _;
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
use super::host_key::{HostKeyCheck, HostKeyDecision};
use super::known_hosts::{KnownKeys, UnknownKey};
use super::target::Hop;

/// Time for key exchange and authentication on one host, after the transport is connected.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle time after which a keepalive is sent.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const MAX_UNANSWERED_KEEPALIVES: usize = 3;
/// Flow-control window of a channel, in bytes.
const CHANNEL_WINDOW_SIZE: u32 = 2 << 20;

/// An authenticated connection and the jump connections that carry it.
pub(super) struct Login {
    pub(super) handle: Handle<HostKeyCheck>,
    pub(super) jump_hosts: Vec<Handle<HostKeyCheck>>,
}

/// Logs in to one host after another. No connection is open while the user confirms a host key,
/// because the host would time out. All hosts are connected again after the confirmation.
pub(super) async fn log_in(hops: &[Hop]) -> Result<Login, SshError> {
    let mut accepted: Vec<UnknownKey> = Vec::new();
    loop {
        match attempt(hops, &accepted).await {
            Err(SshError::UnknownKey(unknown)) if accepted.len() < hops.len() => {
                confirm_host_key(hops, &unknown).await?;
                remember_host_key(&unknown);
                accepted.push(*unknown);
            }
            result => return result,
        }
    }
}

async fn attempt(hops: &[Hop], accepted: &[UnknownKey]) -> Result<Login, SshError> {
    let mut handles: Vec<Handle<HostKeyCheck>> = Vec::new();
    for hop in hops {
        let handle = match handles.last() {
            None => {
                let stream = connect_tcp(hop).await?;
                handshake(hop, accepted, stream).await?
            }
            Some(jump_host) => {
                let channel = jump_host.channel_open_direct_tcpip(
                    &hop.address,
                    hop.port.into(),
                    "127.0.0.1",
                    0,
                );
                let channel =
                    channel.map_err(|error| format!("the jump host cannot connect to it: {error}"));
                let channel = connect(hop, "connecting through the jump host", channel).await?;
                handshake(hop, accepted, channel.into_stream()).await?
            }
        };
        handles.push(handle);
    }
    let handle = handles
        .pop()
        .ok_or_else(|| SshError::Permanent("there is no host to log in to".into()))?;
    Ok(Login {
        handle,
        jump_hosts: handles,
    })
}

async fn connect_tcp(hop: &Hop) -> Result<TcpStream, SshError> {
    let stream = connect(
        hop,
        "connecting",
        TcpStream::connect((hop.address.as_str(), hop.port)),
    )
    .await?;
    let _ = stream.set_nodelay(true); // only a latency optimization
    Ok(stream)
}

/// Bounds a connection attempt by the timeout of the host.
async fn connect<T, E: fmt::Display>(
    hop: &Hop,
    doing: &str,
    attempt: impl Future<Output = Result<T, E>>,
) -> Result<T, SshError> {
    timeout(hop.connect_timeout, attempt)
        .await
        .map_err(|_| SshError::timed_out(&hop.description(), doing, hop.connect_timeout))?
        .map_err(|error| SshError::unreachable(&hop.description(), error))
}

/// Exchanges keys, verifies the host and authenticates the user.
async fn handshake(
    hop: &Hop,
    accepted: &[UnknownKey],
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Handle<HostKeyCheck>, SshError> {
    let known = KnownKeys::load(&hop.known_as, &hop.known_hosts)
        .map_err(|error| SshError::Permanent(format!("cannot read the known hosts: {error}")))?;
    let settings = Arc::new(settings(&known));
    let (check, decision) = HostKeyCheck::new(hop.clone(), known, accepted);
    let logged_in = async {
        let connected = client::connect_stream(settings, stream, check).await;
        let mut handle = match (connected, decision.take()) {
            (_, Some(HostKeyDecision::Refused(error))) => return Err(error),
            (Err(error), _) if is_dropped(&error) => {
                return Err(SshError::Dropped {
                    destination: hop.description(),
                });
            }
            (Err(error), _) => return Err(SshError::unreachable(&hop.description(), error)),
            (Ok(handle), Some(HostKeyDecision::New(key))) => {
                remember_host_key(&key);
                handle
            }
            (Ok(handle), None) => handle,
        };
        authenticate(&mut handle, hop).await?;
        Ok(handle)
    };
    timeout(LOGIN_TIMEOUT, logged_in).await.unwrap_or_else(|_| {
        Err(SshError::timed_out(
            &hop.description(),
            "logging in",
            LOGIN_TIMEOUT,
        ))
    })
}

/// Whether the server ended the connection during the exchange of keys.
fn is_dropped(error: &russh::Error) -> bool {
    match error {
        russh::Error::Disconnect | russh::Error::HUP => true,
        russh::Error::IO(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe
        ),
        _ => false,
    }
}

fn settings(known: &KnownKeys) -> client::Config {
    let ecdsa = |curve| Algorithm::Ecdsa { curve };
    let host_keys = [
        Algorithm::Ed25519,
        ecdsa(EcdsaCurve::NistP256),
        ecdsa(EcdsaCurve::NistP384),
        ecdsa(EcdsaCurve::NistP521),
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha512),
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha256),
        },
    ];
    client::Config {
        window_size: CHANNEL_WINDOW_SIZE,
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: MAX_UNANSWERED_KEEPALIVES,
        preferred: Preferred {
            key: known.preferred(&host_keys).into(),
            ..Preferred::DEFAULT
        },
        ..client::Config::default()
    }
}

async fn confirm_host_key(hops: &[Hop], unknown: &UnknownKey) -> Result<(), SshError> {
    let refused =
        || SshError::Permanent(format!("the host key of {} was not accepted", unknown.host));
    let hop = hops
        .iter()
        .find(|hop| hop.known_as == unknown.host)
        .ok_or_else(refused)?;
    let UnknownHosts::Ask(ask) = hop.unknown_hosts.clone() else {
        return Err(refused());
    };
    let question = HostKeyQuestion {
        host: unknown.host.clone(),
        algorithm: unknown.key.algorithm().to_string(),
        fingerprint: unknown.fingerprint(),
    };
    let is_accepted = spawn_blocking(move || ask(&question))
        .await
        .unwrap_or(false); // a panic counts as a refusal
    if is_accepted { Ok(()) } else { Err(refused()) }
}

/// Stores a confirmed key. An error is only logged: its consequence is another confirmation at the
/// next connection.
fn remember_host_key(unknown: &UnknownKey) {
    match unknown.append_to_file() {
        Ok(()) => tracing::info!(host = unknown.host, "stored a new host key"),
        Err(error) => tracing::warn!(host = unknown.host, %error, "cannot store a new host key"),
    }
}
