//! The least that HTTP costs: axum on a unix socket that sends back what it gets. A floor.

use std::path::PathBuf;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use tokio::task::JoinHandle;

use super::server::Client;

/// Ended when it is dropped.
pub(crate) struct BareHttp {
    socket: PathBuf,
    server: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl BareHttp {
    /// To be called in a runtime.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let router = Router::new().fallback(|body: Bytes| async move { body });
        let router = router.layer(DefaultBodyLimit::disable());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { socket, server, _folder: folder }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket).unwrap()
    }
}

impl Drop for BareHttp {
    fn drop(&mut self) {
        self.server.abort();
    }
}
