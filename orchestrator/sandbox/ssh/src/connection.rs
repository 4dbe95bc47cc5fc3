//! One SSH connection: runs command lines and opens channels to sockets. All sandboxes of a host
//! share it.
//!
//! Every operation runs in a task of the connection, so that it completes even if its caller is
//! cancelled. A channel that stays open would count against the server's `MaxSessions`. Time and
//! output are bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelStream, ChannelWriteHalf};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::error::SshError;
use super::host_key::HostKeyCheck;
use super::login::{self, Login};
use super::target::Hop;

/// Time to open a channel. A server that exceeds it is considered dead.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Commands that run concurrently. OpenSSH allows ten sessions per connection; SFTP needs one, the
/// rest is reserve.
const MAX_CONCURRENT_COMMANDS: usize = 6;
/// Delays before a refused session is requested again. A busy server counts closed sessions until
/// it has reaped them.
const REFUSED_SESSION_BACKOFF_MS: [u64; 6] = [20, 40, 80, 160, 320, 640];
/// Maximum number of bytes that are kept of standard output, and of standard error.
const MAX_OUTPUT_BYTES: usize = 512 << 10;

/// An authenticated connection.
pub(super) struct Connection {
    handle: Handle<HostKeyCheck>,
    destination: String,
    /// A channel could not be opened in time. No new operation uses this connection.
    is_unresponsive: AtomicBool,
    has_run: AtomicBool,
    commands: Semaphore,
    tasks: TaskTracker,
    _jump_hosts: Vec<Handle<HostKeyCheck>>,
}

/// Output and exit code of a command.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// `None` if a signal terminated the command, or if the channel closed first.
    pub(super) code: Option<u32>,
}

impl Connection {
    pub(super) async fn open(hops: &[Hop]) -> Result<Arc<Self>, SshError> {
        let Login { handle, jump_hosts } = login::log_in(hops).await?;
        Ok(Arc::new(Self {
            handle,
            destination: hops.last().map(Hop::destination).unwrap_or_default(),
            is_unresponsive: AtomicBool::new(false),
            has_run: AtomicBool::new(false),
            commands: Semaphore::new(MAX_CONCURRENT_COMMANDS),
            tasks: TaskTracker::new(),
            _jump_hosts: jump_hosts,
        }))
    }

    /// `user@host:port`.
    pub(super) fn destination(&self) -> &str {
        &self.destination
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.handle.is_closed() && !self.is_unresponsive.load(Ordering::Relaxed)
    }

    /// Runs a command line and collects its output.
    pub(super) fn run(
        self: &Arc<Self>,
        command: String,
        input: Bytes,
        limit: Duration,
    ) -> BoxFuture<'_, Result<CommandOutput, SshError>> {
        let this = Arc::clone(self);
        self.run_detached(async move {
            let _permit = this.commands.acquire().await; // never closed
            let (mut output, control) = this.open_session().await?.split();
            let result = timeout(
                limit,
                exec_and_collect(&mut output, &control, command, input),
            )
            .await;
            let _ = control.close().await; // fails if the connection is closed
            result
                .map_err(|_| SshError::CommandTimedOut {
                    destination: this.destination.clone(),
                    seconds: limit.as_secs(),
                })?
                .map_err(|error| SshError::unreachable(&this.destination, error))
        })
    }

    /// Starts a command line and returns its standard streams.
    pub(super) fn exec_stream(
        self: &Arc<Self>,
        command: String,
    ) -> BoxFuture<'_, Result<ChannelStream<Msg>, SshError>> {
        let this = Arc::clone(self);
        self.run_detached(async move {
            let channel = this.open_session().await?;
            let started = channel.exec(true, command).await;
            started.map_err(|error| SshError::unreachable(&this.destination, error))?;
            Ok(channel.into_stream())
        })
    }

    /// Opens an SSH subsystem. Returns [`SshError::ChannelRefused`] if the server does not have it.
    pub(super) fn subsystem(
        self: &Arc<Self>,
        name: &'static str,
    ) -> BoxFuture<'_, Result<ChannelStream<Msg>, SshError>> {
        let this = Arc::clone(self);
        self.run_detached(async move {
            let mut channel = this.open_session().await?;
            let asked = channel.request_subsystem(true, name).await;
            asked.map_err(|error| SshError::unreachable(&this.destination, error))?;
            let is_there = timeout(CHANNEL_TIMEOUT, async {
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
                    Err(SshError::ChannelRefused {
                        destination: this.destination.clone(),
                        what: name,
                    })
                }
            }
        })
    }

    /// Opens a stream to a unix socket of the host. Returns [`SshError::ChannelRefused`] also if no
    /// process listens on it, since the protocol does not distinguish the two.
    pub(super) fn socket(
        self: &Arc<Self>,
        path: &str,
    ) -> BoxFuture<'_, Result<ChannelStream<Msg>, SshError>> {
        self.trigger_nodelay();
        let (this, path) = (Arc::clone(self), path.to_owned());
        self.run_detached(async move {
            let opened = timeout(
                CHANNEL_TIMEOUT,
                this.handle.channel_open_direct_streamlocal(path),
            )
            .await;
            this.opened(opened, "a unix socket")
                .map(Channel::into_stream)
        })
    }

    /// Runs an empty command once: OpenSSH sets `TCP_NODELAY` only when a session runs a command.
    fn trigger_nodelay(self: &Arc<Self>) {
        if !self.has_run.swap(true, Ordering::Relaxed) {
            let this = Arc::clone(self);
            self.tasks.spawn(async move {
                this.run(":".into(), Bytes::new(), CHANNEL_TIMEOUT)
                    .await
                    .map(drop)
            });
        }
    }

    async fn open_session(&self) -> Result<Channel<Msg>, SshError> {
        self.has_run.store(true, Ordering::Relaxed);
        for wait in REFUSED_SESSION_BACKOFF_MS.map(Duration::from_millis) {
            match self.try_open_session().await {
                Err(SshError::ChannelRefused { .. }) => sleep(wait).await,
                result => return result,
            }
        }
        self.try_open_session().await
    }

    async fn try_open_session(&self) -> Result<Channel<Msg>, SshError> {
        self.opened(
            timeout(CHANNEL_TIMEOUT, self.handle.channel_open_session()).await,
            "a session",
        )
    }

    fn opened(
        &self,
        opened: Result<Result<Channel<Msg>, russh::Error>, tokio::time::error::Elapsed>,
        what: &'static str,
    ) -> Result<Channel<Msg>, SshError> {
        match opened {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => Err(SshError::ChannelRefused {
                destination: self.destination.clone(),
                what,
            }),
            Ok(Err(error)) => Err(SshError::unreachable(&self.destination, error)),
            Err(_) => {
                // The next caller opens another connection.
                self.is_unresponsive.store(true, Ordering::Relaxed);
                Err(SshError::timed_out(
                    &self.destination,
                    "opening a channel",
                    CHANNEL_TIMEOUT,
                ))
            }
        }
    }

    /// Runs an operation in a task that continues if the caller is dropped. Boxed, because the
    /// compiler would otherwise prove in each method of a provider again that the future of the
    /// operation is `Send`: a third of this crate's compile time.
    fn run_detached<T: Send + 'static>(
        &self,
        step: impl Future<Output = Result<T, SshError>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, SshError>> {
        async move {
            let ran = self.tasks.spawn(step).await;
            ran.unwrap_or_else(|panic| Err(SshError::unreachable(&self.destination, panic)))
        }
        .boxed()
    }
}

/// Sends a command and its input, and collects its output until end of file and the exit code have
/// arrived.
async fn exec_and_collect(
    output: &mut ChannelReadHalf,
    control: &ChannelWriteHalf<Msg>,
    command: String,
    input: Bytes,
) -> Result<CommandOutput, russh::Error> {
    control.exec(true, command).await?;
    let feeding = async {
        // A command that does not read its input reports an error, or exits.
        let _ = control.data_bytes(input).await;
        let _ = control.eof().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = collect_output(output) => result,
        () = feeding => Ok(CommandOutput::default()),
    }
}

async fn collect_output(output: &mut ChannelReadHalf) -> Result<CommandOutput, russh::Error> {
    let mut result = CommandOutput::default();
    let mut is_whole = false;
    while let Some(message) = output.wait().await {
        match message {
            ChannelMsg::Data { data } => append_bounded(&mut result.stdout, &data),
            ChannelMsg::ExtendedData { data, .. } => append_bounded(&mut result.stderr, &data),
            ChannelMsg::ExitStatus { exit_status } => result.code = Some(exit_status),
            ChannelMsg::Eof => is_whole = true,
            ChannelMsg::Failure | ChannelMsg::Close => break,
            _ => {}
        }
        if is_whole && result.code.is_some() {
            break;
        }
    }
    // Neither output nor exit code: the connection broke, or the account has no usable shell.
    Ok(result)
}

/// Appends up to [`MAX_OUTPUT_BYTES`]. The parser detects a truncated reply, because its last line
/// is missing.
fn append_bounded(buffer: &mut Vec<u8>, data: &[u8]) {
    let room = MAX_OUTPUT_BYTES.saturating_sub(buffer.len());
    buffer.extend_from_slice(data.get(..room).unwrap_or(data));
}
