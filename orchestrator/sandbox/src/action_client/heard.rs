//! What has been heard of an action's output: every byte is told once, in order, and what is missing is told as a gap.
//!
//! Pure. The offsets come from a sandbox: whatever they are, what is told only moves forward.

use engine::sandbox::OutputChunk;
use protocol::Observation;
use protocol::sandbox_api::ActionFrame;

/// How far an action's output has been told.
pub(super) struct Heard<'a> {
    next: u64,
    tell: &'a (dyn Fn(OutputChunk<'_>) + Send + Sync),
}

/// An offset after the end of all numbers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("output of {length} bytes at the offset {offset}")]
pub(super) struct ImpossibleOffset {
    offset: u64,
    length: usize,
}

impl<'a> Heard<'a> {
    pub(super) fn nothing(tell: &'a (dyn Fn(OutputChunk<'_>) + Send + Sync)) -> Self {
        Self { next: 0, tell }
    }

    /// The offset of the first byte that has not been told.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Tells what is new in a frame. The observation ends the action.
    pub(super) fn hear(&mut self, frame: ActionFrame) -> Result<Option<Observation>, ImpossibleOffset> {
        match frame {
            ActionFrame::Output { offset, bytes } => self.output(offset, &bytes)?,
            ActionFrame::Gap { to, .. } => self.skip(to),
            ActionFrame::Observation(observation) => return Ok(Some(*observation)),
        }
        Ok(None)
    }

    fn output(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ImpossibleOffset> {
        let length = bytes.len();
        let end = offset.checked_add(length as u64).ok_or(ImpossibleOffset { offset, length })?;
        self.skip(offset.min(end));
        if end > self.next {
            let told = usize::try_from(self.next - offset).unwrap_or(length);
            (self.tell)(OutputChunk::Bytes { offset: self.next, bytes: &bytes[told..] });
            self.next = end;
        }
        Ok(())
    }

    /// Output up to `to` will not come, also when the server forgot to say so.
    fn skip(&mut self, to: u64) {
        if to > self.next {
            (self.tell)(OutputChunk::Gap { from: self.next, to });
            self.next = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use engine::sandbox::OutputChunk;
    use protocol::sandbox_api::ActionFrame;

    use super::Heard;

    fn told(frames: Vec<ActionFrame>) -> Vec<String> {
        let told = Mutex::new(Vec::new());
        let tell = |chunk: OutputChunk<'_>| {
            told.lock().unwrap().push(match chunk {
                OutputChunk::Bytes { offset, bytes } => {
                    format!("{offset}:{}", String::from_utf8_lossy(bytes))
                }
                OutputChunk::Gap { from, to } => format!("{from}..{to}"),
            });
        };
        let mut heard = Heard::nothing(&tell);
        for frame in frames {
            assert!(heard.hear(frame).unwrap().is_none());
        }
        told.into_inner().unwrap()
    }

    fn output(offset: u64, text: &str) -> ActionFrame {
        ActionFrame::Output { offset, bytes: text.into() }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let frames = vec![output(0, "abc"), output(1, "bc"), output(2, "cde"), output(0, "abcdef")];
        assert_eq!(told(frames), ["0:abc", "3:de", "5:f"]);
    }

    #[test]
    fn what_is_missing_is_told_once() {
        let frames = vec![
            output(0, "abc"),
            ActionFrame::Gap { from: 1, to: 9 },
            ActionFrame::Gap { from: 0, to: 5 },
            output(9, "j"),
            output(12, "m"),
        ];
        assert_eq!(told(frames), ["0:abc", "3..9", "9:j", "10..12", "12:m"]);
    }

    #[test]
    fn an_impossible_offset_is_an_error() {
        let mut heard = Heard::nothing(&|_| panic!("nothing to tell"));
        assert!(heard.hear(output(u64::MAX, "ab")).is_err());
    }
}
