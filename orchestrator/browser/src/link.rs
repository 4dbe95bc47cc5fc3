//! The way to a browser that runs: what is said to it goes in at once and whole, what it says comes in order.
//!
//! One task follows the program that carries the pipes, to its end or to the link's. A connection that breaks ends the program,
//! and the link; the browser goes on, and another link finds it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{OutputChunk, SandboxError};
use futures_util::{StreamExt as _, stream};
use protocol::sandbox_api::OutputStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::io::StreamReader;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::messages::Splitter;
use crate::place::{Place, Words, process_id};

/// Messages that may be on their way in. The browser reads at once; one that does not is dead.
const MOST_UNSENT: usize = 256;

/// What may have come and not be read yet, in bytes: the longest message and more.
const MOST_UNREAD: usize = 16 << 20;

/// How long the sandbox may take to say that a program was ended.
const ENDING: Duration = Duration::from_secs(5);

/// The browser has ended, or cannot be reached any more over this link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the browser has ended, or the connection to it")]
pub(crate) struct Dead;

pub(crate) struct Link {
    input: mpsc::Sender<Bytes>,
    messages: mpsc::UnboundedReceiver<Vec<u8>>,
    unread: Arc<AtomicUsize>,
    /// Tells the task to end the program that carries the pipes.
    _end: DropGuard,
}

impl Link {
    /// Opens one. `gone` says that there is no browser any more.
    pub(crate) fn open(place: &Place, gone: CancellationToken) -> Result<Self, SandboxError> {
        let (input, sent) = mpsc::channel::<Bytes>(MOST_UNSENT);
        // Bounded by the bytes in it.
        let (heard, messages) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let end = gone.child_token();
        let (id, request, place) = (process_id()?, place.link(), place.clone());
        let splitter = Mutex::new(Splitter::default());
        let (counted, ended) = (Arc::clone(&unread), end.clone());
        // It ends with the program, or soon after the link is dropped.
        tokio::spawn(async move {
            let on_output = |stream: OutputStream, chunk: OutputChunk<'_>| match (stream, chunk) {
                (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }) => {
                    let mut splitter = splitter.lock().unwrap_or_else(PoisonError::into_inner);
                    splitter.push(bytes, |message| {
                        let before = counted.fetch_add(message.len(), Ordering::Relaxed);
                        if before > MOST_UNREAD || heard.send(message).is_err() {
                            ended.cancel();
                        }
                    });
                }
                // What is missing cannot be had again.
                (OutputStream::Stdout, OutputChunk::Gap { .. }) => ended.cancel(),
                (OutputStream::Stderr, _) => {}
            };
            let pieces = stream::unfold(sent, |mut sent| async { Some((sent.recv().await?, sent)) });
            let stdin = StreamReader::new(Box::pin(pieces.map(Ok::<_, std::io::Error>)));
            let exit = tokio::select! {
                exit = place.sandbox.exec(&id, &request, Some(Box::new(stdin)), &on_output) => Some(exit),
                () = ended.cancelled() => None,
            };
            if !matches!(exit, Some(Ok(_))) {
                let ended = timeout(ENDING, place.sandbox.kill_process(&id)).await;
                tracing::debug!(?exit, ?ended, "ended the link to a browser");
            }
        });
        Ok(Self { input, messages, unread, _end: end.drop_guard() })
    }

    /// Says a message; whole, or the browser is dead.
    pub(crate) fn send(&self, mut message: Vec<u8>) -> Result<(), Dead> {
        message.push(0);
        self.input.try_send(message.into()).map_err(|_| Dead)
    }

    /// What the browser says next.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>, Dead> {
        let message = self.messages.recv().await.ok_or(Dead)?;
        self.unread.fetch_sub(message.len(), Ordering::Relaxed);
        Ok(message)
    }
}

/// A browser that was started from here: it goes on when this is dropped.
#[derive(Clone)]
pub(crate) struct Launched {
    /// Says that it has ended.
    pub(crate) gone: CancellationToken,
    /// What it wrote last.
    pub(crate) words: Words,
}

/// Starts the browser, and follows it until then.
pub(crate) fn launch(place: &Place, until: CancellationToken) -> Result<Launched, SandboxError> {
    let launched = Launched { gone: CancellationToken::new(), words: Words::default() };
    let (id, request, place, told) = (process_id()?, place.launch(), place.clone(), launched.clone());
    // It ends with the browser, or with its owner: the browser goes on then, and nobody here holds on to the sandbox.
    tokio::spawn(async move {
        let on_output = |_, chunk: OutputChunk<'_>| told.words.hear(chunk);
        let exit = tokio::select! {
            exit = place.sandbox.exec(&id, &request, None, &on_output) => exit,
            () = until.cancelled() => return,
        };
        tracing::debug!(?exit, "a browser has ended");
        told.gone.cancel();
    });
    Ok(launched)
}
