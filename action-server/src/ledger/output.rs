//! The latest output of one action, by offset. Never waits for a reader: what does not fit pushes out the oldest.

use std::collections::VecDeque;

use protocol::sandbox_api::Frame;

/// How much of an action's latest output is held: a reader that comes back after a lost connection finds a minute of
/// a busy build, and 64 running actions hold no more than 64 MiB.
pub(crate) const HELD_OUTPUT_BYTES: usize = 1 << 20;

/// The most that one frame carries: small beside the stream window, so that frames of several actions take turns.
const FRAME_BYTES: usize = 64 << 10;

/// What an action has printed; the end is `printed` bytes from the beginning.
#[derive(Debug, Default)]
pub(super) struct Output {
    held: VecDeque<u8>,
    printed: u64,
}

impl Output {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.printed += bytes.len() as u64;
        let latest = &bytes[bytes.len().saturating_sub(HELD_OUTPUT_BYTES)..];
        let overflow = (self.held.len() + latest.len()).saturating_sub(HELD_OUTPUT_BYTES);
        self.held.drain(..overflow);
        self.held.extend(latest);
    }

    /// What comes next for a reader that has everything before `cursor`; nothing when that is all there is.
    pub(super) fn read(&self, cursor: u64) -> Option<Frame> {
        let from = self.printed - self.held.len() as u64;
        if cursor >= self.printed {
            return None;
        }
        if cursor < from {
            return Some(Frame::Gap { from: cursor, to: from });
        }
        let start = usize::try_from(cursor - from).unwrap_or(usize::MAX).min(self.held.len());
        let end = self.held.len().min(start.saturating_add(FRAME_BYTES));
        Some(Frame::Output { offset: cursor, bytes: self.copy(start, end) })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Nothing more will come: gives back what was kept ready for it.
    pub(super) fn close(&mut self) {
        self.held.shrink_to_fit();
    }

    fn copy(&self, start: usize, end: usize) -> Vec<u8> {
        let (front, back) = self.held.as_slices();
        let split = front.len();
        let mut bytes = Vec::with_capacity(end - start);
        bytes.extend_from_slice(&front[start.min(split)..end.min(split)]);
        bytes.extend_from_slice(&back[start.max(split) - split..end.max(split) - split]);
        bytes
    }
}

/// Where a reader is after a frame.
pub(super) fn cursor_after(frame: &Frame, cursor: u64) -> u64 {
    match frame {
        Frame::Output { offset, bytes } => offset + bytes.len() as u64,
        Frame::Gap { to, .. } => *to,
        Frame::Observation(_) => cursor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(output: &Output, mut cursor: u64) -> (Vec<u8>, Vec<(u64, u64)>) {
        let (mut bytes, mut gaps) = (Vec::new(), Vec::new());
        while let Some(frame) = output.read(cursor) {
            cursor = cursor_after(&frame, cursor);
            match frame {
                Frame::Output { bytes: more, .. } => bytes.extend(more),
                Frame::Gap { from, to } => gaps.push((from, to)),
                Frame::Observation(_) => unreachable!("output holds no observation"),
            }
        }
        (bytes, gaps)
    }

    #[test]
    fn everything_is_read_from_any_offset_while_it_is_held() {
        let mut output = Output::default();
        let text: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        text.chunks(777).for_each(|chunk| output.push(chunk));
        for cursor in [0, 1, 65_536, 199_999, 200_000, 300_000] {
            let (bytes, gaps) = read_all(&output, cursor);
            assert_eq!(bytes, &text[(cursor as usize).min(text.len())..]);
            assert_eq!(gaps, []);
        }
    }

    #[test]
    fn a_reader_that_lags_is_told_what_it_missed() {
        let mut output = Output::default();
        output.push(&vec![b'a'; HELD_OUTPUT_BYTES]);
        output.push(b"bcd");
        let (bytes, gaps) = read_all(&output, 1);
        assert_eq!(gaps, [(1, 3)]);
        assert_eq!(bytes.len(), HELD_OUTPUT_BYTES);
        assert!(bytes.ends_with(b"abcd"));
    }

    #[test]
    fn more_at_once_than_is_held_keeps_the_latest() {
        let mut output = Output::default();
        output.push(b"first");
        let mut flood = vec![b'x'; 3 * HELD_OUTPUT_BYTES];
        flood.push(b'!');
        output.push(&flood);
        assert_eq!(output.held_bytes(), HELD_OUTPUT_BYTES);
        let (bytes, gaps) = read_all(&output, 0);
        assert_eq!(gaps, [(0, 5 + 2 * HELD_OUTPUT_BYTES as u64 + 1)]);
        assert!(bytes.ends_with(b"x!"));
    }
}
