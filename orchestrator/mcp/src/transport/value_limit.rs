//! Ends the output of a server's program at a message with too many values, which would take a
//! hundred times its length in memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol::untrusted_json::{MAX_VALUES, ValueCounter};
use tokio::io::{AsyncRead, ReadBuf};

/// The output of a program, one message per line.
pub(super) struct ValueLimit<R> {
    output: R,
    /// Values of the line so far.
    line: ValueCounter,
}

impl<R> ValueLimit<R> {
    pub(super) fn new(output: R) -> Self {
        Self {
            output,
            line: ValueCounter::default(),
        }
    }

    /// Whether the lines that a part continues have few enough values.
    fn allows(&mut self, part: &[u8]) -> bool {
        part.split_inclusive(|byte| *byte == b'\n').all(|piece| {
            let count = self.line.add(piece.iter().copied());
            if piece.ends_with(b"\n") {
                self.line = ValueCounter::default();
            }
            count <= MAX_VALUES
        })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ValueLimit<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.output).poll_read(context, buffer))?;
        if self.allows(&buffer.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        buffer.set_filled(before);
        let text = format!("it sent a message with more than {MAX_VALUES} values");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(text: &str) -> io::Result<usize> {
        let mut whole = Vec::new();
        ValueLimit::new(text.as_bytes())
            .read_to_end(&mut whole)
            .await
    }

    #[tokio::test]
    async fn values_of_each_line_are_bounded() {
        let half = format!("[{}0]\n", "[],".repeat(MAX_VALUES / 4));
        let lines = half.repeat(8);
        assert_eq!(read(&lines).await.unwrap(), lines.len());
        let error = read(&half.replace('\n', ",").repeat(8)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "it sent a message with more than 100000 values"
        );
    }
}
