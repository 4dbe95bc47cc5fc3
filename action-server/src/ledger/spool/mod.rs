//! The output of one producer, by offset: the latest in memory, what is older in files without a name.
//!
//! Taking output never waits for a reader and, but for a producer far ahead of the disk, not for the disk: threads of the
//! runtime write, a batch at a time, while the producer goes on. Readers get every byte that is held; what is not (the
//! disk is full, the bounds are reached) they are told as a gap. Everything ends with the last handle: nothing has a
//! name on the disk, so nothing is left after `kill -9` either.

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

use memory::Memory;
use segments::Segments;
use store::SpoolFile;
pub(crate) use store::SpoolStore;

/// What stays in memory of a producer's output. Short output, nearly all there is, never sees the disk.
const MEMORY_BYTES: usize = 3 << 19;

/// How far a producer may be ahead of the disk before it waits.
const BACKLOG_BYTES: usize = 1 << 20;

/// What is left in memory when a batch was written: it is written in larger pieces than it comes in, and a reader that
/// follows finds what it is at in memory.
const KEPT_BYTES: usize = 1 << 20;

/// How much of a producer's latest output is held: a log of a day, and not a disk.
pub(crate) const HELD_OUTPUT_BYTES: u64 = 1 << 30;

/// The kernel takes 1,024 in one call.
const PIECES_AT_ONCE: usize = 256;

/// The most that is read from a file at once.
const READ_BYTES: usize = 256 << 10;

/// The output of one producer.
#[derive(Debug)]
pub(crate) struct Spool {
    store: SpoolStore,
    state: Mutex<State>,
    /// Held while a batch is written, by one thread at a time. Never taken by who holds `state`.
    writing: Mutex<()>,
    /// A batch was written.
    written: Notify,
}

#[derive(Debug)]
struct State {
    memory: Memory,
    /// Everything before `memory` that is still held.
    segments: Segments,
    /// Whether a thread is on its way to write.
    is_spilling: bool,
    is_closed: bool,
}

/// What a reader finds at its cursor.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, from the cursor on.
    Bytes(Bytes),
    /// Nothing is held from the cursor up to this offset.
    Gap(u64),
    /// Bytes that are in a file.
    Spilled(Spilled),
}

/// A place in a file, to be read where reading may block. It stays what it is while this lives.
#[derive(Debug)]
pub(crate) struct Spilled {
    file: Arc<SpoolFile>,
    position: u64,
    length: usize,
}

/// What an ended producer's output takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) memory: u64,
    pub(crate) disk: u64,
    pub(crate) files: usize,
}

impl AddAssign for Held {
    fn add_assign(&mut self, more: Self) {
        self.memory += more.memory;
        self.disk += more.disk;
        self.files += more.files;
    }
}

impl SubAssign for Held {
    fn sub_assign(&mut self, less: Self) {
        self.memory -= less.memory;
        self.disk -= less.disk;
        self.files -= less.files;
    }
}

impl Spool {
    pub(crate) fn new(store: &SpoolStore) -> Arc<Self> {
        let state = State {
            memory: Memory::default(),
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

    /// Takes output; what comes after [`Spool::close`] is dropped.
    pub(crate) fn push(self: &Arc<Self>, bytes: &[u8]) {
        self.push_with(|memory| memory.push(bytes));
    }

    /// The same, without a copy.
    pub(crate) fn push_owned(self: &Arc<Self>, bytes: Bytes) {
        self.push_with(|memory| memory.push_owned(bytes));
    }

    fn push_with(self: &Arc<Self>, push: impl FnOnce(&mut Memory)) {
        let mut state = self.state();
        if state.is_closed {
            return;
        }
        push(&mut state.memory);
        if state.memory.len() > MEMORY_BYTES {
            self.relieve(state);
        }
    }

    /// Has what is too much for the memory written.
    fn relieve(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let is_far_ahead = state.memory.len() > MEMORY_BYTES + BACKLOG_BYTES;
        let begins = !std::mem::replace(&mut state.is_spilling, true);
        drop(state);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if begins => {
                let spool = Arc::clone(self);
                drop(runtime.spawn_blocking(move || spool.spill()));
            }
            Ok(_) if !is_far_ahead => {}
            // Losing output would be worse than being late, and holding it all would have no bound.
            _ => self.spill(),
        }
    }

    /// Returns when there is room: for producers that can wait, so that none of them ever blocks the thread.
    pub(crate) async fn room(&self) {
        loop {
            // Before the look: it hears of every batch from now on.
            let written = self.written.notified();
            if self.state().memory.len() <= MEMORY_BYTES + BACKLOG_BYTES / 2 {
                return;
            }
            written.await;
        }
    }

    /// What comes next for a reader that has everything before `cursor`; nothing when that is all there is.
    pub(crate) fn read(&self, cursor: u64) -> Option<Piece> {
        let state = self.state();
        if cursor >= state.memory.end() {
            return None;
        }
        if cursor >= state.memory.start() {
            return state.memory.read(cursor).map(Piece::Bytes);
        }
        Some(state.segments.read(cursor, READ_BYTES).unwrap_or_else(|| {
            Piece::Gap(state.segments.first_after(cursor).unwrap_or(state.memory.start()))
        }))
    }

    /// How much was taken, held or not.
    pub(crate) fn end(&self) -> u64 {
        self.state().memory.end()
    }

    /// Nothing more will come. What is partly on the disk goes there as a whole: it will hardly be read again.
    pub(crate) fn close(self: &Arc<Self>) -> Held {
        let mut state = self.state();
        state.is_closed = true;
        state.memory.close();
        let (memory, disk) = (state.memory.len() as u64, state.segments.len());
        let files = state.segments.count();
        if files == 0 {
            return Held { memory, disk, files };
        }
        self.relieve(state);
        Held { memory: 0, disk: memory + disk, files }
    }

    /// Writes what is too much for the memory. Blocks.
    fn spill(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((from, batch)) = self.next_batch() {
            let length = batch.iter().map(|bytes| bytes.len() as u64).sum();
            // Only who writes changes the segments, so the place stays the right one without the lock.
            let place = self.state().segments.place(from, length, &self.store);
            let written = place.and_then(|place| {
                write_all(&place, &batch)?;
                Ok(place)
            });
            let mut state = self.state();
            state.memory.drop_oldest(batch.len());
            match written {
                Ok(place) => state.segments.add(place, length),
                // Told to readers as a gap. The producer must not stop for it.
                Err(error) => tracing::warn!(%error, length, "output is lost"),
            }
            drop(state);
            self.written.notify_waiters();
        }
    }

    /// What is to be written next, and its offset.
    fn next_batch(&self) -> Option<(u64, Vec<Bytes>)> {
        let mut state = self.state();
        let (most, kept) = if state.is_closed { (0, 0) } else { (MEMORY_BYTES, KEPT_BYTES) };
        let length = state.memory.len();
        state.is_spilling = length > most;
        state.is_spilling.then(|| (state.memory.start(), state.memory.oldest(length - kept)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_all(place: &segments::Place, batch: &[Bytes]) -> io::Result<()> {
    let (mut position, mut written) = (place.position, 0);
    for pieces in batch.chunks(PIECES_AT_ONCE) {
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let mut done = pwritev(&**place.file, &slices, position.cast_signed())?;
        // A disk that is nearly full takes a part; the rest tells why.
        for piece in pieces {
            let part = piece.get(done.min(piece.len())..).unwrap_or_default();
            if !part.is_empty() {
                place.file.write_all_at(part, position + written + (piece.len() - part.len()) as u64)?;
            }
            done = done.saturating_sub(piece.len());
            written += piece.len() as u64;
        }
        position += length as u64;
        written = 0;
    }
    Ok(())
}

impl Piece {
    /// The bytes at `cursor`, and where the reader is after them. None are a gap up to there.
    pub(crate) async fn read(self, cursor: u64) -> (Bytes, u64) {
        let (bytes, length) = match self {
            Self::Gap(to) => return (Bytes::new(), to),
            Self::Bytes(bytes) => {
                let to = cursor + bytes.len() as u64;
                return (bytes, to);
            }
            Self::Spilled(place) => {
                let length = place.length as u64;
                (tokio::task::spawn_blocking(move || place.read()).await, length)
            }
        };
        let bytes = bytes.map_err(io::Error::other).flatten().unwrap_or_else(|error| {
            tracing::warn!(%error, "output cannot be read again");
            Bytes::new()
        });
        (bytes, cursor + length)
    }
}

impl Spilled {
    /// Blocks.
    ///
    /// # Errors
    /// The disk fails.
    fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.position)?;
        Ok(bytes.into())
    }
}
