//! Several requests of one operation.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::error::RequestError;

/// Maximum number of concurrent requests of an operation.
const MAX_CONCURRENT_REQUESTS: usize = 4;

/// Awaits several requests, a few concurrently. Returns their results in order, or the first error.
pub(crate) async fn concurrently<T>(
    requests: impl Iterator<Item: Future<Output = Result<T, RequestError>>>,
) -> Result<Vec<T>, RequestError> {
    stream::iter(requests)
        .buffered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await
}
