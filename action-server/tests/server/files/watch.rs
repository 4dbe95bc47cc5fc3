//! Watches: changes reported to a client.

use std::fs;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use protocol::sandbox_api::WatchEvent;
use tokio::net::UnixStream;

use crate::harness::{TEST_TIMEOUT, TestServer};

pub(super) struct WatchStream {
    response: Response<Incoming>,
    read: Vec<u8>,
    _client: http1::SendRequest<Full<bytes::Bytes>>,
}

impl WatchStream {
    pub(super) async fn open(server: &TestServer, query: &str) -> Self {
        let stream = TokioIo::new(UnixStream::connect(server.socket()).await.unwrap());
        let (mut client, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("/v1/files/watch?{query}")).header("host", "s");
        let response = client
            .send_request(request.body(Full::default()).unwrap())
            .await
            .unwrap();
        Self {
            response,
            read: Vec::new(),
            _client: client,
        }
    }

    /// Returns the next event. `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(TEST_TIMEOUT, self.response.body_mut().frame())
                .await
                .unwrap();
            self.read
                .extend_from_slice(frame?.unwrap().data_ref().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_reported_as_they_happen() {
    let server = TestServer::start();
    fs::create_dir_all(server.file("watched/sub")).unwrap();
    let mut watch = WatchStream::open(&server, "path=watched&recursive=true").await;
    assert_eq!(watch.response.status(), 200);
    fs::write(server.file("watched/sub/f"), "").unwrap();
    assert_eq!(
        watch.next().await,
        Some(WatchEvent::Created {
            path: "sub/f".into()
        })
    );
    fs::rename(server.file("watched/sub/f"), server.file("watched/g")).unwrap();
    assert_eq!(
        watch.next().await,
        Some(WatchEvent::Moved {
            from: "sub/f".into(),
            path: "g".into()
        })
    );
    // The target outside of the watched folder is not reported.
    fs::rename(server.file("watched/g"), server.file("g")).unwrap();
    assert_eq!(
        watch.next().await,
        Some(WatchEvent::Removed { path: "g".into() })
    );
    fs::remove_dir_all(server.file("watched")).unwrap();
    let mut last = None;
    while let Some(event) = watch.next().await {
        last = Some(event);
    }
    assert_eq!(
        last,
        Some(WatchEvent::Removed {
            path: String::new()
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_limited_and_end_with_their_clients() {
    let server = TestServer::start();
    let mut watches = Vec::new();
    for _ in 0..16 {
        watches.push(WatchStream::open(&server, "path=").await);
    }
    assert_eq!(
        WatchStream::open(&server, "path=").await.response.status(),
        429
    );
    drop(watches);
    while WatchStream::open(&server, "path=").await.response.status() == 429 {}
    assert_eq!(
        WatchStream::open(&server, "path=missing")
            .await
            .response
            .status(),
        404
    );
}
