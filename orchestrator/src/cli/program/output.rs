//! Writes a program's output to the standard streams, with secrets redacted, at the pace of their
//! readers.
//!
//! A thread writes, because a pipe that is not read blocks it. The task that receives the output
//! waits for the thread, which slows the program down, but only until an interrupt, which it must
//! handle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::sandbox::OutputChunk;
use engine::secrets::{Redactor, StreamRedactor};
use protocol::sandbox_api::OutputStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{block_in_place, spawn_blocking};

use super::super::interrupts::InterruptObserver;
use super::super::print::ProgramStream;
use super::super::write_status::WriteStatus;

/// Maximum number of chunks that wait for the thread. Each has at most 64 KiB, and more would only
/// hide a slow reader.
const MAX_QUEUED_CHUNKS: usize = 8;

pub(super) struct ProgramOutput {
    stdout: Mutex<StreamRedactor>,
    stderr: Mutex<StreamRedactor>,
    lost_bytes: AtomicU64,
    /// Bounded by `room`. After an interrupt, the program is killed, and its last output is not
    /// bounded.
    queue: mpsc::UnboundedSender<QueueItem>,
    room: Arc<Semaphore>,
    interrupts: InterruptObserver,
    pub(super) write_status: Arc<WriteStatus>,
}

enum QueueItem {
    Output(OutputStream, Vec<u8>, Option<OwnedSemaphorePermit>),
    Flush(oneshot::Sender<()>),
}

impl ProgramOutput {
    /// Starts the thread. It ends when this is dropped, or with the process if a write is still
    /// blocked.
    pub(super) fn new(secrets: &Redactor, interrupts: InterruptObserver) -> Self {
        let redactor = || Mutex::new(StreamRedactor::new(secrets.clone()));
        let (queue, items) = mpsc::unbounded_channel();
        let write_status = Arc::new(WriteStatus::default());
        let status = Arc::clone(&write_status);
        spawn_blocking(move || write(items, &status));
        Self {
            stdout: redactor(),
            stderr: redactor(),
            lost_bytes: AtomicU64::new(0),
            queue,
            room: Arc::new(Semaphore::new(MAX_QUEUED_CHUNKS)),
            interrupts,
            write_status,
        }
    }

    /// Queues a chunk. Blocks while the queue is full, unless the user has interrupted.
    pub(super) fn on_chunk(&self, stream: OutputStream, chunk: OutputChunk<'_>) {
        match chunk {
            OutputChunk::Gap { from, to } => {
                self.lost_bytes
                    .fetch_add(to.saturating_sub(from), Ordering::Relaxed);
            }
            OutputChunk::Bytes { bytes, .. } => self.queue(stream, |redactor| redactor.push(bytes)),
        }
    }

    /// Writes what the redactors hold back, and waits until everything is written. Must be called
    /// after the last chunk.
    pub(super) async fn finish(&self) {
        self.queue(OutputStream::Stdout, StreamRedactor::finish);
        self.queue(OutputStream::Stderr, StreamRedactor::finish);
        let (done, is_done) = oneshot::channel();
        // Both fail only if the thread has panicked.
        let _ = self.queue.send(QueueItem::Flush(done));
        let _ = is_done.await;
    }

    /// Returns the number of bytes that were not received.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Ordering::Relaxed)
    }

    fn queue(&self, stream: OutputStream, read: impl FnOnce(&mut StreamRedactor) -> Vec<u8>) {
        let redactor = match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        };
        let bytes = read(&mut redactor.lock().unwrap_or_else(PoisonError::into_inner));
        if !bytes.is_empty() {
            let _ = self
                .queue
                .send(QueueItem::Output(stream, bytes, self.wait_for_room()));
        }
    }

    /// `None` if the user has interrupted.
    fn wait_for_room(&self) -> Option<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.room);
        if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
            return Some(permit);
        }
        let wait = async {
            tokio::select! {
                permit = room.acquire_owned() => permit.ok(),
                () = self.interrupts.interrupted() => None,
            }
        };
        block_in_place(|| Handle::current().block_on(wait))
    }
}

fn write(mut items: mpsc::UnboundedReceiver<QueueItem>, status: &WriteStatus) {
    let (mut stdout, mut stderr) = (ProgramStream::stdout(), ProgramStream::stderr());
    while let Some(item) = items.blocking_recv() {
        match item {
            QueueItem::Output(stream, bytes, _room) => status.record(match stream {
                OutputStream::Stdout => stdout.write(&bytes),
                OutputStream::Stderr => stderr.write(&bytes),
            }),
            QueueItem::Flush(done) => {
                status.record(stdout.finish().and(stderr.finish()));
                // Fails if the caller has stopped waiting.
                let _ = done.send(());
            }
        }
    }
}
