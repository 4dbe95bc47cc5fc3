//! Unauthenticated connections do not keep authenticated clients out of a sandbox-host.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tests::sandbox_contract::remote::{SECRET, SandboxHostBackend};

/// More than the server accepts.
const CONNECTIONS: usize = 600;

/// Shorter than the timeouts of the other connections, the shortest of which is 15 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);

const HALF_REQUESTS: [&[u8]; 5] = [
    b"",
    b"GET /li",
    b"POST /start HTTP/1.1\r\nhost: x\r\ncontent-le",
    b"POST /start HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(2 * RESPONSE_TIMEOUT)).unwrap();
    stream
}

fn list(address: SocketAddr) -> String {
    let mut stream = connect(address);
    let request = format!(
        "GET /list HTTP/1.1\r\nhost: x\r\nconnection: close\r\nX-API-Key: {SECRET}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_served_during_a_flood_of_a_sandbox_host() {
    let backend = SandboxHostBackend::over_local().unwrap();
    let address = backend.start_host(SandboxHostBackend::<
        tests::sandbox_contract::local::LocalBackend,
    >::host_config());
    let scene = tokio::task::spawn_blocking(move || {
        for beginning in HALF_REQUESTS {
            let mut flood = Vec::new();
            for number in 0..CONNECTIONS {
                let mut stream = connect(address);
                // The server closes the oldest connections meanwhile.
                let _ = stream.write_all(beginning);
                flood.push(stream);
                if number % 200 == 199 {
                    let (asked, answer) = (Instant::now(), list(address));
                    let beginning = String::from_utf8_lossy(beginning);
                    assert!(answer.starts_with("HTTP/1.1 200"), "{beginning}: {answer}");
                    assert!(
                        asked.elapsed() < RESPONSE_TIMEOUT,
                        "{beginning}: {:?}",
                        asked.elapsed()
                    );
                }
            }
        }
    });
    scene.await.unwrap();
}

/// The client sends its whole body before it reads. It must receive the response and not a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_refusal_reaches_a_client_that_still_sends() {
    let backend = SandboxHostBackend::over_local().unwrap();
    let address = backend.start_host(SandboxHostBackend::<
        tests::sandbox_contract::local::LocalBackend,
    >::host_config());
    let scene = tokio::task::spawn_blocking(move || {
        for (path, status) in [
            ("/start", "403"),
            ("/sandboxes/glovebox-c/v1/files?path=/a", "403"),
            ("/no", "404"),
        ] {
            let (mut stream, body) = (connect(address), vec![b'x'; 8 << 20]);
            let length = body.len();
            let head =
                format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
                .write_all(&body)
                .unwrap_or_else(|error| panic!("{path}: {error}"));
            let mut answer = [0; 12];
            stream
                .read_exact(&mut answer)
                .unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(
                String::from_utf8_lossy(&answer),
                format!("HTTP/1.1 {status}"),
                "{path}"
            );
        }
    });
    scene.await.unwrap();
}
