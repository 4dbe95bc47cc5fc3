//! What crosses between the host and the action server, beside HTTP's own words.
//!
//! | route | request → response |
//! |---|---|
//! | `GET /alive` | → `{"status":"ok"}`; open |
//! | `GET /v1/info` | → [`Info`] |
//! | `POST /v1/actions/{id}?after=OFFSET` | [`ActionRequest`] → [`Frame`]s; the same id attaches, it never runs twice |
//! | `GET /v1/actions/{id}?after=OFFSET` | → [`Frame`]s from that offset on |
//! | `DELETE /v1/actions/{id}` | ends the action's whole process tree → 204; its observation still comes |
//! | `POST /v1/actions/{id}/acknowledge` | forgets an ended action: its id is 410 from then on → 204; 409 while it runs |
//! | `GET /v1/processes` | → a list of [`ProcessInfo`], the running and the ended ones that are still held |
//! | `POST /v1/processes/{id}?follow=true&stdout=OFFSET&stderr=OFFSET` | [`ProcessRequest`] → [`ProcessFrame`]s until the exit; the same id attaches, it never starts twice. With `follow=false` → 201 [`ProcessInfo`] at once |
//! | `GET /v1/processes/{id}` | → [`ProcessInfo`] |
//! | `DELETE /v1/processes/{id}` | kills the process's whole tree → 204; its exit still comes |
//! | `POST /v1/processes/{id}/acknowledge` | forgets an ended process → 204; 409 while it runs |
//! | `GET /v1/processes/{id}/output?stdout=OFFSET&stderr=OFFSET&follow=false` | → [`ProcessFrame`]s: what is there, and its exit if it has one; with `follow=true` until the exit |
//! | `POST /v1/processes/{id}/stdin?close=false` | bytes of any length → 204 once they are written; 409 when it reads none |
//! | `POST /v1/processes/{id}/signal` | [`SignalRequest`] → 204; 409 when it has ended |
//! | `POST /execute_action` | V0: `{"action": event}` → observation |
//!
//! Errors are an [`ErrorBody`] with a fitting status.

mod action;
mod frame;
mod info;
mod process;
mod process_frame;

pub use action::{ActionRequest, NotForASandbox, SandboxAction};
pub use frame::{
    Decoder, Frame, FrameDecoder, FrameError, FramePayload, MAX_FRAME_LENGTH, MAX_OUTPUT_LENGTH,
};
pub use info::{Capability, ErrorBody, ErrorCode, Info, Limits};
pub use process::{
    ExitReason, ProcessExit, ProcessInfo, ProcessLimits, ProcessRequest, ProcessState, ProcessStdin,
    ProcessUsage, SignalName, SignalRequest, SignalScope,
};
pub use process_frame::{OutputStream, ProcessFrame, ProcessFrameDecoder};

/// The header that carries the server's key, as V0 names it.
pub const KEY_HEADER: &str = "x-session-api-key";

/// The media type of a stream of [`Frame`]s.
pub const FRAMES_MEDIA_TYPE: &str = "application/vnd.glovebox.frames";

/// What `action-server dial` writes before the bytes of the server's socket: a host that reads anything else first
/// is not talking to an action server.
pub const DIAL_GREETING: &[u8] = b"glovebox dial 1\n";
