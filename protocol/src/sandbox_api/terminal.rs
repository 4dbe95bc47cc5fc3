//! An interactive terminal: a new shell or one command, with input, resizing, output and exit in
//! one stream.
//!
//! Uses the framing of an action's stream (see [`super::ActionFrame`]) with its own kinds. Integers
//! are big-endian.
//!
//! | kind | direction | payload |
//! |---|---|---|
//! | 7 keys | in | the bytes of the key presses |
//! | 8 resize | in | two bytes: columns; two bytes: rows |
//! | 9 output | out | the bytes that the terminal wrote |
//! | 6 exit | out | a [`ProcessExit`] as JSON; always the last frame |
//!
//! Closing the stream kills the process tree of the terminal.

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
    /// Width, in characters.
    #[serde(default = "columns")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub columns: u16,
    /// Height, in lines.
    #[serde(default = "rows")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub rows: u16,
    /// The terminal type, for `TERM`.
    #[serde(default = "term")]
    pub term: String,
    /// The shell command to run. `None` for an interactive shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Default for TerminalQuery {
    fn default() -> Self {
        Self {
            columns: columns(),
            rows: rows(),
            term: term(),
            command: None,
        }
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

/// A frame to the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalInput {
    /// Key presses.
    Keys(Vec<u8>),
    /// The window was resized.
    Resize {
        /// Width, in characters.
        columns: u16,
        /// Height, in lines.
        rows: u16,
    },
}

/// A frame from the terminal.
#[derive(Debug, Clone, PartialEq)]
pub enum TerminalOutput {
    /// Output to display.
    Output(Vec<u8>),
    /// The exit of the shell or the command. The last frame.
    Exit(Box<ProcessExit>),
}

impl TerminalInput {
    /// Appends the encoded frame to `into`.
    ///
    /// # Errors
    /// The keys exceed [`MAX_OUTPUT_LENGTH`] bytes.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Keys(bytes) => encode_bytes(KEYS, bytes, into),
            Self::Resize { columns, rows } => {
                encode_parts(RESIZE, &[&columns.to_be_bytes(), &rows.to_be_bytes()], into)
            }
        }
    }
}

impl TerminalOutput {
    /// Appends an encoded [`Self::Output`] to `into`, without a copy of the bytes.
    ///
    /// # Errors
    /// The output exceeds [`MAX_OUTPUT_LENGTH`] bytes.
    pub fn encode_output(bytes: &[u8], into: &mut Vec<u8>) -> Result<(), FrameError> {
        encode_bytes(OUTPUT, bytes, into)
    }

    /// Appends the encoded frame to `into`.
    ///
    /// # Errors
    /// The exit does not serialize, or the output exceeds [`MAX_OUTPUT_LENGTH`] bytes.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Output(bytes) => Self::encode_output(bytes, into),
            Self::Exit(exit) => encode_json(EXIT, exit, into),
        }
    }
}

fn encode_bytes(kind: u8, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), FrameError> {
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
            (RESIZE, _) => Err(FrameError::TooShort {
                kind,
                length: payload.len(),
            }),
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
        let frames: Result<Vec<T>, _> = (0..count)
            .map(|_| decoder.next_frame().map(|frame| frame.unwrap()))
            .collect();
        assert!(frames.is_err() || decoder.next_frame().unwrap().is_none());
        frames
    }

    #[test]
    fn frames_round_trip() {
        let inputs = [
            TerminalInput::Keys(b"ls\r\x03".to_vec()),
            TerminalInput::Resize {
                columns: 300,
                rows: 50,
            },
        ];
        let mut bytes = Vec::new();
        inputs
            .iter()
            .for_each(|frame| frame.encode(&mut bytes).unwrap());
        assert_eq!(decoded::<TerminalInput>(&bytes, 2).unwrap(), inputs);

        let exit = ProcessExit {
            code: Some(3),
            signal: None,
            reason: ExitReason::Exited,
            error: None,
            usage: None,
            out_of_memory: false,
        };
        let outputs = [
            TerminalOutput::Output(b"\x1b[2J\xff".to_vec()),
            TerminalOutput::Exit(Box::new(exit)),
        ];
        let mut bytes = Vec::new();
        outputs
            .iter()
            .for_each(|frame| frame.encode(&mut bytes).unwrap());
        assert_eq!(decoded::<TerminalOutput>(&bytes, 2).unwrap(), outputs);
    }

    #[test]
    fn malformed_bytes_are_errors() {
        let input = |bytes: &[u8]| decoded::<TerminalInput>(bytes, 1);
        assert!(matches!(
            input(&[9, 0, 0, 0, 0]),
            Err(FrameError::UnknownKind(9))
        ));
        assert!(matches!(
            input(&[7, 1, 0, 0, 0]),
            Err(FrameError::TooLong(_))
        ));
        assert!(matches!(
            input(&[8, 0, 0, 0, 3, 0, 1, 0]),
            Err(FrameError::TooShort { .. })
        ));
        assert!(matches!(
            decoded::<TerminalOutput>(&[7, 0, 0, 0, 0], 1),
            Err(FrameError::UnknownKind(7))
        ));
        let long = TerminalInput::Keys(vec![0; super::MAX_OUTPUT_LENGTH + 1]);
        assert!(matches!(
            long.encode(&mut Vec::new()),
            Err(FrameError::TooLong(_))
        ));
    }
}
