//! Accepts connections and serves each in a task of its own, until it ends or the host does.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::{Shared, routes};

/// More wait in the socket's queue. A stream keeps none of these places: streams are counted by sandbox.
const MAX_CONNECTIONS: usize = 512;

/// For the head of each request, so that silent and slow connections do not pile up.
const HEADER_WAIT: Duration = Duration::from_secs(15);

/// What is read of a request's head, in bytes; hyper wants at least 8 KiB.
const MAX_HEAD: usize = 64 << 10;

/// After an error of `accept`, which is nearly always that descriptors are short for the moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Never returns; dropping it stops accepting.
pub(super) async fn accept(shared: &Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(shared.tasks.spawn(serve(Arc::clone(shared), stream, place))),
            Err(error) => {
                tracing::warn!(%error, "accepting a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, place: OwnedSemaphorePermit) {
    // Small frames must not wait for each other. A connection that is gone already fails later too.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(routes::router(Arc::clone(&shared)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), router)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shared.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that goes away in the middle is no fault of ours.
        tracing::debug!(%error, "a connection has failed");
    }
    drop(place);
}
