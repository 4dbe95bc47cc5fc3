//! The response stream of an action: its output as it arrives, then its observation.
//!
//! A frame consists of one byte for the kind, four bytes for the payload's length, and the payload.
//! Integers are big-endian.
//!
//! | kind | payload |
//! |---|---|
//! | 1 output | eight bytes: offset of the first byte; then the bytes that the terminal wrote |
//! | 2 gap | eight bytes: from; eight bytes: to. Output in between is no longer retained |
//! | 3 observation | V0's observation as JSON, of a kind that an action results in; always the last frame |
//!
//! Kinds 4 to 6 belong to processes (see [`super::ProcessFrame`]), 7 to 9 to terminals (see
//! [`super::TerminalInput`]).

use std::marker::PhantomData;

use serde::Serialize;

use super::observation::parse_observation;
use crate::observation::Observation;

/// Maximum length of a payload, in bytes. An observation holds at most two copies of a file (before
/// and after an edit), with JSON's escapes.
pub const MAX_FRAME_LENGTH: usize = 64 << 20;

/// Maximum length of the payload of an output frame, in bytes. Small, because receivers buffer many
/// frames.
pub const MAX_OUTPUT_LENGTH: usize = 128 << 10;

pub(super) const HEADER_LENGTH: usize = 5;

/// The kind of [`ActionFrame::Output`].
const OUTPUT: u8 = 1;

/// A frame of the response stream of an action.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionFrame {
    /// Output of the action.
    Output {
        /// The number of bytes of output that precede these.
        offset: u64,
        /// The bytes that the terminal wrote.
        bytes: Vec<u8>,
    },
    /// Output that is no longer retained.
    Gap {
        /// The offset of the first missing byte.
        from: u64,
        /// The offset of the first retained byte after the gap.
        to: u64,
    },
    /// The result of the action. The last frame.
    Observation(Box<Observation>),
}

/// The error of a malformed stream. The connection cannot be used any further.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// An unknown kind of frame.
    #[error("unknown kind of frame {0}")]
    UnknownKind(u8),
    /// An unknown output stream of a process.
    #[error("unknown output stream {0} of a process")]
    UnknownStream(u8),
    /// A payload exceeds [`MAX_FRAME_LENGTH`], or [`MAX_OUTPUT_LENGTH`] if it is output.
    #[error("a frame of {0} bytes exceeds the maximum length of its kind")]
    TooLong(usize),
    /// A payload is too short for its kind.
    #[error("a frame of kind {kind} is too short, with {length} bytes")]
    TooShort {
        /// The kind.
        kind: u8,
        /// The payload's length.
        length: usize,
    },
    /// An observation of a kind that does not originate at an action server.
    #[error("unexpected observation of kind {0:?} from an action server")]
    UnexpectedObservation(String),
    /// The JSON of an observation or an exit is invalid.
    #[error("cannot decode the JSON of a frame")]
    Json(#[from] serde_json::Error),
}

impl ActionFrame {
    /// Appends the encoded frame to `into`.
    ///
    /// # Errors
    /// The observation does not serialize, or exceeds [`MAX_FRAME_LENGTH`].
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Output { offset, bytes } => Self::encode_output(*offset, bytes, into),
            Self::Gap { from, to } => {
                encode_parts(2, &[&from.to_be_bytes(), &to.to_be_bytes()], into)
            }
            Self::Observation(observation) => encode_json(3, observation, into),
        }
    }

    /// Appends an encoded [`ActionFrame::Output`] to `into`, without a copy of the bytes.
    ///
    /// # Errors
    /// See [`ActionFrame::encode`].
    pub fn encode_output(offset: u64, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), FrameError> {
        encode_parts(OUTPUT, &[&offset.to_be_bytes(), bytes], into)
    }
}

/// The frames of one kind of stream. [`FrameDecoder`] is generic over it.
pub trait FramePayload: Sized {
    /// Maximum length of the payload of this kind of frame, in bytes.
    fn max_payload_length(kind: u8) -> usize;

    /// Decodes a payload.
    ///
    /// # Errors
    /// The kind is unknown, or the payload does not match it.
    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError>;
}

impl FramePayload for ActionFrame {
    fn max_payload_length(kind: u8) -> usize {
        if kind == OUTPUT {
            MAX_OUTPUT_LENGTH
        } else {
            MAX_FRAME_LENGTH
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        let too_short = || FrameError::TooShort {
            kind,
            length: payload.len(),
        };
        match kind {
            OUTPUT => {
                let (offset, bytes) = payload.split_first_chunk().ok_or_else(too_short)?;
                Ok(Self::Output {
                    offset: u64::from_be_bytes(*offset),
                    bytes: bytes.to_vec(),
                })
            }
            2 => {
                let (from, rest) = payload.split_first_chunk().ok_or_else(too_short)?;
                let (to, _) = rest.split_first_chunk().ok_or_else(too_short)?;
                Ok(Self::Gap {
                    from: u64::from_be_bytes(*from),
                    to: u64::from_be_bytes(*to),
                })
            }
            3 => Ok(Self::Observation(Box::new(parse_observation(payload)?))),
            other => Err(FrameError::UnknownKind(other)),
        }
    }
}

pub(super) fn encode_parts(
    kind: u8,
    parts: &[&[u8]],
    into: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let length = parts.iter().map(|part| part.len()).sum();
    if length > MAX_FRAME_LENGTH {
        return Err(FrameError::TooLong(length));
    }
    into.push(kind);
    into.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| into.extend_from_slice(part));
    Ok(())
}

/// Appends a frame with a JSON payload. On failure, `into` is unchanged.
pub(super) fn encode_json(
    kind: u8,
    payload: &impl Serialize,
    into: &mut Vec<u8>,
) -> Result<(), FrameError> {
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

/// Decodes the response stream of an action.
pub type ActionFrameDecoder = FrameDecoder<ActionFrame>;

/// Decodes a stream of bytes into frames, independently of how the stream is chunked.
#[derive(Debug)]
pub struct FrameDecoder<F> {
    buffer: Vec<u8>,
    read: usize,
    frames: PhantomData<F>,
}

impl<F> Default for FrameDecoder<F> {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            read: 0,
            frames: PhantomData,
        }
    }
}

impl<F: FramePayload> FrameDecoder<F> {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.buffer.drain(..self.read);
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame. `None` if it is not complete yet.
    ///
    /// # Errors
    /// See [`FrameError`]. The decoder cannot be used any further.
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
            ActionFrame::Output {
                offset: 7,
                bytes: b"a\xff\r\n".to_vec(),
            },
            ActionFrame::Gap { from: 11, to: 4000 },
            ActionFrame::Output {
                offset: 4000,
                bytes: Vec::new(),
            },
            ActionFrame::Observation(Box::new(Observation::new(
                "ok",
                ErrorObservation::default(),
            ))),
        ]
    }

    #[test]
    fn frames_are_decoded_from_chunks_of_any_length() {
        let mut bytes = Vec::new();
        frames()
            .iter()
            .for_each(|frame| frame.encode(&mut bytes).unwrap());
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
    fn malformed_bytes_are_errors() {
        let decode = |bytes: &[u8]| {
            let mut decoder = ActionFrameDecoder::default();
            decoder.push(bytes);
            decoder.next_frame()
        };
        assert!(matches!(
            decode(&[9, 0, 0, 0, 0]),
            Err(FrameError::UnknownKind(9))
        ));
        assert!(matches!(
            decode(&[1, 255, 255, 255, 255]),
            Err(FrameError::TooLong(_))
        ));
        assert!(matches!(
            decode(&[2, 0, 0, 0, 3, 1, 2, 3]),
            Err(FrameError::TooShort { kind: 2, length: 3 })
        ));
        assert!(matches!(
            decode(&[3, 0, 0, 0, 2, b'{', b'}']),
            Err(FrameError::Json(_))
        ));
    }
}
