//! Verification of the key that a host presents.

use std::sync::{Arc, Mutex, PoisonError};

use russh::client::{self, ChannelOpenHandle, Msg, Session};
use russh::keys::{PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelId};

use super::config::UnknownHosts;
use super::error::SshError;
use super::known_hosts::{KeyStatus, KnownKeys, UnknownKey};
use super::target::Hop;

/// Verifies the host key, and refuses all channels that the host opens.
pub(super) struct HostKeyCheck {
    hop: Hop,
    known: KnownKeys,
    /// Keys that the user has confirmed since the files were read.
    accepted: Vec<UnknownKey>,
    outcome: HostKeyDecisionSlot,
}

/// Passes the decision from russh's handler to the login. The lock is held only to move the value.
#[derive(Clone, Default)]
pub(super) struct HostKeyDecisionSlot(Arc<Mutex<Option<HostKeyDecision>>>);

/// Result of the verification, other than that the key is known.
pub(super) enum HostKeyDecision {
    Refused(SshError),
    /// Accepted on first use, and to be stored when the connection is established.
    New(UnknownKey),
}

impl HostKeyDecisionSlot {
    pub(super) fn take(&self) -> Option<HostKeyDecision> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, found: HostKeyDecision) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

impl HostKeyCheck {
    pub(super) fn new(
        hop: Hop,
        known: KnownKeys,
        accepted: &[UnknownKey],
    ) -> (Self, HostKeyDecisionSlot) {
        let outcome = HostKeyDecisionSlot::default();
        let check = Self {
            hop,
            known,
            accepted: accepted.to_vec(),
            outcome: outcome.clone(),
        };
        (check, outcome)
    }

    fn is_trusted(&self, key: &PublicKey) -> bool {
        let host = &self.hop.known_as;
        let unknown = UnknownKey {
            host: host.clone(),
            key: key.clone(),
            file: self.hop.new_host_keys.clone(),
        };
        let shown = format!("{} {}", key.algorithm(), unknown.fingerprint());
        let refused = match self.known.key_status(key) {
            KeyStatus::Known => return true,
            KeyStatus::Changed { file, line } => format!(
                "the host key of {host} is not the one in {}:{line} but {shown}: another host may impersonate it; if the \
                 key was changed on purpose, remove that line with `ssh-keygen -R '{host}'`",
                file.display()
            ),
            KeyStatus::Revoked { file, line } => {
                format!(
                    "the host key of {host} is revoked in {}:{line}: {shown}",
                    file.display()
                )
            }
            KeyStatus::Unknown if self.is_accepted(&unknown) => return true,
            KeyStatus::Unknown => match &self.hop.unknown_hosts {
                UnknownHosts::AcceptNew => {
                    self.outcome.set(HostKeyDecision::New(unknown));
                    return true;
                }
                UnknownHosts::Ask(_) => {
                    self.outcome
                        .set(HostKeyDecision::Refused(SshError::UnknownKey(Box::new(
                            unknown,
                        ))));
                    return false;
                }
                UnknownHosts::Refuse => format!(
                    "the host key of {host} is not known: compare {shown} with the host's own, then connect once with \
                     `ssh -p {} {}@{}`, or let new hosts be accepted",
                    self.hop.port, self.hop.user, self.hop.address
                ),
            },
        };
        self.outcome
            .set(HostKeyDecision::Refused(SshError::Permanent(refused)));
        false
    }

    fn is_accepted(&self, shown: &UnknownKey) -> bool {
        let is_it =
            |key: &UnknownKey| key.host == shown.host && key.key.key_data() == shown.key.key_data();
        self.accepted.iter().any(is_it)
    }
}

/// Channels that the host opens are refused by dropping their handle: the client has requested no
/// forwarding.
impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => Ok(self.is_trusted(key)),
            PublicKeyOrCertificate::Certificate(_) => Ok(false), // none was asked for
        }
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn should_accept_unknown_server_channel(&mut self, _: ChannelId, _: &str) -> bool {
        false
    }
}
