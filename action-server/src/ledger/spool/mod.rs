//! The output of one producer, by offset: the latest in memory, older output in unnamed files.
//!
//! Writing never blocks on readers. It blocks on the disk only if the producer is far ahead:
//! otherwise blocking threads write batches while the producer continues. Readers get every byte
//! that is retained. What is not retained, because the disk is full or a limit was reached, is
//! reported to them as a gap. All files are unnamed, so that nothing is left on the disk, even
//! after `kill -9`.

mod memory;
mod segments;
mod store;

#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::ops::{AddAssign, SubAssign};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use nix::sys::uio::pwritev;
use tokio::sync::Notify;

use memory::OutputBuffer;
use segments::Segments;
use store::SpoolFile;
pub(crate) use store::SpoolStore;

/// Maximum output in memory. Most output is shorter and is never written to the disk.
const MEMORY_BYTES: usize = 3 << 19;

/// How far a producer may be ahead of the disk before it blocks.
const BACKLOG_BYTES: usize = 1 << 20;

/// Output that stays in memory after a batch was written. The gap to [`MEMORY_BYTES`] makes writes
/// larger, and a reader that follows the producer reads from memory.
pub(crate) const KEPT_BYTES: usize = 1 << 20;

/// Maximum output of a producer that is retained. Older output is dropped.
pub(crate) const RETAINED_OUTPUT_BYTES: u64 = 1 << 30;

/// Maximum number of pieces in one `pwritev`. The kernel allows 1,024.
const MAX_WRITE_PIECES: usize = 256;

/// Maximum size of one read from a file.
const READ_BYTES: usize = 256 << 10;

/// The output of one producer.
#[derive(Debug)]
pub(crate) struct Spool {
    store: SpoolStore,
    state: Mutex<SpoolState>,
    /// Locked while a batch is written. Must not be locked while `state` is.
    writing: Mutex<()>,
    /// Notified after each batch.
    written: Notify,
}

#[derive(Debug)]
struct SpoolState {
    memory: OutputBuffer,
    /// The output before `memory`.
    segments: Segments,
    /// A thread is writing, or is about to.
    is_spilling: bool,
    is_closed: bool,
}

/// The next piece of output for a reader.
#[derive(Debug)]
pub(crate) enum OutputPiece {
    /// Bytes from the cursor on.
    Bytes(Bytes),
    /// Output from the cursor up to this offset is not retained.
    Gap(u64),
    /// Bytes in a file.
    Spilled(SpilledOutput),
}

/// A range of a file, which must be read where blocking is allowed. It stays valid while this
/// exists.
#[derive(Debug)]
pub(crate) struct SpilledOutput {
    file: Arc<SpoolFile>,
    position: u64,
    length: usize,
}

/// Resources that retained output uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpoolUsage {
    pub(crate) memory: u64,
    pub(crate) disk: u64,
    pub(crate) files: usize,
}

impl AddAssign for SpoolUsage {
    fn add_assign(&mut self, more: Self) {
        self.memory += more.memory;
        self.disk += more.disk;
        self.files += more.files;
    }
}

impl SubAssign for SpoolUsage {
    fn sub_assign(&mut self, less: Self) {
        self.memory -= less.memory;
        self.disk -= less.disk;
        self.files -= less.files;
    }
}

impl Spool {
    pub(crate) fn new(store: &SpoolStore) -> Arc<Self> {
        let state = SpoolState {
            memory: OutputBuffer::default(),
            segments: Segments::default(),
            is_spilling: false,
            is_closed: false,
        };
        Arc::new(Self {
            store: store.clone(),
            state: Mutex::new(state),
            writing: Mutex::default(),
            written: Notify::new(),
        })
    }

    /// Appends output. Output after [`Spool::close`] is dropped.
    pub(crate) fn push(self: &Arc<Self>, bytes: &[u8]) {
        self.push_with(|memory| memory.push(bytes));
    }

    /// Like [`Spool::push`], without copying.
    pub(crate) fn push_owned(self: &Arc<Self>, bytes: Bytes) {
        self.push_with(|memory| memory.push_owned(bytes));
    }

    fn push_with(self: &Arc<Self>, push: impl FnOnce(&mut OutputBuffer)) {
        let mut state = self.state();
        if state.is_closed {
            return;
        }
        push(&mut state.memory);
        if state.memory.len() > MEMORY_BYTES {
            self.start_spill(state);
        }
    }

    /// Writes output to the disk, in a blocking thread if possible.
    fn start_spill(self: &Arc<Self>, mut state: MutexGuard<'_, SpoolState>) {
        let is_far_ahead = state.memory.len() > MEMORY_BYTES + BACKLOG_BYTES;
        let is_first = !std::mem::replace(&mut state.is_spilling, true);
        drop(state);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if is_first => {
                let spool = Arc::clone(self);
                drop(runtime.spawn_blocking(move || spool.spill()));
            }
            Ok(_) if !is_far_ahead => {}
            // Blocks the producer: dropping output is worse than delaying it, and buffering all of
            // it is not bounded.
            _ => self.spill(),
        }
    }

    /// Waits until the producer is not far ahead of the disk. A producer that can wait calls it to
    /// never block its thread.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            // Created before the state is read, so that no later batch is missed.
            let written = self.written.notified();
            if self.state().memory.len() <= MEMORY_BYTES + BACKLOG_BYTES / 2 {
                return;
            }
            written.await;
        }
    }

    /// Returns the output at `cursor`. `None` if there is none yet.
    pub(crate) fn read(&self, cursor: u64) -> Option<OutputPiece> {
        let state = self.state();
        if cursor >= state.memory.end() {
            return None;
        }
        if cursor >= state.memory.start() {
            return state.memory.read(cursor).map(OutputPiece::Bytes);
        }
        Some(state.segments.read(cursor, READ_BYTES).unwrap_or_else(|| {
            OutputPiece::Gap(
                state
                    .segments
                    .first_after(cursor)
                    .unwrap_or(state.memory.start()),
            )
        }))
    }

    /// Returns the number of bytes that were written, retained or not.
    pub(crate) fn end(&self) -> u64 {
        self.state().memory.end()
    }

    /// Closes the output. If a part of it is on the disk, the rest is also written, because it will
    /// hardly be read again.
    pub(crate) fn close(self: &Arc<Self>) -> SpoolUsage {
        let mut state = self.state();
        state.is_closed = true;
        state.memory.close();
        let (memory, disk) = (state.memory.len() as u64, state.segments.len());
        let files = state.segments.count();
        if files == 0 {
            return SpoolUsage {
                memory,
                disk,
                files,
            };
        }
        self.start_spill(state);
        SpoolUsage {
            memory: 0,
            disk: memory + disk,
            files,
        }
    }

    /// Writes output that exceeds the memory. Blocks.
    fn spill(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((from, batch)) = self.next_batch() {
            let length = batch.iter().map(|bytes| bytes.len() as u64).sum();
            // Only the writing thread changes the segments, so the slot stays valid while `state`
            // is not locked.
            let slot = self.state().segments.allocate(from, length, &self.store);
            let written = slot.and_then(|slot| {
                write_all(&slot, &batch)?;
                Ok(slot)
            });
            let mut state = self.state();
            state.memory.drop_oldest(batch.len());
            match written {
                Ok(slot) => state.segments.add(slot, length),
                // Readers get a gap. The producer must not stop.
                Err(error) => tracing::warn!(%error, length, "output was lost"),
            }
            drop(state);
            self.written.notify_waiters();
        }
    }

    /// Returns the next batch to write and its offset.
    fn next_batch(&self) -> Option<(u64, Vec<Bytes>)> {
        let mut state = self.state();
        let (limit, kept) = if state.is_closed {
            (0, 0)
        } else {
            (MEMORY_BYTES, KEPT_BYTES)
        };
        let length = state.memory.len();
        state.is_spilling = length > limit;
        state
            .is_spilling
            .then(|| (state.memory.start(), state.memory.oldest(length - kept)))
    }

    fn state(&self) -> MutexGuard<'_, SpoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_all(slot: &segments::SegmentSlot, batch: &[Bytes]) -> io::Result<()> {
    let (mut position, mut written) = (slot.position, 0);
    for pieces in batch.chunks(MAX_WRITE_PIECES) {
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let mut done = pwritev(&**slot.file, &slices, position.cast_signed())?;
        // On a short write, writing the rest returns the error.
        for piece in pieces {
            let part = piece.get(done.min(piece.len())..).unwrap_or_default();
            if !part.is_empty() {
                slot.file
                    .write_all_at(part, position + written + (piece.len() - part.len()) as u64)?;
            }
            done = done.saturating_sub(piece.len());
            written += piece.len() as u64;
        }
        position += length as u64;
        written = 0;
    }
    Ok(())
}

impl OutputPiece {
    /// Returns the bytes at `cursor` and the offset after them. A gap has no bytes.
    pub(crate) async fn read(self, cursor: u64) -> (Bytes, u64) {
        let (bytes, length) = match self {
            Self::Gap(to) => return (Bytes::new(), to),
            Self::Bytes(bytes) => {
                let to = cursor + bytes.len() as u64;
                return (bytes, to);
            }
            Self::Spilled(range) => {
                let length = range.length as u64;
                (
                    tokio::task::spawn_blocking(move || range.read()).await,
                    length,
                )
            }
        };
        let bytes = bytes
            .map_err(io::Error::other)
            .flatten()
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read output from the disk");
                Bytes::new()
            });
        (bytes, cursor + length)
    }
}

impl SpilledOutput {
    /// Reads the range. Blocks.
    ///
    /// # Errors
    /// The disk fails.
    fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.position)?;
        Ok(bytes.into())
    }
}
