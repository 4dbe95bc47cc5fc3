//! Request bodies with a minimum rate. A body that stalls or is too slow is an error, so that its
//! request does not block others.
//!
//! Not used for input of processes, files and folders, which may come from a person or another slow
//! source.

use std::io;
use std::time::Duration;

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout_at};

/// Maximum time without a byte, and until the rate is measured.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Minimum average rate. A slow line has ten times as much.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// Wraps a body so that it fails when it stalls or is too slow.
pub(crate) fn paced(body: Body) -> Body {
    let (pieces, started) = (body.into_data_stream(), Instant::now());
    Body::from_stream(stream::try_unfold(
        (pieces, 0),
        move |(mut pieces, bytes)| async move {
            let rate = started + STALL_TIMEOUT + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND);
            let deadline = rate.min(Instant::now() + STALL_TIMEOUT);
            match timeout_at(deadline, pieces.next()).await {
                Ok(None) => Ok(None),
                Ok(Some(Ok(piece))) => {
                    let bytes = bytes + piece.len() as u64;
                    Ok(Some((piece, (pieces, bytes))))
                }
                Ok(Some(Err(error))) => Err(io::Error::other(error)),
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the body is received too slowly",
                )),
            }
        },
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;
    use http_body_util::BodyExt as _;
    use tokio::time::sleep;

    use super::*;

    /// A body of `pieces` pieces of 1 KiB, with a pause before each.
    fn slow(pieces: u32, pause: Duration) -> Body {
        let pieces = stream::iter(0..pieces).then(move |_| async move {
            sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 10]))
        });
        Body::from_stream(pieces)
    }

    #[tokio::test(start_paused = true)]
    async fn body_fails_when_it_stalls_or_is_too_slow() {
        let started = Instant::now();
        let whole = paced(slow(4000, Duration::from_millis(20)))
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert_eq!(whole.len(), 4000 << 10);
        assert_eq!(started.elapsed(), Duration::from_secs(80));
        for pause in [Duration::from_secs(1), Duration::from_secs(3600)] {
            let started = Instant::now();
            assert!(paced(slow(4000, pause)).collect().await.is_err());
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{:?}",
                started.elapsed()
            );
        }
    }
}
