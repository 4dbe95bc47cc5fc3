//! Accepts connections, and serves each in its own task until it ends or the host shuts down.

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

/// Further connections wait in the socket's queue. Streams do not count: they are limited for each
/// sandbox.
const MAX_CONNECTIONS: usize = 384 + MAX_UNAUTHENTICATED;

/// Timeout for the head of each request, so that idle and slow connections do not accumulate.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum length of a request's head. hyper requires at least 8 KiB.
const MAX_REQUEST_HEAD_BYTES: usize = 64 << 10;

/// Delay after an error of `accept`, which usually means that there are no free descriptors at the
/// moment.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Never returns. Dropping the future stops accepting.
pub(super) async fn accept(shared: &Arc<Shared>, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut unauthenticated = UnauthenticatedConnections::default();
    let router = TowerToHyperService::new(routes::router(Arc::clone(shared)));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let client = unauthenticated.add();
                shared.tasks.spawn(serve(
                    Arc::clone(shared),
                    router.clone(),
                    stream,
                    client,
                    permit,
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    router: TowerToHyperService<Router>,
    stream: TcpStream,
    client: Arc<Client>,
    permit: OwnedSemaphorePermit,
) {
    // Otherwise small frames would be delayed. An error is ignored: a broken connection fails later
    // too.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|mut request: Request<Incoming>| {
        let client = Arc::clone(&client);
        request.extensions_mut().insert(Arc::clone(&client));
        let response = router.call(request);
        async move {
            let response = response.await.unwrap_or_else(|never| match never {});
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                client.skip_drain();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .max_buf_size(MAX_REQUEST_HEAD_BYTES)
        .serve_connection(
            TokioIo::new(Lingering::new(stream, Arc::clone(&client))),
            service,
        )
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = client.closed() => return,
        () = shared.stop.cancelled() => {
            client.skip_drain();
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // Not a warning: usually the client disconnected.
        tracing::debug!(%error, "a connection broke");
    }
    drop(permit);
}
