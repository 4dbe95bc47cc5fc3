//! The stream that answers an action: its output as it comes, then its observation.
//!
//! A frame is one byte of kind, four bytes of payload length, and the payload; numbers are big-endian.
//!
//! | kind | payload |
//! |---|---|
//! | 1 output | eight bytes: offset of the first byte; then the bytes, as the terminal gave them |
//! | 2 gap | eight bytes: from; eight bytes: to. Output in between is no longer held |
//! | 3 observation | V0's observation as JSON, of a kind that answers an action; always the last frame |
//!
//! The kinds 4 to 6 are a process's: see [`super::ProcessFrame`]; 7 to 9 a terminal's: see [`super::TerminalInput`].

use std::marker::PhantomData;

use serde::Serialize;

use super::observation::parse_observation;
use crate::observation::Observation;

/// The longest payload that is read, in bytes: an observation holds at most a file that was read or edited whole,
/// twice, with JSON's escapes.
pub const MAX_FRAME_LENGTH: usize = 64 << 20;

/// The longest payload of an output frame, in bytes: listeners hold many, so one must be small.
pub const MAX_OUTPUT_LENGTH: usize = 128 << 10;

pub(super) const HEADER_LENGTH: usize = 5;

/// The kind of [`ActionFrame::Output`].
const OUTPUT: u8 = 1;

/// One piece of the answer to an action.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionFrame {
    /// Output of the action.
    Output {
        /// How many bytes of output were before these.
        offset: u64,
        /// As the terminal gave them.
        bytes: Vec<u8>,
    },
    /// Output that is no longer held.
    Gap {
        /// The first missing byte.
        from: u64,
        /// The first byte that is held again.
        to: u64,
    },
    /// How the action ended. Nothing follows.
    Observation(Box<Observation>),
}

/// Why bytes are not frames. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A kind of frame that we do not know.
    #[error("unknown kind of frame {0}")]
    UnknownKind(u8),
    /// A stream of a process that we do not know.
    #[error("unknown stream {0} of a process")]
    UnknownStream(u8),
    /// A payload that is longer than [`MAX_FRAME_LENGTH`], or an output than [`MAX_OUTPUT_LENGTH`].
    #[error("a frame of {0} bytes is longer than its kind may be")]
    TooLong(usize),
    /// A payload that is shorter than its kind needs.
    #[error("a frame of kind {kind} with {length} bytes")]
    TooShort {
        /// The kind.
        kind: u8,
        /// The payload's length.
        length: usize,
    },
    /// An observation of a kind that no action server answers with.
    #[error("an observation of the kind {0:?} answers no action")]
    UnexpectedObservation(String),
    /// An observation, or an exit, that is not one.
    #[error("decoding the JSON of a frame")]
    Json(#[from] serde_json::Error),
}

impl ActionFrame {
    /// Appends the frame's bytes.
    ///
    /// # Errors
    /// An observation that does not serialise or is longer than [`MAX_FRAME_LENGTH`].
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Output { offset, bytes } => Self::encode_output(*offset, bytes, into),
            Self::Gap { from, to } => encode_parts(2, &[&from.to_be_bytes(), &to.to_be_bytes()], into),
            Self::Observation(observation) => encode_json(3, observation, into),
        }
    }

    /// Appends the bytes of a [`ActionFrame::Output`], so that whoever sends many need not make one for each.
    ///
    /// # Errors
    /// As [`ActionFrame::encode`].
    pub fn encode_output(offset: u64, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), FrameError> {
        encode_parts(OUTPUT, &[&offset.to_be_bytes(), bytes], into)
    }
}

/// What a stream of frames can hold, so that one decoder serves every stream.
pub trait FramePayload: Sized {
    /// The longest payload of a frame of this kind, in bytes.
    fn max_payload_length(kind: u8) -> usize;

    /// Reads one payload.
    ///
    /// # Errors
    /// An unknown kind, or a payload that is not one of its kind.
    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError>;
}

impl FramePayload for ActionFrame {
    fn max_payload_length(kind: u8) -> usize {
        if kind == OUTPUT { MAX_OUTPUT_LENGTH } else { MAX_FRAME_LENGTH }
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        let too_short = || FrameError::TooShort { kind, length: payload.len() };
        match kind {
            OUTPUT => {
                let (offset, bytes) = payload.split_first_chunk().ok_or_else(too_short)?;
                Ok(Self::Output { offset: u64::from_be_bytes(*offset), bytes: bytes.to_vec() })
            }
            2 => {
                let (from, rest) = payload.split_first_chunk().ok_or_else(too_short)?;
                let (to, _) = rest.split_first_chunk().ok_or_else(too_short)?;
                Ok(Self::Gap { from: u64::from_be_bytes(*from), to: u64::from_be_bytes(*to) })
            }
            3 => Ok(Self::Observation(Box::new(parse_observation(payload)?))),
            other => Err(FrameError::UnknownKind(other)),
        }
    }
}

pub(super) fn encode_parts(kind: u8, parts: &[&[u8]], into: &mut Vec<u8>) -> Result<(), FrameError> {
    let length = parts.iter().map(|part| part.len()).sum();
    if length > MAX_FRAME_LENGTH {
        return Err(FrameError::TooLong(length));
    }
    into.push(kind);
    into.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| into.extend_from_slice(part));
    Ok(())
}

/// The same, of a payload that is JSON; a failure leaves `into` as it was.
pub(super) fn encode_json(kind: u8, payload: &impl Serialize, into: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = into.len();
    let body = start + HEADER_LENGTH;
    into.push(kind);
    into.extend_from_slice(&[0; 4]);
    let written = serde_json::to_writer(&mut *into, payload).map_err(FrameError::Json);
    let length = into.len() - body;
    match written {
        Ok(()) if length <= MAX_FRAME_LENGTH => {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            into[start + 1..body].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        Ok(()) => {
            into.truncate(start);
            Err(FrameError::TooLong(length))
        }
        Err(error) => {
            into.truncate(start);
            Err(error)
        }
    }
}

/// Cuts the answer to an action into frames.
pub type ActionFrameDecoder = FrameDecoder<ActionFrame>;

/// Cuts a stream of bytes into frames, however it is chunked.
#[derive(Debug)]
pub struct FrameDecoder<F> {
    buffer: Vec<u8>,
    read: usize,
    frames: PhantomData<F>,
}

impl<F> Default for FrameDecoder<F> {
    fn default() -> Self {
        Self { buffer: Vec::new(), read: 0, frames: PhantomData }
    }
}

impl<F: FramePayload> FrameDecoder<F> {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.buffer.drain(..self.read);
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or nothing until more bytes have come.
    ///
    /// # Errors
    /// See [`FrameError`]; the decoder is of no more use then.
    pub fn next_frame(&mut self) -> Result<Option<F>, FrameError> {
        let unread = &self.buffer[self.read..];
        let Some((header, rest)) = unread.split_first_chunk::<HEADER_LENGTH>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *header;
        let length = u32::from_be_bytes(length) as usize;
        if length > F::max_payload_length(kind) {
            return Err(FrameError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = F::decode(kind, payload)?;
        self.read += HEADER_LENGTH + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::{ActionFrame, ActionFrameDecoder, FrameError};
    use crate::observation::{ErrorObservation, Observation};

    fn frames() -> Vec<ActionFrame> {
        vec![
            ActionFrame::Output { offset: 7, bytes: b"a\xff\r\n".to_vec() },
            ActionFrame::Gap { from: 11, to: 4000 },
            ActionFrame::Output { offset: 4000, bytes: Vec::new() },
            ActionFrame::Observation(Box::new(Observation::new("ok", ErrorObservation::default()))),
        ]
    }

    #[test]
    fn frames_survive_any_chunking() {
        let mut bytes = Vec::new();
        frames().iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
        for chunk_length in 1..=bytes.len() {
            let mut decoder = ActionFrameDecoder::default();
            let mut decoded = Vec::new();
            for chunk in bytes.chunks(chunk_length) {
                decoder.push(chunk);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    decoded.push(frame);
                }
            }
            assert_eq!(decoded, frames(), "in chunks of {chunk_length}");
        }
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let decode = |bytes: &[u8]| {
            let mut decoder = ActionFrameDecoder::default();
            decoder.push(bytes);
            decoder.next_frame()
        };
        assert!(matches!(decode(&[9, 0, 0, 0, 0]), Err(FrameError::UnknownKind(9))));
        assert!(matches!(decode(&[1, 255, 255, 255, 255]), Err(FrameError::TooLong(_))));
        assert!(matches!(
            decode(&[2, 0, 0, 0, 3, 1, 2, 3]),
            Err(FrameError::TooShort { kind: 2, length: 3 })
        ));
        assert!(matches!(decode(&[3, 0, 0, 0, 2, b'{', b'}']), Err(FrameError::Json(_))));
    }
}
