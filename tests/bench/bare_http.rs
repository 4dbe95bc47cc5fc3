//! A floor: axum on a unix socket that returns the request, the output of a program or the output
//! of a terminal.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path};
use axum::routing::post;
use bytes::BytesMut;
use futures_util::{TryStreamExt as _, stream};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Mutex, oneshot};

use super::server::HttpClient;
use super::shell::{AsyncTerminal, BareTerminal};

/// A running server, stopped on drop.
pub(crate) struct BareHttp {
    socket: PathBuf,
    /// Taken on drop.
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    _folder: tempfile::TempDir,
}

impl BareHttp {
    pub(crate) fn start() -> Self {
        Self::with_terminals(0)
    }

    /// Starts a server with bare terminals at `/terminals/{number}`. It has one thread, as the
    /// action server does, because a request that moves to another thread waits for its wake-up.
    pub(crate) fn with_terminals(count: usize) -> Self {
        let terminals: Vec<_> = (0..count).map(|_| BareTerminal::start()).collect();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                let terminals = terminals
                    .into_iter()
                    .map(|terminal| Mutex::new(terminal.into_async()));
                let serving = axum::serve(listener, router(terminals.collect()));
                tokio::select! {
                    served = serving => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self {
            socket,
            server: Some((stop, server)),
            _folder: folder,
        }
    }

    pub(crate) fn connect(&self) -> HttpClient {
        HttpClient::connect(&self.socket).unwrap()
    }
}

fn router(terminals: Arc<[Mutex<AsyncTerminal>]>) -> Router {
    let ask = async move |Path(number): Path<usize>, text: String| {
        terminals[number].lock().await.ask(&text).await
    };
    Router::new()
        .fallback(|body: Bytes| async move { body })
        .route("/pipe", post(pipe))
        .route("/held-pipe", post(held_pipe))
        .route("/terminals/{number}", post(ask))
        .layer(DefaultBodyLimit::disable())
}

/// Runs the program in the body and forwards its output in reads of a pipe's capacity.
async fn pipe(words: String) -> Body {
    let mut words = words.split(' ');
    let mut program = tokio::process::Command::new(words.next().unwrap());
    let program = program
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut program = program.spawn().unwrap();
    let output = program.stdout.take().unwrap();
    Body::from_stream(stream::unfold(
        (program, output),
        async |(mut program, mut output)| {
            let mut piece = BytesMut::with_capacity(64 << 10);
            match output.read_buf(&mut piece).await {
                Ok(0) => {
                    program.wait().await.unwrap();
                    None
                }
                read => Some((read.map(|_| piece.freeze()), (program, output))),
            }
        },
    ))
}

/// Like [`pipe`], and stores the output in an unnamed file, which other threads write.
async fn held_pipe(words: String) -> Body {
    let (held, pieces) = std::sync::mpsc::channel::<Bytes>();
    tokio::task::spawn_blocking(move || {
        let mut file = tempfile::tempfile().unwrap();
        pieces
            .iter()
            .for_each(|piece| file.write_all(&piece).unwrap());
    });
    Body::from_stream(
        pipe(words)
            .await
            .into_data_stream()
            .inspect_ok(move |piece| {
                held.send(piece.clone()).unwrap();
            }),
    )
}

impl Drop for BareHttp {
    fn drop(&mut self) {
        if let Some((stop, server)) = self.server.take() {
            drop(stop);
            let _ = server.join();
        }
    }
}
