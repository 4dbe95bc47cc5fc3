//! The older output of one producer, in a few files: a file that is let go gives its room back at once, also where
//! file systems cannot cut off a beginning.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::store::{Reserved, SpoolFile, SpoolStore};
use super::{HELD_OUTPUT_BYTES, Piece, Spilled};

/// What is let go at once when a bound is reached. An output of the longest length is 16 files.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The files, oldest first; between two of them output may be missing.
#[derive(Debug, Default)]
pub(super) struct Segments {
    files: VecDeque<Segment>,
}

#[derive(Debug)]
struct Segment {
    start: u64,
    length: u64,
    file: Arc<SpoolFile>,
    room: Reserved,
}

/// Where a batch goes.
#[derive(Debug)]
pub(super) struct Place {
    start: u64,
    pub(super) file: Arc<SpoolFile>,
    pub(super) position: u64,
    room: Reserved,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.length
    }
}

impl Segments {
    pub(super) fn len(&self) -> u64 {
        self.files.iter().map(|segment| segment.length).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// A place for `length` bytes that begin at `start`, after everything there is. Lets the oldest go when a bound is
    /// reached.
    ///
    /// # Errors
    /// There is no room, or no file to be had.
    pub(super) fn place(&mut self, start: u64, length: u64, store: &SpoolStore) -> io::Result<Place> {
        while self.len() + length > HELD_OUTPUT_BYTES && self.files.pop_front().is_some() {}
        let room = loop {
            match store.reserve(length) {
                Some(room) => break room,
                None if self.files.pop_front().is_some() => {}
                None => return Err(io::Error::other("the server holds as much output as it may")),
            }
        };
        match self.files.back() {
            Some(last) if last.end() == start && last.length < SEGMENT_BYTES => {
                Ok(Place { start, file: Arc::clone(&last.file), position: last.length, room })
            }
            _ => Ok(Place { start, file: Arc::new(store.file()?), position: 0, room: room.with_a_file()? }),
        }
    }

    /// The batch was written.
    pub(super) fn add(&mut self, place: Place, length: u64) {
        match self.files.back_mut() {
            Some(last) if place.position > 0 => {
                last.length += length;
                last.room.join(place.room);
            }
            _ => {
                let Place { start, file, room, .. } = place;
                self.files.push_back(Segment { start, length, file, room });
            }
        }
    }

    pub(super) fn read(&self, cursor: u64, most: usize) -> Option<Piece> {
        let segment = self.files.iter().find(|each| (each.start..each.end()).contains(&cursor))?;
        let length = usize::try_from(segment.end() - cursor).unwrap_or(most).min(most);
        let position = cursor - segment.start;
        Some(Piece::Spilled(Spilled { file: Arc::clone(&segment.file), position, length }))
    }

    /// Where output is held again.
    pub(super) fn first_after(&self, cursor: u64) -> Option<u64> {
        self.files.iter().map(|segment| segment.start).find(|&start| start > cursor)
    }
}
