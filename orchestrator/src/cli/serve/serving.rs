//! The life of a server that is set up: it serves until an interrupt, and then ends in order.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conversations::HostedConversations;
use server::Server;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::certificate::Certificate;
use super::systemd;
use crate::cli::interrupts::Interrupts;
use crate::cli::print;
use crate::compose::Stores;
use crate::exit::Exit;

/// Time for conversations to close when the server ends. What is not closed by then is recovered as
/// after a crash.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// What an ending server waits for.
const STOPPING: &str =
    "open requests and calls of models and tool servers; interrupt again to exit immediately";

/// A server that is set up.
pub(super) struct Serving {
    pub(super) server: Server,
    pub(super) listener: TcpListener,
    /// `None` to serve plain HTTP.
    pub(super) certificate: Option<Certificate>,
    pub(super) conversations: Arc<HostedConversations>,
    pub(super) stores: Stores,
    pub(super) interrupts: Interrupts,
    /// Maximum time for calls in flight to end.
    pub(super) drain_timeout: Duration,
}

impl Serving {
    /// Serves until an interrupt, then closes the conversations. A second interrupt ends that.
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let Self {
            server,
            listener,
            mut certificate,
            conversations,
            stores,
            mut interrupts,
            drain_timeout,
        } = self;
        let tls = certificate
            .as_ref()
            .map(Certificate::server_config)
            .transpose()?;
        let shutdown = CancellationToken::new();
        let mut serving = std::pin::pin!(server.serve(listener, tls, shutdown.clone()));
        systemd::notify_ready();
        tokio::select! {
            () = &mut serving => {}
            never = resume_interrupted(&conversations, stores.takeover_interval()) => match never {},
            never = reload_when_changed(&mut certificate) => match never {},
            () = interrupts.next() => shutdown.cancel(),
        }
        systemd::notify_stopping();
        let ending = end(serving, &conversations, stores, drain_timeout);
        let ending = print::with_notice(STOPPING, ending);
        tokio::select! {
            () = ending => Ok(Exit::Finished),
            () = interrupts.next() => Ok(Exit::Interrupted),
        }
    }
}

/// Lets the calls in flight and the open requests end, then closes the conversations and the
/// stores.
async fn end(
    serving: Pin<&mut impl Future<Output = ()>>,
    conversations: &HostedConversations,
    stores: Stores,
    drain_timeout: Duration,
) {
    let drained = async { tokio::join!(serving, conversations.drain()) };
    if timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!("closing conversations that call a model or a tool server");
    }
    let closed = async {
        conversations.shut_down().await;
        stores.close().await;
    };
    if timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::warn!("ending before all conversations are closed");
    }
}

/// Resumes the conversations of an earlier process, those of other hosts that ended, and those that
/// a full disk has stopped. Never returns.
async fn resume_interrupted(
    conversations: &Arc<HostedConversations>,
    takeover_interval: Option<Duration>,
) -> Infallible {
    conversations.resume_interrupted(takeover_interval).await;
    conversations.resume_failed().await
}

/// Replaces the certificate when its files change. Never returns.
async fn reload_when_changed(certificate: &mut Option<Certificate>) -> Infallible {
    match certificate {
        Some(certificate) => certificate.reload_when_changed().await,
        None => std::future::pending().await,
    }
}
