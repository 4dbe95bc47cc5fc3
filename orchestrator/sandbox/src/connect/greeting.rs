//! The line that `action-server dial` writes before anything else.
//!
//! A missing program, a login shell's greeting or an engine's complaint arrive as bytes of the same stream. They end
//! here, as an error that quotes them, and never reach HTTP/2. Not a byte after the greeting is read.

use std::time::Duration;

use protocol::sandbox_api::DIAL_GREETING;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// How much of what came instead is quoted, in bytes.
const QUOTED_LENGTH: usize = 1024;

/// How long the rest of what came instead is waited for: it is text that was written at once.
const REST_WAIT: Duration = Duration::from_millis(200);

/// What came instead of the greeting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    /// The stream broke.
    #[error("reading the greeting of `action-server dial`")]
    Read(#[source] std::io::Error),
    /// The stream ended, or something else was on it: quoted, empty when nothing came.
    #[error("expected the greeting of `action-server dial`, got {0:?}")]
    Other(String),
}

/// Reads the greeting.
pub(crate) async fn expect_greeting(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), GreetingError> {
    let mut came = Vec::with_capacity(DIAL_GREETING.len());
    while came.len() < DIAL_GREETING.len() {
        let missing = (DIAL_GREETING.len() - came.len()) as u64;
        let read = stream.take(missing).read_buf(&mut came).await.map_err(GreetingError::Read)?;
        if read == 0 || !DIAL_GREETING.starts_with(&came) {
            let rest = (QUOTED_LENGTH - came.len()) as u64;
            // Whatever came until an end, an error or the wait's end is quoted.
            let _ = timeout(REST_WAIT, stream.take(rest).read_to_end(&mut came)).await;
            return Err(GreetingError::Other(String::from_utf8_lossy(&came).trim().to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::sandbox_api::DIAL_GREETING;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::{GreetingError, QUOTED_LENGTH, expect_greeting};

    #[tokio::test]
    async fn nothing_after_the_greeting_is_taken() {
        let (mut near, mut far) = duplex(64);
        for byte in DIAL_GREETING.iter().chain(b"PRI") {
            far.write_all(&[*byte]).await.unwrap();
        }
        drop(far);
        expect_greeting(&mut near).await.unwrap();
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"PRI");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_instead_is_quoted_and_bounded() {
        let cases: [(&[u8], &str); 3] = [
            (b"sh: action-server: not found\n", "sh: action-server: not found"),
            (b"glove", "glove"),
            (b"", ""),
        ];
        for (bytes, quoted) in cases {
            let mut stream = bytes;
            let error = expect_greeting(&mut stream).await.unwrap_err();
            assert!(matches!(error, GreetingError::Other(text) if text == quoted));
        }
        let (mut near, mut far) = duplex(1 << 16);
        far.write_all(&[b'x'; 1 << 15]).await.unwrap();
        match expect_greeting(&mut near).await.unwrap_err() {
            GreetingError::Other(text) => assert_eq!(text.len(), QUOTED_LENGTH),
            other => panic!("{other}"),
        }
    }
}
