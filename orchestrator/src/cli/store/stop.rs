//! ^C while a store is read or written: the command stops where it leaves nothing incomplete.

use std::io;

use async_trait::async_trait;
use conversations::{ConversationsError, EventPages, HostError};
use protocol::Event;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::interrupts::{Hangup, Interrupts};

/// Whether an interrupt has arrived. Listens in a task of its own, because writing a file blocks.
pub(super) struct StopSignal {
    token: CancellationToken,
    _listener: AbortOnDropHandle<()>,
}

/// The command was interrupted.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(super) struct Interrupted;

impl StopSignal {
    pub(super) fn listen() -> io::Result<Self> {
        let mut interrupts = Interrupts::listen_unbounded(Hangup::Interrupts)?;
        let token = CancellationToken::new();
        let stopped = token.clone();
        let listener = tokio::spawn(async move {
            interrupts.next().await;
            stopped.cancel();
            // Keeps the exit at a further interrupt.
            std::future::pending::<()>().await;
        });
        Ok(Self {
            token,
            _listener: AbortOnDropHandle::new(listener),
        })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Fails after an interrupt.
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        if self.is_stopped() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    /// Waits for a future, or fails at an interrupt.
    pub(super) async fn until_stopped<T>(
        &self,
        future: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        self.token
            .run_until_cancelled(future)
            .await
            .ok_or(Interrupted)
    }

    /// Like [`check`](Self::check), for readers and writers.
    pub(super) fn check_io(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)
    }
}

/// Pages of events that end with an error after an interrupt.
pub(super) struct StoppablePages<'a, P> {
    pub(super) pages: P,
    pub(super) stop: &'a StopSignal,
}

#[async_trait(?Send)]
impl<P: EventPages> EventPages for StoppablePages<'_, P> {
    async fn next(&mut self) -> Result<Vec<Event>, ConversationsError> {
        self.stop
            .check()
            .map_err(|error| HostError::Failed(error.into()))?;
        self.pages.next().await
    }
}
