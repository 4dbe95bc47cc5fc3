//! The response stream of a process: its output as it arrives, then its exit.
//!
//! Uses the framing of an action's stream (see [`super::ActionFrame`]) with its own kinds. Integers
//! are big-endian.
//!
//! | kind | payload |
//! |---|---|
//! | 4 output | one byte: 1 stdout, 2 stderr; eight bytes: offset of the first byte in its stream; then the bytes |
//! | 5 gap | one byte: the stream; eight bytes: from; eight bytes: to. Output in between is no longer retained |
//! | 6 exit | a [`ProcessExit`] as JSON; always the last frame |

use super::frame::{
    FrameDecoder, FrameError, FramePayload, HEADER_LENGTH, MAX_FRAME_LENGTH, MAX_OUTPUT_LENGTH,
    encode_json, encode_parts,
};
use super::process::ProcessExit;

const OUTPUT: u8 = 4;
const GAP: u8 = 5;
const EXIT: u8 = 6;

/// Length of the stream and the offset, which precede the bytes of an output frame.
const OUTPUT_HEADER_LENGTH: usize = 9;

/// An output stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// File descriptor 1.
    Stdout = 1,
    /// File descriptor 2.
    Stderr = 2,
}

/// A frame of the response stream of a process.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessFrame {
    /// Output of the process.
    Output {
        /// The stream it was written to.
        stream: OutputStream,
        /// The number of bytes of this stream that precede these.
        offset: u64,
        /// The bytes, unmodified.
        bytes: Vec<u8>,
    },
    /// Output that is no longer retained.
    Gap {
        /// The stream.
        stream: OutputStream,
        /// The offset of the first missing byte.
        from: u64,
        /// The offset of the first retained byte after the gap.
        to: u64,
    },
    /// The exit of the process. The last frame.
    Exit(Box<ProcessExit>),
}

/// Decodes the response stream of a process.
pub type ProcessFrameDecoder = FrameDecoder<ProcessFrame>;

impl ProcessFrame {
    /// Appends the encoded frame to `into`.
    ///
    /// # Errors
    /// The exit does not serialize, or the payload exceeds [`MAX_FRAME_LENGTH`].
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Output {
                stream,
                offset,
                bytes,
            } => encode_parts(
                OUTPUT,
                &[&[*stream as u8], &offset.to_be_bytes(), bytes],
                into,
            ),
            Self::Gap { stream, from, to } => encode_parts(
                GAP,
                &[&[*stream as u8], &from.to_be_bytes(), &to.to_be_bytes()],
                into,
            ),
            Self::Exit(exit) => encode_json(EXIT, exit, into),
        }
    }

    /// Returns the header of an output frame of `length` bytes, so that the sender need not copy
    /// the bytes.
    #[must_use]
    pub fn output_header(stream: OutputStream, offset: u64, length: usize) -> Vec<u8> {
        let payload = u32::try_from(length + OUTPUT_HEADER_LENGTH).unwrap_or(u32::MAX);
        let mut header = Vec::with_capacity(HEADER_LENGTH + OUTPUT_HEADER_LENGTH);
        header.push(OUTPUT);
        header.extend_from_slice(&payload.to_be_bytes());
        header.push(stream as u8);
        header.extend_from_slice(&offset.to_be_bytes());
        header
    }
}

impl FramePayload for ProcessFrame {
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
        let stream = || -> Result<(OutputStream, &[u8]), FrameError> {
            match payload.split_first().ok_or_else(too_short)? {
                (1, rest) => Ok((OutputStream::Stdout, rest)),
                (2, rest) => Ok((OutputStream::Stderr, rest)),
                (&other, _) => Err(FrameError::UnknownStream(other)),
            }
        };
        match kind {
            OUTPUT => {
                let (stream, rest) = stream()?;
                let (offset, bytes) = rest.split_first_chunk().ok_or_else(too_short)?;
                Ok(Self::Output {
                    stream,
                    offset: u64::from_be_bytes(*offset),
                    bytes: bytes.to_vec(),
                })
            }
            GAP => {
                let (stream, rest) = stream()?;
                let (from, rest) = rest.split_first_chunk().ok_or_else(too_short)?;
                let (to, _) = rest.split_first_chunk().ok_or_else(too_short)?;
                Ok(Self::Gap {
                    stream,
                    from: u64::from_be_bytes(*from),
                    to: u64::from_be_bytes(*to),
                })
            }
            EXIT => Ok(Self::Exit(serde_json::from_slice(payload)?)),
            other => Err(FrameError::UnknownKind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputStream, ProcessFrame, ProcessFrameDecoder};
    use crate::sandbox_api::{ExitReason, FrameError, ProcessExit};

    #[test]
    fn frames_round_trip() {
        let frames = [
            ProcessFrame::Output {
                stream: OutputStream::Stdout,
                offset: 7,
                bytes: b"a\xff\0".to_vec(),
            },
            ProcessFrame::Gap {
                stream: OutputStream::Stderr,
                from: 1,
                to: 1 << 40,
            },
            ProcessFrame::Exit(Box::new(ProcessExit {
                code: None,
                signal: Some(9),
                reason: ExitReason::TimedOut,
                error: None,
                out_of_memory: true,
                usage: None,
            })),
        ];
        let mut bytes = Vec::new();
        frames
            .iter()
            .for_each(|frame| frame.encode(&mut bytes).unwrap());
        let mut decoder = ProcessFrameDecoder::default();
        for byte in bytes.chunks(1) {
            decoder.push(byte);
        }
        for frame in frames {
            assert_eq!(decoder.next_frame().unwrap(), Some(frame));
        }
        assert_eq!(decoder.next_frame().unwrap(), None);
    }

    #[test]
    fn output_header_and_bytes_form_an_output_frame() {
        let frame = ProcessFrame::Output {
            stream: OutputStream::Stderr,
            offset: 3,
            bytes: b"xy".to_vec(),
        };
        let mut whole = Vec::new();
        frame.encode(&mut whole).unwrap();
        assert_eq!(
            [
                &ProcessFrame::output_header(OutputStream::Stderr, 3, 2)[..],
                b"xy"
            ]
            .concat(),
            whole
        );
    }

    #[test]
    fn malformed_bytes_are_errors() {
        let decode = |bytes: &[u8]| {
            let mut decoder = ProcessFrameDecoder::default();
            decoder.push(bytes);
            decoder.next_frame()
        };
        assert!(matches!(
            decode(&[1, 0, 0, 0, 0]),
            Err(FrameError::UnknownKind(1))
        ));
        assert!(matches!(
            decode(&[4, 0, 0, 0, 1, 3]),
            Err(FrameError::UnknownStream(3))
        ));
        assert!(matches!(
            decode(&[4, 255, 0, 0, 0]),
            Err(FrameError::TooLong(_))
        ));
        assert!(matches!(
            decode(&[5, 0, 0, 0, 2, 1, 0]),
            Err(FrameError::TooShort { kind: 5, length: 2 })
        ));
        assert!(matches!(
            decode(&[6, 0, 0, 0, 2, b'{', b'}']),
            Err(FrameError::Json(_))
        ));
    }
}
