//! Work whose cost a client, a model or a sandbox decides. It runs on blocking threads, so that it
//! delays no other request, and each user has a maximum of it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use accounts::Caller;
use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Response};
use conversations::{ByteSource, ConversationsError};
use futures_util::{Stream, StreamExt as _, stream};
use http::request::Parts;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use crate::error::ApiError;
use crate::extract::RequestCaller;
use crate::state::ServerState;

/// Time for which a request waits until fewer of its user are served.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Length of the parts in which a long response is sent. The connection buffers a few of them.
const PART_BYTES: usize = 128 << 10;

/// Length from which a body is parsed on a blocking thread: a switch of threads costs as much as a
/// few kilobytes do.
const MIN_BLOCKING_BYTES: usize = 32 << 10;

/// A permit for work that the content of a sandbox or a log can make expensive. Waits while other
/// requests of the user have all permits. The operator needs none.
pub(crate) struct WorkPermit(
    #[expect(dead_code, reason = "its drop ends the right")] Option<OwnedSemaphorePermit>,
);

impl WorkPermit {
    /// Waits for a permit.
    ///
    /// # Errors
    /// [`ApiError::TooMuchWork`].
    pub(crate) async fn acquire(state: &ServerState, caller: &Caller) -> Result<Self, ApiError> {
        let Some(user) = caller.user.clone() else {
            return Ok(Self(None));
        };
        let permit = timeout(PERMIT_TIMEOUT, state.work_by_user.acquire(user)).await;
        permit.map(Self).map_err(|_| ApiError::TooMuchWork)
    }

    /// Waits for a permit to delete a conversation, whose workspace can have millions of files. The
    /// user's other work does not wait for deletions.
    pub(crate) async fn for_deletion(state: &ServerState, caller: &Caller) -> Self {
        match caller.user.clone() {
            Some(user) => Self(state.deletions_by_user.acquire(user).await),
            None => Self(None),
        }
    }

    /// Holds the permit until the work is done, also if its client is gone.
    ///
    /// # Errors
    /// Those of the work, or [`ConversationsError::ShuttingDown`].
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let working = tokio::spawn(async move {
            let _permit = self;
            work.await
        });
        match working.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ConversationsError::ShuttingDown.into()),
            },
        }
    }

    /// Responds with a JSON value, which may be long. Holds the permit until the client has
    /// received it, so that slow clients do not make the server hold many.
    pub(crate) async fn respond(
        self,
        value: impl Serialize + Send + 'static,
    ) -> Result<Response, ApiError> {
        // Never fails: all keys are texts.
        let json =
            run_blocking(move || Bytes::from(serde_json::to_vec(&value).unwrap_or_default()))
                .await?;
        Ok(self.respond_with(JSON, json))
    }

    /// Responds with a body, which may be long. Holds the permit like [`respond`](Self::respond).
    pub(crate) fn respond_with(self, content_type: HeaderValue, content: Bytes) -> Response {
        let length = HeaderValue::from(content.len());
        let body = if content.len() > PART_BYTES {
            Body::from_stream(parts(content, self))
        } else {
            content.into()
        };
        let headers = [
            (header::CONTENT_TYPE, content_type),
            (header::CONTENT_LENGTH, length),
        ];
        (headers, body).into_response()
    }
}

/// A permit to pack a workspace, which occupies a thread. Never waits.
pub(crate) struct DownloadPermit {
    _shared: OwnedSemaphorePermit,
    /// `None` for the operator.
    _own: Option<OwnedSemaphorePermit>,
}

impl DownloadPermit {
    /// Returns a permit.
    ///
    /// # Errors
    /// [`ApiError::TooManyDownloads`].
    pub(crate) fn acquire(state: &ServerState, caller: &Caller) -> Result<Self, ApiError> {
        let own = caller.user.clone().map(|user| {
            let own = state.downloads_by_user.try_acquire(user);
            own.ok_or(ApiError::TooManyDownloads)
        });
        let own = own.transpose()?;
        let shared = Arc::clone(&state.downloads).try_acquire_owned();
        Ok(Self {
            _shared: shared.map_err(|_| ApiError::TooManyDownloads)?,
            _own: own,
        })
    }
}

/// Streams content of a sandbox, and holds a permit until the client has received it.
pub(crate) fn stream_content(content: ByteSource, permit: impl Send + 'static) -> Body {
    let parts = ReaderStream::with_capacity(content, PART_BYTES);
    Body::from_stream(parts.inspect(move |_| {
        let _held = &permit;
    }))
}

/// The type of responses.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Divides a body, so that what is held is dropped with the last part.
fn parts<G>(body: Bytes, held: G) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((body, held), async |(mut rest, held)| {
        let part = rest.split_to(rest.len().min(PART_BYTES));
        (!part.is_empty()).then_some((Ok(part), (rest, held)))
    })
}

impl FromRequestParts<Arc<ServerState>> for WorkPermit {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<ServerState>,
    ) -> Result<Self, ApiError> {
        let RequestCaller(caller) = RequestCaller::from_request_parts(parts, state).await?;
        Self::acquire(state, &caller).await
    }
}

/// Runs work on a thread that may block.
///
/// # Errors
/// [`ConversationsError::ShuttingDown`].
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ConversationsError::ShuttingDown.into()),
        },
    }
}

/// Parses a body. A long one is parsed on a thread that may block, and waits while others are
/// parsed.
///
/// # Errors
/// Those of the parser.
pub(crate) async fn parse_body<T: Send + 'static>(
    state: &ServerState,
    body: Bytes,
    parse: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if body.len() < MIN_BLOCKING_BYTES {
        return parse(&body);
    }
    // An error means that the semaphore is closed, which it never is.
    let permit = Arc::clone(&state.parsers).acquire_owned().await.ok();
    run_blocking(move || {
        // Also if the client is gone meanwhile.
        let _permit = permit;
        parse(&body)
    })
    .await?
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;
    use crate::keyed_permits::KeyedPermits;

    #[tokio::test]
    async fn long_response_is_whole_and_has_its_length() {
        for length in [0, 1, PART_BYTES - 2, PART_BYTES, 5 * PART_BYTES + 1] {
            let text = "x".repeat(length);
            let response = WorkPermit(None).respond(text.clone()).await.unwrap();
            assert_eq!(
                response.headers()[header::CONTENT_LENGTH],
                (length + 2).to_string()
            );
            assert_eq!(response.headers()[header::CONTENT_TYPE], JSON);
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert_eq!(body, format!("\"{text}\""));
        }
    }

    #[tokio::test]
    async fn permit_is_held_until_the_work_is_done_without_its_client() {
        let permits = KeyedPermits::new(1);
        let permit = WorkPermit(permits.try_acquire("ada"));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let mut working = Box::pin(permit.run(async move {
            let _ = ended.await;
            Ok(())
        }));
        assert!(futures_util::poll!(&mut working).is_pending());
        drop(working);
        tokio::task::yield_now().await;
        assert!(permits.try_acquire("ada").is_none());
        end.send(()).unwrap();
        assert!(permits.acquire("ada").await.is_some());
    }

    /// The permit is free once the client has the last part, or is gone.
    #[tokio::test]
    async fn permit_is_held_until_a_response_is_sent() {
        let permits = KeyedPermits::new(1);
        for received in [1, 3, 4] {
            let permit = permits.try_acquire("ada").unwrap();
            let mut parts = Box::pin(parts(
                Bytes::from(vec![b'x'; 3 * PART_BYTES]),
                WorkPermit(Some(permit)),
            ));
            for part in 0..received {
                assert!(permits.try_acquire("ada").is_none());
                assert_eq!(parts.next().await.is_some(), part < 3);
            }
            assert_eq!(permits.try_acquire("ada").is_some(), received == 4);
            drop(parts);
            assert!(permits.try_acquire("ada").is_some());
        }
    }
}
