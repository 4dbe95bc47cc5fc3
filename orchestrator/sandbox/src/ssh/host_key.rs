//! Whether the host that answers is the one that is meant.

use std::sync::{Arc, Mutex, PoisonError};

use russh::client::{self, ChannelOpenHandle, Msg, Session};
use russh::keys::{PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelId};

use super::config::UnknownHosts;
use super::error::SshError;
use super::known_hosts::{KnownKeys, UnknownKey, Verdict};
use super::target::Hop;

/// Checks the key that a host shows, and says no to whatever the host asks of us.
pub(super) struct HostKeyCheck {
    hop: Hop,
    known: KnownKeys,
    /// Keys that somebody has said yes to since the files were read.
    accepted: Vec<UnknownKey>,
    outcome: Outcome,
}

/// What came of the check: read when the connection fails, or stands. Locked only to move a value.
#[derive(Clone, Default)]
pub(super) struct Outcome(Arc<Mutex<Option<Found>>>);

pub(super) enum Found {
    Refused(SshError),
    /// Believed, and to be written down once the connection stands.
    New(UnknownKey),
}

impl Outcome {
    pub(super) fn take(&self) -> Option<Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, found: Found) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

impl HostKeyCheck {
    pub(super) fn new(hop: Hop, known: KnownKeys, accepted: &[UnknownKey]) -> (Self, Outcome) {
        let outcome = Outcome::default();
        let check = Self { hop, known, accepted: accepted.to_vec(), outcome: outcome.clone() };
        (check, outcome)
    }

    fn is_trusted(&self, key: &PublicKey) -> bool {
        let host = &self.hop.known_as;
        let unknown =
            UnknownKey { host: host.clone(), key: key.clone(), file: self.hop.known_hosts.first().cloned() };
        let shown = format!("{} {}", key.algorithm(), unknown.fingerprint());
        let refused = match self.known.judge(key) {
            Verdict::Known => return true,
            Verdict::Changed { file, line } => format!(
                "the host key of {host} is not the one in {}:{line}, it shows {shown}: if it was changed on purpose \
                 remove that line with `ssh-keygen -R '{host}'`, if not somebody else is answering",
                file.display()
            ),
            Verdict::Revoked { file, line } => {
                format!("the host key of {host} is revoked in {}:{line}: {shown}", file.display())
            }
            Verdict::Unknown if self.is_accepted(&unknown) => return true,
            Verdict::Unknown => match &self.hop.unknown_hosts {
                UnknownHosts::AcceptNew => {
                    self.outcome.set(Found::New(unknown));
                    return true;
                }
                UnknownHosts::Ask(_) => {
                    self.outcome.set(Found::Refused(SshError::UnknownKey(Box::new(unknown))));
                    return false;
                }
                UnknownHosts::Refuse => format!(
                    "the host key of {host} is not known: compare {shown} with the host's own, then connect once with \
                     `ssh -p {} {}@{}`, or let new hosts be accepted",
                    self.hop.port, self.hop.user, self.hop.address
                ),
            },
        };
        self.outcome.set(Found::Refused(SshError::Hopeless(refused)));
        false
    }

    fn is_accepted(&self, shown: &UnknownKey) -> bool {
        let is_it = |key: &UnknownKey| key.host == shown.host && key.key.key_data() == shown.key.key_data();
        self.accepted.iter().any(is_it)
    }
}

/// Channels that a host opens to us are refused by dropping the answer: nothing here was ever offered to it.
impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
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
