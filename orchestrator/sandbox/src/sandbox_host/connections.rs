//! Accepts connections and serves each in a task of its own, until it ends or the host does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::clients::{Client, MAX_UNAUTHENTICATED, UnauthenticatedConnections};
use super::lingering::Lingering;
use super::{Shared, routes};

/// More wait in the socket's queue. A stream keeps none of these places: streams are counted by sandbox.
const MAX_CONNECTIONS: usize = 384 + MAX_UNAUTHENTICATED;

/// For the head of each request, so that silent and slow connections do not pile up.
const HEADER_WAIT: Duration = Duration::from_secs(15);

/// What is read of a request's head, in bytes; hyper wants at least 8 KiB.
const MAX_HEAD: usize = 64 << 10;

/// After an error of `accept`, which is nearly always that descriptors are short for the moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Never returns; dropping it stops accepting.
pub(super) async fn accept(shared: &Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut unauthenticated = UnauthenticatedConnections::default();
    let router = TowerToHyperService::new(routes::router(Arc::clone(shared)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let client = unauthenticated.add();
                shared.tasks.spawn(serve(Arc::clone(shared), router.clone(), stream, client, place));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    router: TowerToHyperService<Router>,
    stream: TcpStream,
    client: Arc<Client>,
    place: OwnedSemaphorePermit,
) {
    // Small frames must not wait for each other. A connection that is gone already fails later too.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|mut request: Request<Incoming>| {
        let client = Arc::clone(&client);
        request.extensions_mut().insert(Arc::clone(&client));
        let answer = router.call(request);
        async move {
            let response = answer.await.unwrap_or_else(|never| match never {});
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                client.end_at_once();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Lingering::new(stream, Arc::clone(&client))), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = client.closed() => return,
        () = shared.stop.cancelled() => {
            client.end_at_once();
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
