//! The least that HTTP costs: axum on a unix socket that sends back what it gets, or what a program writes. A floor.

use std::path::PathBuf;
use std::process::Stdio;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use bytes::BytesMut;
use futures_util::stream;
use tokio::io::AsyncReadExt as _;
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
        let router = router.route("/pipe", post(pipe)).layer(DefaultBodyLimit::disable());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { socket, server, _folder: folder }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket).unwrap()
    }
}

/// What a program writes, its words the body's: read as much at once as a pipe holds, and sent on as it is.
async fn pipe(words: String) -> Body {
    let mut words = words.split(' ');
    let mut program = tokio::process::Command::new(words.next().unwrap());
    let program = program.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut program = program.spawn().unwrap();
    let output = program.stdout.take().unwrap();
    Body::from_stream(stream::unfold((program, output), async |(mut program, mut output)| {
        let mut piece = BytesMut::with_capacity(64 << 10);
        match output.read_buf(&mut piece).await {
            Ok(0) => {
                program.wait().await.unwrap();
                None
            }
            read => Some((read.map(|_| piece.freeze()), (program, output))),
        }
    }))
}

impl Drop for BareHttp {
    fn drop(&mut self) {
        self.server.abort();
    }
}
