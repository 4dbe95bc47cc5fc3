//! Services of systemd for `glovebox serve`: the socket that it opens, and the notification that
//! the server is ready.

use std::net::{SocketAddr, TcpListener as StdListener};

use anyhow::Context as _;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::net::TcpListener;

use crate::exit::UsageError;

/// Returns the socket that systemd has passed to this process. `None` if it has not. Changes the
/// environment, so it must be called before other tasks start.
pub(super) fn inherited_socket() -> anyhow::Result<Option<StdListener>> {
    // Closes the socket in programs that this one starts.
    let mut sockets = ListenFd::from_env();
    if sockets.len() > 1 {
        let text =
            "systemd has passed several sockets: the server has one, so name one in ListenStream=";
        return Err(UsageError(text.to_owned()).into());
    }
    if sockets.len() == 0 {
        return Ok(None);
    }
    let socket = sockets.take_tcp_listener(0);
    socket.map_err(|error| UsageError(format!("cannot use the socket of systemd: {error}")).into())
}

/// Returns the inherited socket, or binds a new one.
pub(super) async fn listen(
    inherited: Option<StdListener>,
    address: SocketAddr,
) -> anyhow::Result<TcpListener> {
    match inherited {
        Some(socket) => to_listener(socket).context("cannot use the socket of systemd"),
        None => {
            let listener = TcpListener::bind(address).await;
            listener.with_context(|| format!("cannot listen on {address}: choose another --listen"))
        }
    }
}

/// Converts a socket for asynchronous use.
fn to_listener(socket: StdListener) -> std::io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Reports to systemd that the server accepts connections. Does nothing without systemd.
pub(super) fn notify_ready() {
    notify(NotifyState::Ready);
}

/// Reports to systemd that the server shuts down.
pub(super) fn notify_stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
