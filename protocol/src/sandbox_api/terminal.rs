//! A terminal for a person: a fresh shell or one command, with its keys, its size, its screen and its exit in one stream.
//!
//! Framed as an action's stream is (see [`super::ActionFrame`]), with kinds of its own; numbers are big-endian.
//!
//! | kind | direction | payload |
//! |---|---|---|
//! | 7 typed | in | the bytes, as a terminal's line would bring them |
//! | 8 size | in | two bytes: columns; two bytes: rows |
//! | 9 shown | out | the bytes, as the terminal gave them |
//! | 6 exit | out | a [`ProcessExit`] as JSON; always the last frame |
//!
//! Whoever closes the stream ends what runs on the terminal, the whole process tree.

use serde::{Deserialize, Serialize};

use super::frame::{FrameError, FramePayload, MAX_OUTPUT_LENGTH, encode_json, encode_parts};
use super::process::ProcessExit;

const EXIT: u8 = 6;
const KEYS: u8 = 7;
const RESIZE: u8 = 8;
const OUTPUT: u8 = 9;

/// Query of `CONNECT /v1/terminal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct TerminalQuery {
    /// How wide it is, in characters.
    #[serde(default = "columns")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub columns: u16,
    /// How tall it is, in lines.
    #[serde(default = "rows")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub rows: u16,
    /// What it understands, for `TERM`.
    #[serde(default = "term")]
    pub term: String,
    /// Shell text to run; without it the shell itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Default for TerminalQuery {
    fn default() -> Self {
        Self { columns: columns(), rows: rows(), term: term(), command: None }
    }
}

fn columns() -> u16 {
    80
}

fn rows() -> u16 {
    24
}

fn term() -> String {
    "xterm-256color".into()
}

/// What a terminal is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalInput {
    /// Keys.
    Keys(Vec<u8>),
    /// It has another size now.
    Resize {
        /// How wide, in characters.
        columns: u16,
        /// How tall, in lines.
        rows: u16,
    },
}

/// What comes of a terminal.
#[derive(Debug, Clone, PartialEq)]
pub enum TerminalOutput {
    /// What is to be shown.
    Output(Vec<u8>),
    /// How the shell or the command ended. Nothing follows.
    Exit(Box<ProcessExit>),
}

impl TerminalInput {
    /// Appends the frame's bytes.
    ///
    /// # Errors
    /// More than [`MAX_OUTPUT_LENGTH`] bytes of keys.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Keys(bytes) => encode_piece(KEYS, bytes, into),
            Self::Resize { columns, rows } => {
                encode_parts(RESIZE, &[&columns.to_be_bytes(), &rows.to_be_bytes()], into)
            }
        }
    }
}

impl TerminalOutput {
    /// Appends the bytes of [`Self::Output`], so that whoever sends many need not make one for each.
    ///
    /// # Errors
    /// More than [`MAX_OUTPUT_LENGTH`] bytes.
    pub fn encode_output(bytes: &[u8], into: &mut Vec<u8>) -> Result<(), FrameError> {
        encode_piece(OUTPUT, bytes, into)
    }

    /// Appends the frame's bytes.
    ///
    /// # Errors
    /// An exit that does not serialise, or more than [`MAX_OUTPUT_LENGTH`] bytes to show.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Output(bytes) => Self::encode_output(bytes, into),
            Self::Exit(exit) => encode_json(EXIT, exit, into),
        }
    }
}

fn encode_piece(kind: u8, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), FrameError> {
    if bytes.len() > MAX_OUTPUT_LENGTH {
        return Err(FrameError::TooLong(bytes.len()));
    }
    encode_parts(kind, &[bytes], into)
}

impl FramePayload for TerminalInput {
    fn max_payload_length(_kind: u8) -> usize {
        MAX_OUTPUT_LENGTH
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        match (kind, payload) {
            (KEYS, bytes) => Ok(Self::Keys(bytes.to_vec())),
            (RESIZE, &[column, columns, row, rows]) => Ok(Self::Resize {
                columns: u16::from_be_bytes([column, columns]),
                rows: u16::from_be_bytes([row, rows]),
            }),
            (RESIZE, _) => Err(FrameError::TooShort { kind, length: payload.len() }),
            (other, _) => Err(FrameError::UnknownKind(other)),
        }
    }
}

impl FramePayload for TerminalOutput {
    fn max_payload_length(_kind: u8) -> usize {
        MAX_OUTPUT_LENGTH
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        match kind {
            OUTPUT => Ok(Self::Output(payload.to_vec())),
            EXIT => Ok(Self::Exit(serde_json::from_slice(payload)?)),
            other => Err(FrameError::UnknownKind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TerminalInput, TerminalOutput};
    use crate::sandbox_api::{ExitReason, FrameDecoder, FrameError, FramePayload, ProcessExit};

    fn decoded<T: FramePayload>(bytes: &[u8], count: usize) -> Result<Vec<T>, FrameError> {
        let mut decoder = FrameDecoder::default();
        bytes.iter().for_each(|&byte| decoder.push(&[byte]));
        let frames: Result<Vec<T>, _> =
            (0..count).map(|_| decoder.next_frame().map(|frame| frame.unwrap())).collect();
        assert!(frames.is_err() || decoder.next_frame().unwrap().is_none());
        frames
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let inputs =
            [TerminalInput::Keys(b"ls\r\x03".to_vec()), TerminalInput::Resize { columns: 300, rows: 50 }];
        let mut bytes = Vec::new();
        inputs.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
        assert_eq!(decoded::<TerminalInput>(&bytes, 2).unwrap(), inputs);

        let exit = ProcessExit {
            code: Some(3),
            signal: None,
            reason: ExitReason::Exited,
            error: None,
            usage: None,
            out_of_memory: false,
        };
        let outputs = [TerminalOutput::Output(b"\x1b[2J\xff".to_vec()), TerminalOutput::Exit(Box::new(exit))];
        let mut bytes = Vec::new();
        outputs.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
        assert_eq!(decoded::<TerminalOutput>(&bytes, 2).unwrap(), outputs);
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let input = |bytes: &[u8]| decoded::<TerminalInput>(bytes, 1);
        assert!(matches!(input(&[9, 0, 0, 0, 0]), Err(FrameError::UnknownKind(9))));
        assert!(matches!(input(&[7, 1, 0, 0, 0]), Err(FrameError::TooLong(_))));
        assert!(matches!(input(&[8, 0, 0, 0, 3, 0, 1, 0]), Err(FrameError::TooShort { .. })));
        assert!(matches!(decoded::<TerminalOutput>(&[7, 0, 0, 0, 0], 1), Err(FrameError::UnknownKind(7))));
        let long = TerminalInput::Keys(vec![0; super::MAX_OUTPUT_LENGTH + 1]);
        assert!(matches!(long.encode(&mut Vec::new()), Err(FrameError::TooLong(_))));
    }
}
