//! Where connections run to servers that users choose.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::context::TokioContext;

/// Number of threads of the connections.
const THREADS: usize = 2;

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Runs the connections that a future opens on threads of their own, and not on those that serve
/// other users: hyper reads interim responses (`100 Continue`) as fast as they arrive, so that a
/// server that sends them without an end occupies a thread for a second at a time. reqwest has no
/// limit of them.
pub fn foreign<F: Future>(future: F) -> TokioContext<F> {
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("foreign")
            // Timeouts end such a connection, so time passes after each of its turns.
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()
            .inspect_err(|error| tracing::warn!(%error, "cannot start threads for connections"))
            .ok()
    });
    let handle = match runtime {
        Some(runtime) => runtime.handle().clone(),
        None => Handle::current(),
    };
    TokioContext::new(future, handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawned_tasks_have_threads_of_their_own() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let name = async || std::thread::current().name().map(str::to_owned);
        let spawned = runtime.block_on(foreign(async move { tokio::spawn(name()).await.unwrap() }));
        assert_eq!(spawned.as_deref(), Some("foreign"));
    }
}
