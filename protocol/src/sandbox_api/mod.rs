//! What crosses between the host and the action server, beside HTTP's own words.
//!
//! | route | request → response |
//! |---|---|
//! | `GET /alive` | → `{"status":"ok"}`; open |
//! | `GET /v1/info` | → [`Info`] |
//! | `POST /v1/actions/{id}?after=OFFSET` | [`ActionRequest`] → [`Frame`]s; the same id attaches, it never runs twice |
//! | `GET /v1/actions/{id}?after=OFFSET` | → [`Frame`]s from that offset on |
//! | `DELETE /v1/actions/{id}` | ends the action's whole process tree → 204; its observation still comes |
//! | `GET /v1/sessions` | → a list of [`SessionInfo`] |
//! | `DELETE /v1/sessions/{name}` | kills all that runs in that shell, within a second → 204; the next action gets a new one |
//! | `GET /v1/ports` | → a list of [`ListeningPort`] |
//! | `GET /v1/ports/{port}?wait=SECONDS` | → [`PortState`], as soon as something listens or the time is over |
//! | `CONNECT /v1/ports/{port}/tunnel` | → bytes to and from that port; HTTP/2's extended CONNECT, or `GET` with `Upgrade` |
//! | `CONNECT /v1/sockets/tunnel?path=PATH` | → the same for a unix socket |
//! | `POST /execute_action` | V0: `{"action": event}` → observation |
//!
//! Errors are an [`ErrorBody`] with a fitting status.
//!
//! `action-server v0` serves the routes of OpenHands V0's server instead, to its clients and in its words; no host of
//! ours speaks to it, so they are listed where they are served (`action-server/src/v0`).

mod action;
mod frame;
mod info;
mod port;
mod session;

pub use action::{ActionRequest, NotForASandbox, SandboxAction};
pub use frame::{Frame, FrameDecoder, FrameError, MAX_FRAME_LENGTH, MAX_OUTPUT_LENGTH};
pub use info::{Capability, ErrorBody, ErrorCode, Info, Limits};
pub use port::{ListeningPort, PortProcess, PortState};
pub use session::SessionInfo;

/// The header that carries the server's key, as V0 names it.
pub const KEY_HEADER: &str = "x-session-api-key";

/// The media type of a stream of [`Frame`]s.
pub const FRAMES_MEDIA_TYPE: &str = "application/vnd.glovebox.frames";

/// What `action-server dial` writes before the bytes of the server's socket: a host that reads anything else first
/// is not talking to an action server.
pub const DIAL_GREETING: &[u8] = b"glovebox dial 1\n";
