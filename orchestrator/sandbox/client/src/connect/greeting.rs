//! The first line of `action-server dial`.
//!
//! Errors of an engine or a shell, and messages of a login shell, arrive over the same stream. They
//! become an error that quotes them, and never reach HTTP/2. No byte after the greeting is read.

use std::time::Duration;

use protocol::sandbox_api::DIAL_GREETING;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Maximum length of quoted output.
const MAX_QUOTED_BYTES: usize = 1024;

/// Timeout for the rest of other output, which was usually written in one piece.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// Why no greeting was read.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The stream broke.
    #[error("cannot read the greeting of `action-server dial`")]
    Read(#[source] std::io::Error),
    /// The stream ended, or had other output, which is quoted. Empty if there was none.
    #[error("expected the greeting of `action-server dial`, got {0:?}")]
    Other(String),
}

/// Reads the greeting.
///
/// # Errors
/// [`GreetingError`] if the stream breaks, ends or has other output.
pub async fn expect_greeting(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), GreetingError> {
    let mut received = Vec::with_capacity(DIAL_GREETING.len());
    while received.len() < DIAL_GREETING.len() {
        let missing = (DIAL_GREETING.len() - received.len()) as u64;
        let read = stream
            .take(missing)
            .read_buf(&mut received)
            .await
            .map_err(GreetingError::Read)?;
        if read == 0 || !DIAL_GREETING.starts_with(&received) {
            let rest = (MAX_QUOTED_BYTES - received.len()) as u64;
            // Quotes all output until the end, an error or the timeout.
            let _ = timeout(OUTPUT_TIMEOUT, stream.take(rest).read_to_end(&mut received)).await;
            return Err(GreetingError::Other(
                String::from_utf8_lossy(&received).trim().to_owned(),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::sandbox_api::DIAL_GREETING;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::{GreetingError, MAX_QUOTED_BYTES, expect_greeting};

    #[tokio::test]
    async fn no_byte_after_the_greeting_is_read() {
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
    async fn other_output_is_quoted_and_truncated() {
        let cases: [(&[u8], &str); 3] = [
            (
                b"sh: action-server: not found\n",
                "sh: action-server: not found",
            ),
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
            GreetingError::Other(text) => assert_eq!(text.len(), MAX_QUOTED_BYTES),
            other => panic!("{other}"),
        }
    }
}
