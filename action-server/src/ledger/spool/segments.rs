//! The older output of one producer, in several files. Deleting a file frees its space immediately,
//! even on file systems that cannot punch holes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::store::{SpoolFile, SpoolReservation, SpoolStore};
use super::{OutputPiece, RETAINED_OUTPUT_BYTES, SpilledOutput};

/// Size of a file, which is deleted as a whole when a limit is reached. The maximum output has 16
/// files.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The files, oldest first. Between two of them, output may be missing.
#[derive(Debug, Default)]
pub(super) struct Segments {
    files: VecDeque<Segment>,
}

#[derive(Debug)]
struct Segment {
    start: u64,
    length: u64,
    file: Arc<SpoolFile>,
    reservation: SpoolReservation,
}

/// The range of a file that a batch is written to.
#[derive(Debug)]
pub(super) struct SegmentSlot {
    start: u64,
    pub(super) file: Arc<SpoolFile>,
    pub(super) position: u64,
    reservation: SpoolReservation,
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

    /// Allocates space for `length` bytes at the offset `start`, after all existing ones. Deletes
    /// the oldest files when a limit is reached.
    ///
    /// # Errors
    /// There is no space, or no file can be created.
    pub(super) fn allocate(
        &mut self,
        start: u64,
        length: u64,
        store: &SpoolStore,
    ) -> io::Result<SegmentSlot> {
        while self.len() + length > RETAINED_OUTPUT_BYTES && self.files.pop_front().is_some() {}
        let reservation = loop {
            match store.reserve(length) {
                Some(reservation) => break reservation,
                None if self.files.pop_front().is_some() => {}
                None => {
                    return Err(io::Error::other(
                        "the maximum size of retained output is reached",
                    ));
                }
            }
        };
        match self.files.back() {
            Some(last) if last.end() == start && last.length < SEGMENT_BYTES => Ok(SegmentSlot {
                start,
                file: Arc::clone(&last.file),
                position: last.length,
                reservation,
            }),
            _ => Ok(SegmentSlot {
                start,
                file: Arc::new(store.file()?),
                position: 0,
                reservation: reservation.with_file()?,
            }),
        }
    }

    /// Adds a batch that was written.
    pub(super) fn add(&mut self, slot: SegmentSlot, length: u64) {
        match self.files.back_mut() {
            Some(last) if slot.position > 0 => {
                last.length += length;
                last.reservation.merge(slot.reservation);
            }
            _ => {
                let SegmentSlot {
                    start,
                    file,
                    reservation,
                    ..
                } = slot;
                self.files.push_back(Segment {
                    start,
                    length,
                    file,
                    reservation,
                });
            }
        }
    }

    pub(super) fn read(&self, cursor: u64, max_bytes: usize) -> Option<OutputPiece> {
        let segment = self
            .files
            .iter()
            .find(|each| (each.start..each.end()).contains(&cursor))?;
        let length = usize::try_from(segment.end() - cursor)
            .unwrap_or(max_bytes)
            .min(max_bytes);
        let position = cursor - segment.start;
        Some(OutputPiece::Spilled(SpilledOutput {
            file: Arc::clone(&segment.file),
            position,
            length,
        }))
    }

    /// Returns the start of the first segment after `cursor`.
    pub(super) fn first_after(&self, cursor: u64) -> Option<u64> {
        self.files
            .iter()
            .map(|segment| segment.start)
            .find(|&start| start > cursor)
    }
}
