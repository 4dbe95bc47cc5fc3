//! The name of this machine at which browsers sign in: `glovebox.localhost`.
//!
//! Browsers ignore ports when they send cookies. With a session at `localhost` or `127.0.0.1`, each
//! program that listens there would get it, such as a development server that an agent has written.
//! Sessions of connections without TLS thus exist only at a name of their own, which browsers
//! resolve to their machine. A program that listens on the machine can still send its visitors to
//! that name at its own port; `glovebox sandbox port` refuses such requests. Requests with a key
//! need no such name.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::base_path::BasePath;
use crate::client_address::Client;
use crate::cookies::{self, SESSION_COOKIE};
use crate::origin::{self, OWN_LOOPBACK_NAME};
use crate::state::ServerState;

/// Where browsers sign in. In the extensions of requests that were sent to a name that other
/// programs share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignInHost {
    /// `None` if the client has named none.
    port: Option<u16>,
}

impl SignInHost {
    /// Returns the address of a path of this server.
    pub(crate) fn url(self, base: &BasePath, path: &str) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("http://{OWN_LOOPBACK_NAME}{port}{base}{path}")
    }
}

/// Returns the address at which browsers of this machine open the page of a server without a
/// certificate.
pub fn page_url(port: u16, base: &BasePath) -> String {
    SignInHost { port: Some(port) }.url(base, "/")
}

/// Removes the session of a request that was sent to a name that other programs share.
pub(crate) async fn require(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_tls = Client::find(request.extensions()).is_some_and(|client| client.is_tls);
    let host = origin::host(request.uri(), request.headers())
        .filter(|host| state.allowed_hosts.is_shared(host));
    if let Some(host) = host.filter(|_| !is_tls) {
        cookies::remove(request.headers_mut(), &[SESSION_COOKIE]);
        request.extensions_mut().insert(SignInHost {
            port: host.port_u16(),
        });
    }
    next.run(request).await
}
