//! Keeps a sandbox's program from being another program to a browser. A page can send its visitor
//! to any name of this machine at the forwarded port, such as the one of `glovebox serve`, and
//! browsers send the cookies of a name to all ports.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum part of a connection that is searched for the header. Browsers send it first.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Response to a request that was sent to another name.
pub(super) const MISDIRECTED: &[u8] = b"HTTP/1.1 421 Misdirected Request\r\ncontent-type: text/plain\r\n\
    connection: close\r\n\r\nThis port of a sandbox has another name: open the address that `glovebox sandbox port` printed.\n";

/// A connection whose first request must not be to a name below `localhost` other than its own. A
/// browser sends all requests of a connection to one name.
pub(super) struct HostGuard<'a, S> {
    stream: S,
    own: &'a str,
    /// What was read, until it is certain which host it names.
    head: Vec<u8>,
    is_checked: bool,
    is_misdirected: bool,
}

impl<'a, S> HostGuard<'a, S> {
    pub(super) fn new(stream: S, own: &'a str) -> Self {
        Self {
            stream,
            own,
            head: Vec::new(),
            is_checked: false,
            is_misdirected: false,
        }
    }

    /// Returns the stream if its request was sent to another name.
    pub(super) fn into_misdirected(self) -> Option<S> {
        self.is_misdirected.then_some(self.stream)
    }

    fn check(&mut self, read: &[u8]) -> io::Result<()> {
        if self.is_checked {
            return Ok(());
        }
        self.head.extend_from_slice(read);
        let is_refused = match find_host(&self.head) {
            HostSearch::Incomplete if self.head.len() < MAX_HEAD_BYTES => return Ok(()),
            // A page can send its visitor to a long path.
            HostSearch::Incomplete => true,
            HostSearch::Found(host) => is_other_name(host, self.own),
            HostSearch::None => false,
        };
        if is_refused {
            self.is_misdirected = true;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.is_checked = true;
        self.head = Vec::new();
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum HostSearch<'a> {
    Incomplete,
    Found(&'a str),
    /// The bytes are no HTTP, or name no host.
    None,
}

/// Finds the host in the head of a request.
fn find_host(head: &[u8]) -> HostSearch<'_> {
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else {
        return HostSearch::Incomplete;
    };
    // A method.
    let letters = first.iter().take_while(|byte| byte.is_ascii_uppercase());
    let letters = letters.count();
    if letters < first.len() && (letters == 0 || first[letters] != b' ') {
        return HostSearch::None;
    }
    if !first.ends_with(b"\n") {
        return HostSearch::Incomplete;
    }
    // Commands of other protocols look like a method.
    if !first.windows(6).any(|window| window == b" HTTP/") {
        return HostSearch::None;
    }
    for line in lines {
        if !line.ends_with(b"\n") {
            break;
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return HostSearch::None;
        }
        let Some((name, value)) = line.split_at_checked("host:".len()) else {
            continue;
        };
        if name.eq_ignore_ascii_case(b"host:") {
            return match str::from_utf8(value.trim_ascii()) {
                Ok(host) => HostSearch::Found(host),
                Err(_) => HostSearch::None,
            };
        }
    }
    HostSearch::Incomplete
}

/// Whether a host, with or without a port, is a name of this machine that belongs to another
/// program.
fn is_other_name(host: &str, own: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.ends_with(".localhost") && name != own
}

impl<S: AsyncRead + Unpin> AsyncRead for HostGuard<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let checked = self.check(&buf.filled()[before..]);
        if checked.is_err() {
            buf.set_filled(before);
        }
        Poll::Ready(checked)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HostGuard<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[test]
    fn host_is_found_in_the_head_of_a_request() {
        for (head, expected) in [
            ("GE", HostSearch::Incomplete),
            ("GET / HTTP/1.1\r\nHost: a.localho", HostSearch::Incomplete),
            (
                "GET / HTTP/1.1\r\nx: y\r\nHOST:a.localhost:80\r\nCookie: c\r\n\r\n",
                HostSearch::Found("a.localhost:80"),
            ),
            ("GET / HTTP/1.1\r\nx: y\r\n\r\nhost: a", HostSearch::None),
            ("SSH-2.0-x\r\n", HostSearch::None),
            ("\u{16}\u{3}\u{1}", HostSearch::None),
        ] {
            assert_eq!(find_host(head.as_bytes()), expected, "{head}");
        }
        for (host, is_other) in [
            ("glovebox.localhost:3000", true),
            ("GLOVEBOX.localhost.:3000", true),
            ("sandbox-other.localhost", true),
            ("sandbox-box.localhost:3000", false),
            ("localhost:3000", false),
            ("127.0.0.1:3000", false),
            ("[::1]:3000", false),
            ("example.org", false),
        ] {
            assert_eq!(
                is_other_name(host, "sandbox-box.localhost"),
                is_other,
                "{host}"
            );
        }
    }

    #[tokio::test]
    async fn request_to_another_name_is_not_forwarded() {
        let own = "sandbox-box.localhost";
        let request = |host| format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: secret\r\n\r\n");
        let mut received = String::new();
        let allowed = request(own);
        HostGuard::new(allowed.as_bytes(), own)
            .read_to_string(&mut received)
            .await
            .unwrap();
        assert_eq!(received, allowed);

        let other = request("glovebox.localhost:3000");
        // However the request is split.
        for length in 1..other.len() {
            let parts = other.as_bytes()[..length].chain(&other.as_bytes()[length..]);
            let mut guard = HostGuard::new(parts, own);
            let mut received = Vec::new();
            assert!(guard.read_to_end(&mut received).await.is_err());
            assert!(!String::from_utf8_lossy(&received).contains("secret"));
            assert!(guard.into_misdirected().is_some());
        }
        let long = other.replace("GET /", &format!("GET /{}", "x".repeat(2 * MAX_HEAD_BYTES)));
        let mut guard = HostGuard::new(long.as_bytes(), own);
        assert!(guard.read_to_end(&mut Vec::new()).await.is_err());
    }
}
