//! Position in an output that is received in frames. Reports each byte once and in order, and
//! missing bytes as a gap.
//!
//! Pure. The offsets come from a sandbox and are untrusted: the cursor only moves forward.

use engine::sandbox::OutputChunk;
use protocol::Observation;
use protocol::sandbox_api::ActionFrame;

/// Forwards the output of frames that may overlap.
pub(super) struct OutputCursor<'a> {
    next_offset: u64,
    on_output: &'a (dyn Fn(OutputChunk<'_>) + Send + Sync),
}

/// A frame whose end exceeds the largest offset.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end of {length} bytes at the offset {offset} overflows")]
pub(super) struct OffsetOverflow {
    offset: u64,
    length: usize,
}

impl<'a> OutputCursor<'a> {
    pub(super) fn new(on_output: &'a (dyn Fn(OutputChunk<'_>) + Send + Sync)) -> Self {
        Self {
            next_offset: 0,
            on_output,
        }
    }

    /// Returns the offset of the first byte that was not reported.
    pub(super) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Reports the new bytes of a frame. Returns the observation if the frame contains it.
    pub(super) fn on_frame(
        &mut self,
        frame: ActionFrame,
    ) -> Result<Option<Observation>, OffsetOverflow> {
        match frame {
            ActionFrame::Output { offset, bytes } => self.on_bytes(offset, &bytes)?,
            ActionFrame::Gap { to, .. } => self.skip_to(to),
            ActionFrame::Observation(observation) => return Ok(Some(*observation)),
        }
        Ok(None)
    }

    fn on_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), OffsetOverflow> {
        let length = bytes.len();
        let end = offset
            .checked_add(length as u64)
            .ok_or(OffsetOverflow { offset, length })?;
        // A server that omits a gap frame must not make the offsets wrong.
        self.skip_to(offset);
        if end > self.next_offset {
            let known = usize::try_from(self.next_offset - offset).unwrap_or(length);
            (self.on_output)(OutputChunk::Bytes {
                offset: self.next_offset,
                bytes: &bytes[known..],
            });
            self.next_offset = end;
        }
        Ok(())
    }

    fn skip_to(&mut self, to: u64) {
        if to > self.next_offset {
            (self.on_output)(OutputChunk::Gap {
                from: self.next_offset,
                to,
            });
            self.next_offset = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use engine::sandbox::OutputChunk;
    use protocol::sandbox_api::ActionFrame;

    use super::OutputCursor;

    fn reported(frames: Vec<ActionFrame>) -> Vec<String> {
        let chunks = Mutex::new(Vec::new());
        let on_output = |chunk: OutputChunk<'_>| {
            chunks.lock().unwrap().push(match chunk {
                OutputChunk::Bytes { offset, bytes } => {
                    format!("{offset}:{}", String::from_utf8_lossy(bytes))
                }
                OutputChunk::Gap { from, to } => format!("{from}..{to}"),
            });
        };
        let mut cursor = OutputCursor::new(&on_output);
        for frame in frames {
            assert!(cursor.on_frame(frame).unwrap().is_none());
        }
        chunks.into_inner().unwrap()
    }

    fn output(offset: u64, text: &str) -> ActionFrame {
        ActionFrame::Output {
            offset,
            bytes: text.into(),
        }
    }

    #[test]
    fn bytes_are_reported_once_when_frames_overlap() {
        let frames = vec![
            output(0, "abc"),
            output(1, "bc"),
            output(2, "cde"),
            output(0, "abcdef"),
        ];
        assert_eq!(reported(frames), ["0:abc", "3:de", "5:f"]);
    }

    #[test]
    fn gap_is_reported_once_when_gap_frames_overlap() {
        let frames = vec![
            output(0, "abc"),
            ActionFrame::Gap { from: 1, to: 9 },
            ActionFrame::Gap { from: 0, to: 5 },
            output(9, "j"),
            output(12, "m"),
        ];
        assert_eq!(reported(frames), ["0:abc", "3..9", "9:j", "10..12", "12:m"]);
    }

    #[test]
    fn frame_is_rejected_when_its_offset_overflows() {
        let mut cursor = OutputCursor::new(&|_| panic!("no output is expected"));
        assert!(cursor.on_frame(output(u64::MAX, "ab")).is_err());
    }
}
