//! Message channel to a running browser. Messages are written whole, and received in order.
//!
//! One task supervises the program that forwards the pipes, until it exits or the link is dropped.
//! A broken connection ends the program and the link. The browser continues, and a new link can
//! attach to it.

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

use crate::folder::{BrowserFolder, OutputTail, process_id};
use crate::messages::MessageSplitter;

/// Maximum number of queued messages. The browser reads immediately; a full queue means that it is
/// unresponsive.
const MAX_UNSENT_MESSAGES: usize = 256;

/// Maximum number of received, unread bytes. More than the longest message.
const MAX_UNREAD_BYTES: usize = 16 << 20;

/// Memory of a message in addition to its bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// Time for the sandbox to confirm that a program was terminated.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The browser has exited, or is unreachable over this link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the browser has exited, or the connection to it is lost")]
pub(crate) struct BrowserGone;

pub(crate) struct Link {
    input: mpsc::Sender<Bytes>,
    messages: mpsc::UnboundedReceiver<Vec<u8>>,
    unread: Arc<AtomicUsize>,
    /// Makes the task terminate the program that forwards the pipes.
    _end: DropGuard,
}

impl Link {
    /// Opens a link. `exited` is cancelled when the browser exits.
    pub(crate) fn open(
        folder: &BrowserFolder,
        exited: CancellationToken,
    ) -> Result<Self, SandboxError> {
        let (input, queued) = mpsc::channel::<Bytes>(MAX_UNSENT_MESSAGES);
        // Bounded by the bytes in it.
        let (received, messages) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let end = exited.child_token();
        let (id, request, folder) = (process_id()?, folder.link_request(), folder.clone());
        let splitter = Mutex::new(MessageSplitter::default());
        let (unread_bytes, cancelled) = (Arc::clone(&unread), end.clone());
        // The task ends with the program, or shortly after the link is dropped.
        tokio::spawn(async move {
            let on_output = |stream: OutputStream, chunk: OutputChunk<'_>| match (stream, chunk) {
                (OutputStream::Stdout, OutputChunk::Bytes { bytes, .. }) => {
                    let mut splitter = splitter.lock().unwrap_or_else(PoisonError::into_inner);
                    splitter.push(bytes, |message| {
                        let bytes = message.len() + MESSAGE_OVERHEAD_BYTES;
                        let before = unread_bytes.fetch_add(bytes, Ordering::Relaxed);
                        if before > MAX_UNREAD_BYTES || received.send(message).is_err() {
                            cancelled.cancel();
                        }
                    });
                }
                // Lost output cannot be recovered.
                (OutputStream::Stdout, OutputChunk::Gap { .. }) => cancelled.cancel(),
                (OutputStream::Stderr, _) => {}
            };
            let chunks = stream::unfold(queued, |mut queued| async {
                Some((queued.recv().await?, queued))
            });
            let stdin = StreamReader::new(Box::pin(chunks.map(Ok::<_, std::io::Error>)));
            let exec = async {
                folder
                    .sandbox
                    .processes()?
                    .exec(&id, &request, Some(Box::new(stdin)), &on_output)
                    .await
            };
            let exit = tokio::select! {
                exit = exec => Some(exit),
                () = cancelled.cancelled() => None,
            };
            if !matches!(exit, Some(Ok(_))) {
                let kill = async { folder.sandbox.processes()?.kill_process(&id).await };
                let killed = timeout(TERMINATION_TIMEOUT, kill).await;
                tracing::debug!(?exit, ?killed, "closed the link to a browser");
            }
        });
        Ok(Self {
            input,
            messages,
            unread,
            _end: end.drop_guard(),
        })
    }

    /// Sends a whole message. `Err` if the browser is gone.
    pub(crate) fn send(&self, mut message: Vec<u8>) -> Result<(), BrowserGone> {
        message.push(0);
        self.input.try_send(message.into()).map_err(|_| BrowserGone)
    }

    /// Receives the next message.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>, BrowserGone> {
        let message = self.messages.recv().await.ok_or(BrowserGone)?;
        let bytes = message.len() + MESSAGE_OVERHEAD_BYTES;
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
        Ok(message)
    }
}

/// A browser that this program has started. It continues when this is dropped.
#[derive(Clone)]
pub(crate) struct BrowserProcess {
    /// Cancelled when the browser has exited.
    pub(crate) exited: CancellationToken,
    pub(crate) output: OutputTail,
}

/// Starts the browser, and supervises it until it exits.
pub(crate) fn launch(
    folder: &BrowserFolder,
    owner_ended: CancellationToken,
) -> Result<BrowserProcess, SandboxError> {
    let process = BrowserProcess {
        exited: CancellationToken::new(),
        output: OutputTail::default(),
    };
    let (id, request, folder, observer) = (
        process_id()?,
        folder.launch_request(),
        folder.clone(),
        process.clone(),
    );
    // The task ends with the browser or with its owner, so that it does not keep the sandbox alive.
    // The browser continues.
    tokio::spawn(async move {
        let on_output = |_, chunk: OutputChunk<'_>| observer.output.push(chunk);
        let exec = async {
            folder
                .sandbox
                .processes()?
                .exec(&id, &request, None, &on_output)
                .await
        };
        let exit = tokio::select! {
            exit = exec => exit,
            () = owner_ended.cancelled() => return,
        };
        tracing::debug!(?exit, "a browser has exited");
        observer.exited.cancel();
    });
    Ok(process)
}
