//! Programs in a sandbox that listen on a port.

use std::net::TcpListener;

use reqwest::Method;
use reqwest::header::{ACCESS_CONTROL_ALLOW_ORIGIN, LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish};
use tests::host_server::{HostServer, is_state};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::skip::skip_without;

/// A program that returns the headers that it receives, and echoes one message of a WebSocket. On a
/// second port it speaks another protocol.
const PROGRAM: &str = r"
import base64, hashlib, http.server, json, socket, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def respond(self, status, body, headers):
        self.send_response(status)
        for name, value in headers + [('Content-Length', str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == '/' and len(self.headers) == 1:
            # A request of the server itself. The connection ends with the answer.
            return self.respond(302, b'', [('Location', '/login'), ('Connection', 'close')])
        if self.path == '/echo':
            return self.echo()
        if self.path == '/leave':
            return self.respond(302, b'', [('Location', 'http://' + self.headers['Host'] + '/next')])
        body = self.rfile.read(int(self.headers.get('Content-Length', 0))).decode()
        received = {name.lower(): value for name, value in self.headers.items()}
        received.update(body=body, path=self.path)
        cookies = [('Set-Cookie', 'own=1'), ('Set-Cookie', 'wide=1; Domain=localhost')]
        self.respond(200, json.dumps(received).encode(), cookies)

    do_POST = do_GET

    def echo(self):
        key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        self.send_response(101)
        self.send_header('Connection', 'upgrade')
        self.send_header('Upgrade', 'websocket')
        self.send_header('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        frame = self.rfile.read(7)
        self.wfile.write(b'\x81\x01' + bytes([frame[6] ^ frame[2]]))
        self.rfile.read(1)

def greet(listener):
    while True:
        listener.accept()[0].sendall(b'220 ready\r\n')

threading.Thread(target=greet, args=[socket.create_server(('127.0.0.1', int(sys.argv[2])))], daemon=True).start()
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// A server with a conversation whose agent has started the program, and the link to it.
pub(super) struct Running {
    pub(super) server: HostServer,
    pub(super) conversation: String,
    pub(super) link: String,
    /// The link to its second port.
    other_link: String,
}

async fn start(home: &Home) -> Option<Running> {
    start_as(home, |server| server.key.clone()).await
}

/// Starts a server, and a conversation with a key, which then is that of all requests. `None`, and
/// the test is skipped, without Python.
pub(super) async fn start_as(
    home: &Home,
    find_key: impl FnOnce(&HostServer) -> String,
) -> Option<Running> {
    if skip_without("python3") {
        return None;
    }
    let free = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = free.map(|listener| listener.local_addr().unwrap().port());
    let [port, other] = ports;
    let command = format!(
        "cat >serve.py <<'END'\n{PROGRAM}\nEND\n/usr/bin/python3 serve.py {port} {other} >log 2>&1 &"
    );
    let mut server = HostServer::start(home, &home.script(&json!([bash(&command), finish()])), &[]);
    server.key = find_key(&server);
    let conversation = server.create("Serve.").await;
    server
        .wait_for_event(&conversation, |event| is_state(event, "finished"))
        .await;
    let path = format!("/api/conversations/{conversation}/web-hosts");
    let find = async {
        loop {
            let response = server.get(&path).await;
            let hosts = response["hosts"].as_object().unwrap().clone();
            let links = ports.map(|port| {
                let mut hosts = hosts.iter();
                let found = hosts.find(|(_, listening)| **listening == port);
                found.map(|(link, _)| link.clone())
            });
            if let [Some(link), Some(other_link)] = links {
                return (link, other_link);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let (link, other_link) = tokio::time::timeout(TEST_TIMEOUT, find)
        .await
        .expect("the program listens");
    Some(Running {
        server,
        conversation,
        link,
        other_link,
    })
}

impl Running {
    /// The host name of the port, with the port of the server.
    fn host(&self) -> &str {
        self.link
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap()
    }

    /// Starts a request to the port. Its name is not resolved: the test machine may know no names
    /// below localhost.
    pub(super) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.server
            .request_without_key(method, path)
            .header("Host", self.host())
    }

    /// Follows the link as a browser does. Returns the cookie.
    pub(super) async fn open(&self) -> String {
        let path = self.link.split_once(self.host()).unwrap().1;
        let response = self.request(Method::GET, path).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/".parse().unwrap())
        );
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
        assert!(
            cookie.contains("; HttpOnly; SameSite=None; Partitioned; Secure; "),
            "{cookie}"
        );
        cookie.split(';').next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn program_is_reached_through_its_link() {
    let home = Home::new();
    let Some(running) = start(&home).await else {
        return;
    };
    let host = running.host();
    assert!(
        host.contains(&format!("-{}.localhost:", running.conversation)),
        "{host}"
    );
    assert_eq!(
        running
            .request(Method::GET, "/")
            .send()
            .await
            .unwrap()
            .status(),
        401
    );
    let cookie = running.open().await;

    let request = running
        .request(Method::POST, "/a?b=c")
        .header("Cookie", format!("{cookie}; x=1"));
    let request = request
        .header("Origin", format!("http://{host}"))
        .body("text");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("content-security-policy"));
    let cookies: Vec<_> = response.headers().get_all(SET_COOKIE).iter().collect();
    assert_eq!(cookies, ["own=1"]);
    let received: Value = response.json().await.unwrap();
    let local = format!("localhost:{}", host.split('-').next().unwrap());
    assert_eq!(
        (&received["body"], &received["path"]),
        (&json!("text"), &json!("/a?b=c"))
    );
    assert_eq!(
        (&received["host"], &received["origin"]),
        (&json!(local), &json!(format!("http://{local}")))
    );
    assert_eq!(
        (&received["cookie"], &received["x-forwarded-host"]),
        (&json!("x=1"), &json!(host))
    );

    let with_key = running
        .request(Method::GET, "/")
        .header("X-Session-API-Key", &running.server.key);
    let received: Value = with_key.send().await.unwrap().json().await.unwrap();
    assert_eq!(received["x-session-api-key"], Value::Null);
    let left = running
        .request(Method::GET, "/leave")
        .header("Cookie", &cookie)
        .send()
        .await
        .unwrap();
    assert_eq!(left.headers()[LOCATION], format!("http://{host}/next"));

    let address = running.server.url.strip_prefix("http://").unwrap();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /echo HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {cookie}\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    // After the head, a masked frame with the text `a`.
    socket
        .write_all(&[head.as_bytes(), b"\x81\x81\0\0\0\0a"].concat())
        .await
        .unwrap();
    let mut received = Vec::new();
    let echoed = async {
        while !received.ends_with(b"\x81\x01a") {
            assert_ne!(
                socket.read_buf(&mut received).await.unwrap(),
                0,
                "{received:?}"
            );
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, echoed)
        .await
        .expect("the message is echoed");
    // The key of RFC 6455's example.
    let head = String::from_utf8_lossy(&received).to_lowercase();
    assert!(
        head.starts_with("http/1.1 101") && head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{head}"
    );
}

/// Before the page shows a link in a frame, with a slash behind it, it asks from its own origin
/// whether the link works.
#[tokio::test]
async fn v0s_page_finds_that_a_link_works() {
    let home = Home::new();
    let Some(running) = start(&home).await else {
        return;
    };
    let path = running.link.split_once(running.host()).unwrap().1;
    let ask = |path: &str| {
        running
            .request(Method::GET, path)
            .header("Origin", &running.server.url)
            .send()
    };
    let answer = ask(path).await.unwrap();
    assert_eq!(answer.status(), 204);
    assert_eq!(
        answer.headers()[ACCESS_CONTROL_ALLOW_ORIGIN],
        running.server.url.as_str()
    );
    assert!(!answer.headers().contains_key(SET_COOKIE) && answer.bytes().await.unwrap().is_empty());
    for path in ["/", &path.replace("token=", "token=x")] {
        let refused = ask(path).await.unwrap();
        assert_eq!(refused.status(), 403);
        assert!(!refused.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
    }
    let shown = running
        .request(Method::GET, &format!("{path}/"))
        .send()
        .await
        .unwrap();
    assert_eq!(shown.status(), 303);
    // The page shows the first link that works.
    let other = Running {
        link: running.other_link.clone(),
        ..running
    };
    let path = other.link.split_once(other.host()).unwrap().1;
    let answer = other.request(Method::GET, path);
    let answer = answer.header("Origin", &other.server.url).send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 502);
    let text = answer.text().await.unwrap();
    assert!(text.contains("cannot forward the request"), "{text}");
}

#[tokio::test]
async fn port_is_closed_to_others() {
    let home = Home::new();
    let Some(running) = start(&home).await else {
        return;
    };
    let cookie = running.open().await;
    let get = || running.request(Method::GET, "/").header("Cookie", &cookie);
    assert_eq!(
        get()
            .header("Origin", "http://evil.example")
            .send()
            .await
            .unwrap()
            .status(),
        403
    );
    assert_eq!(
        get()
            .header("Origin", &running.server.url)
            .send()
            .await
            .unwrap()
            .status(),
        403
    );
    // A page of another port may link to the port, and show it in a frame, but not run its scripts.
    let from_other = |mode| {
        get()
            .header("Sec-Fetch-Site", "same-site")
            .header("Sec-Fetch-Mode", mode)
    };
    assert_eq!(from_other("no-cors").send().await.unwrap().status(), 403);
    assert_eq!(from_other("navigate").send().await.unwrap().status(), 200);
    // The cookie of one port opens no other, and nothing of the API.
    let other = format!("1-{}.localhost", running.conversation);
    let request = running
        .server
        .request_without_key(Method::GET, "/")
        .header("Host", &other);
    assert_eq!(
        request
            .header("Cookie", &cookie)
            .send()
            .await
            .unwrap()
            .status(),
        401
    );
    let api = running
        .server
        .request_without_key(Method::GET, "/api/conversations")
        .header("Cookie", &cookie);
    assert_eq!(api.send().await.unwrap().status(), 401);
    // A page of the port sends its origin.
    let api = running.server.request(Method::GET, "/api/conversations");
    let origin = format!("http://{}", running.host());
    assert_eq!(
        api.header("Origin", origin).send().await.unwrap().status(),
        403
    );

    // The program gets no token, also none that has expired.
    let again = running
        .request(Method::GET, "/a?glovebox-token=old&x=1")
        .header("Cookie", &cookie);
    let again = again.send().await.unwrap();
    assert_eq!(
        (
            again.status().as_u16(),
            again.headers()[LOCATION].to_str().unwrap()
        ),
        (303, "/a?x=1")
    );
    // A page of the program must not lock its visitor's address out.
    for header in ["Origin", "Sec-Fetch-Site"] {
        let value = if header == "Origin" {
            format!("http://{}", running.host())
        } else {
            "same-origin".to_owned()
        };
        for _ in 0..12 {
            let wrong = running.request(Method::GET, "/x").header(header, &value);
            assert_eq!(
                wrong
                    .header("X-Session-API-Key", "wrong")
                    .send()
                    .await
                    .unwrap()
                    .status(),
                401
            );
        }
    }

    let nothing = running
        .server
        .request(Method::GET, "/")
        .header("Host", &other)
        .send()
        .await
        .unwrap();
    let status = nothing.status().as_u16();
    let error: Value = nothing.json().await.unwrap();
    assert_eq!(
        (status, &error["msg_id"]),
        (502, &json!("SANDBOX$UNREACHABLE")),
        "{error}"
    );
    running
        .server
        .post(
            &format!("/api/conversations/{}/stop", running.conversation),
            &json!({}),
        )
        .await;
    assert_eq!(get().send().await.unwrap().status(), 409);
    let path = format!("/api/conversations/{}/web-hosts", running.conversation);
    assert_eq!(running.server.get(&path).await, json!({"hosts": {}}));
    assert_eq!(
        running
            .server
            .send(Method::GET, "/api/conversations/none/web-hosts", None)
            .await
            .0,
        404
    );
}
