//! One SSH connection: runs command lines, opens channels to sockets. Shared by all sandboxes of a host.
//!
//! What is begun on the other side is taken to its end by a task of the connection, also when nobody waits any more: a
//! channel that nobody closes would count against the few that a host allows. All of it is bounded in time and size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelStream, ChannelWriteHalf};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::error::SshError;
use super::host_key::HostKeyCheck;
use super::login::{self, Way};
use super::target::Hop;

/// For the other side to open a channel. One that does not in this time is not there any more.
const CHANNEL_WAIT: Duration = Duration::from_secs(5);
/// Hosts allow ten sessions on a connection; the file protocol and a little air are among them.
const COMMANDS_AT_ONCE: usize = 6;
/// What ended still counts until a busy host has tidied up after it: a refused session is asked for again after these.
const REFUSED_WAITS_MS: [u64; 6] = [20, 40, 80, 160, 320, 640];
/// Of each of a command's two outputs.
const MAX_OUTPUT: usize = 512 << 10;

/// A connection that somebody is logged in on.
pub(super) struct Connection {
    handle: Handle<HostKeyCheck>,
    place: String,
    /// Nothing new is begun on it.
    is_given_up: AtomicBool,
    has_run: AtomicBool,
    commands: Semaphore,
    tasks: TaskTracker,
    _through: Vec<Handle<HostKeyCheck>>,
}

/// What became of a command.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// Nothing when it was ended by a signal, or its channel closed first.
    pub(super) code: Option<u32>,
}

impl Connection {
    pub(super) async fn open(hops: &[Hop]) -> Result<Arc<Self>, SshError> {
        let Way { handle, through } = login::log_in(hops).await?;
        Ok(Arc::new(Self {
            handle,
            place: hops.last().map(Hop::place).unwrap_or_default(),
            is_given_up: AtomicBool::new(false),
            has_run: AtomicBool::new(false),
            commands: Semaphore::new(COMMANDS_AT_ONCE),
            tasks: TaskTracker::new(),
            _through: through,
        }))
    }

    /// `user@host:port`.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.handle.is_closed() && !self.is_given_up.load(Ordering::Relaxed)
    }

    /// Runs a command line to its end and hears what it prints.
    pub(super) async fn run(
        self: &Arc<Self>,
        command: String,
        input: Bytes,
        limit: Duration,
    ) -> Result<Ran, SshError> {
        let own = Arc::clone(self);
        self.to_its_end(async move {
            let _turn = own.commands.acquire().await; // never closed
            let (mut output, control) = own.session().await?.split();
            let ran = timeout(limit, hear(&mut output, &control, command, input)).await;
            let _ = control.close().await; // gone: closed already
            ran.map_err(|_| SshError::late(&own.place, "a command", limit))?
                .map_err(|error| SshError::unreachable(&own.place, error))
        })
        .await
    }

    /// The standard streams of a command line.
    pub(super) async fn stream_of(self: &Arc<Self>, command: String) -> Result<ChannelStream<Msg>, SshError> {
        let own = Arc::clone(self);
        self.to_its_end(async move {
            let channel = own.session().await?;
            let asked = channel.exec(true, command).await;
            asked.map_err(|error| SshError::unreachable(&own.place, error))?;
            Ok(channel.into_stream())
        })
        .await
    }

    /// A channel that speaks one of SSH's subsystems; refused where the other side does not have it.
    pub(super) async fn subsystem(
        self: &Arc<Self>,
        name: &'static str,
    ) -> Result<ChannelStream<Msg>, SshError> {
        let own = Arc::clone(self);
        self.to_its_end(async move {
            let mut channel = own.session().await?;
            let asked = channel.request_subsystem(true, name).await;
            asked.map_err(|error| SshError::unreachable(&own.place, error))?;
            let is_there = timeout(CHANNEL_WAIT, async {
                loop {
                    match channel.wait().await {
                        Some(ChannelMsg::Success) => return true,
                        Some(ChannelMsg::WindowAdjusted { .. }) => {}
                        _ => return false,
                    }
                }
            });
            match is_there.await {
                Ok(true) => Ok(channel.into_stream()),
                Ok(false) | Err(_) => {
                    let _ = channel.close().await;
                    Err(SshError::ChannelRefused { place: own.place.clone(), what: name })
                }
            }
        })
        .await
    }

    /// A stream to a unix socket there. Refused also when nobody listens: the other side does not say which it is.
    pub(super) async fn socket(self: &Arc<Self>, path: &str) -> Result<ChannelStream<Msg>, SshError> {
        self.hurry();
        let (own, path) = (Arc::clone(self), path.to_owned());
        self.to_its_end(async move {
            let opened = timeout(CHANNEL_WAIT, own.handle.channel_open_direct_streamlocal(path)).await;
            own.opened(opened, "a unix socket").map(Channel::into_stream)
        })
        .await
    }

    /// OpenSSH sends small packets at once only after it has run something on a connection.
    fn hurry(self: &Arc<Self>) {
        if !self.has_run.swap(true, Ordering::Relaxed) {
            let own = Arc::clone(self);
            self.tasks.spawn(async move { own.run(":".into(), Bytes::new(), CHANNEL_WAIT).await.map(drop) });
        }
    }

    async fn session(&self) -> Result<Channel<Msg>, SshError> {
        self.has_run.store(true, Ordering::Relaxed);
        for wait in REFUSED_WAITS_MS.map(Duration::from_millis) {
            match self.session_at_once().await {
                Err(SshError::ChannelRefused { .. }) => sleep(wait).await,
                done => return done,
            }
        }
        self.session_at_once().await
    }

    async fn session_at_once(&self) -> Result<Channel<Msg>, SshError> {
        self.opened(timeout(CHANNEL_WAIT, self.handle.channel_open_session()).await, "a session")
    }

    fn opened(
        &self,
        opened: Result<Result<Channel<Msg>, russh::Error>, tokio::time::error::Elapsed>,
        what: &'static str,
    ) -> Result<Channel<Msg>, SshError> {
        match opened {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => {
                Err(SshError::ChannelRefused { place: self.place.clone(), what })
            }
            Ok(Err(error)) => Err(SshError::unreachable(&self.place, error)),
            Err(_) => {
                // Whoever asks next gets another connection.
                self.is_given_up.store(true, Ordering::Relaxed);
                Err(SshError::late(&self.place, "opening a channel", CHANNEL_WAIT))
            }
        }
    }

    async fn to_its_end<T: Send + 'static>(
        &self,
        step: impl Future<Output = Result<T, SshError>> + Send + 'static,
    ) -> Result<T, SshError> {
        self.tasks.spawn(step).await.unwrap_or_else(|panic| Err(SshError::unreachable(&self.place, panic)))
    }
}

/// Sends a command and its input, and hears its outputs until both its end and its code are known.
async fn hear(
    output: &mut ChannelReadHalf,
    control: &ChannelWriteHalf<Msg>,
    command: String,
    input: Bytes,
) -> Result<Ran, russh::Error> {
    control.exec(true, command).await?;
    let feeding = async {
        // A command that does not want its input says why, or ends.
        let _ = control.data_bytes(input).await;
        let _ = control.eof().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ran = listen(output) => ran,
        () = feeding => Ok(Ran::default()),
    }
}

async fn listen(output: &mut ChannelReadHalf) -> Result<Ran, russh::Error> {
    let mut ran = Ran::default();
    let mut is_whole = false;
    while let Some(message) = output.wait().await {
        match message {
            ChannelMsg::Data { data } => keep(&mut ran.stdout, &data),
            ChannelMsg::ExtendedData { data, .. } => keep(&mut ran.stderr, &data),
            ChannelMsg::ExitStatus { exit_status } => ran.code = Some(exit_status),
            ChannelMsg::Eof => is_whole = true,
            ChannelMsg::Failure | ChannelMsg::Close => break,
            _ => {}
        }
        if is_whole && ran.code.is_some() {
            break;
        }
    }
    // No word and no code: the connection broke, or there was nothing to run it.
    Ok(ran)
}

/// What is longer than we ask for is cut: its end is missed by whoever reads it.
fn keep(kept: &mut Vec<u8>, data: &[u8]) {
    let room = MAX_OUTPUT.saturating_sub(kept.len());
    kept.extend_from_slice(data.get(..room).unwrap_or(data));
}
