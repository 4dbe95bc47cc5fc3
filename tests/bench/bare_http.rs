//! The least that HTTP costs: axum on a unix socket that sends back what it gets, what a program writes, or what a terminal
//! says. A floor.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path};
use axum::routing::post;
use bytes::BytesMut;
use futures_util::{TryStreamExt as _, stream};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;

use super::server::Client;
use super::shell::BareTerminal;

/// Ended when it is dropped.
pub(crate) struct BareHttp {
    socket: PathBuf,
    server: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl BareHttp {
    /// To be called in a runtime of several threads.
    pub(crate) fn start() -> Self {
        Self::with_terminals(0)
    }

    /// With bare terminals, each to be asked at `/terminals/{number}`.
    pub(crate) fn with_terminals(count: usize) -> Self {
        let terminals: Arc<[_]> = (0..count).map(|_| Mutex::new(BareTerminal::start())).collect();
        let ask = async move |Path(number): Path<usize>, text: String| {
            tokio::task::block_in_place(|| terminals[number].lock().unwrap().ask(&text))
        };
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let router = Router::new().fallback(|body: Bytes| async move { body });
        let router = router
            .route("/pipe", post(pipe))
            .route("/held-pipe", post(held_pipe))
            .route("/terminals/{number}", post(ask))
            .layer(DefaultBodyLimit::disable());
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

/// The same, and what was sent is held: in a file without a name, which is written by other threads in the meantime.
async fn held_pipe(words: String) -> Body {
    let (held, pieces) = std::sync::mpsc::channel::<Bytes>();
    tokio::task::spawn_blocking(move || {
        let mut file = tempfile::tempfile().unwrap();
        pieces.iter().for_each(|piece| file.write_all(&piece).unwrap());
    });
    Body::from_stream(pipe(words).await.into_data_stream().inspect_ok(move |piece| {
        held.send(piece.clone()).unwrap();
    }))
}

impl Drop for BareHttp {
    fn drop(&mut self) {
        self.server.abort();
    }
}
