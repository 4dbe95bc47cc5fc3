//! Request bodies with a minimum rate: one that stalls, or arrives a byte at a time, fails. Only
//! the time counts in which the server waits for the client.
//!
//! Not only tower-http's timeout of bodies, which starts again with each byte.

use std::error::Error;
use std::io;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};

/// Maximum time without a byte, and until the rate is measured.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum average rate. A slow line has ten times as much.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// Wraps the body of a request so that it fails if it stalls or is too slow.
pub(crate) fn paced(body: Body) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let start = (body.into_data_stream(), 0, Duration::ZERO);
    Body::from_stream(stream::try_unfold(
        start,
        |(mut frames, bytes, waited)| async move {
            let max_wait = STALL_TIMEOUT + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND);
            let started = Instant::now();
            match timeout(
                STALL_TIMEOUT.min(max_wait.saturating_sub(waited)),
                frames.next(),
            )
            .await
            {
                Ok(None) => Ok(None),
                Ok(Some(Ok(frame))) => {
                    let next = (
                        frames,
                        bytes + frame.len() as u64,
                        waited + started.elapsed(),
                    );
                    Ok(Some((frame, next)))
                }
                Ok(Some(Err(error))) => Err(io::Error::other(error)),
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the body arrives too slowly",
                )),
            }
        },
    ))
}

/// Whether a body, or what reads it, has failed because it was too slow.
pub(crate) fn is_too_slow(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::{Bytes, to_bytes};
    use tokio::time::sleep;

    use super::*;

    /// A body of `count` frames of 1 KiB, with a pause before each.
    fn slow(count: u32, pause: Duration) -> Body {
        let frames = stream::iter(0..count).then(move |_| async move {
            sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 10]))
        });
        Body::from_stream(frames)
    }

    #[tokio::test(start_paused = true)]
    async fn body_fails_if_it_stalls_or_is_too_slow() {
        let started = Instant::now();
        let whole = to_bytes(paced(slow(4000, Duration::from_millis(20))), usize::MAX)
            .await
            .unwrap();
        assert_eq!(whole.len(), 4000 << 10);
        assert_eq!(
            started.elapsed(),
            Duration::from_secs(80),
            "a slow line has its time"
        );
        for pause in [Duration::from_secs(1), Duration::from_secs(3600)] {
            let started = Instant::now();
            let error = to_bytes(paced(slow(4000, pause)), usize::MAX)
                .await
                .unwrap_err();
            assert!(is_too_slow(&error), "{error:?}");
            assert!(
                started.elapsed() < Duration::from_secs(40),
                "{:?}",
                started.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_a_slow_reader_does_not_count() {
        let mut frames = paced(slow(10, Duration::from_millis(20))).into_data_stream();
        for _ in 0..10 {
            sleep(Duration::from_mins(1)).await;
            frames.next().await.unwrap().unwrap();
        }
        assert!(frames.next().await.is_none());
    }
}
