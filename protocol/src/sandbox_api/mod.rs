//! What crosses between the host and the action server, beside HTTP's own words.
//!
//! | route | request → response |
//! |---|---|
//! | `GET /alive` | → `{"status":"ok"}`; open |
//! | `GET /v1/info` | → [`ServerInfo`] |
//! | `GET /v1/openapi.json` | → this API in OpenAPI's words, made from the code |
//! | `POST /v1/actions/{id}?after=OFFSET` | [`ActionRequest`] → [`ActionFrame`]s; the same id attaches, it never runs twice |
//! | `GET /v1/actions/{id}?after=OFFSET` | → [`ActionFrame`]s from that offset on |
//! | `DELETE /v1/actions/{id}` | ends the action's whole process tree → 204; its observation still comes |
//! | `GET /v1/sessions` | → a list of [`SessionInfo`] |
//! | `DELETE /v1/sessions/{name}` | kills all that runs in that shell, within a second → 204; the next action gets a new one |
//! | `PUT /v1/environment` | an object of names to values → 204: what everything that is started from then on has in its environment, over the server's own; a shell in which nothing ran yet too |
//! | `CONNECT /v1/terminal` | [`TerminalQuery`], [`TerminalInput`]s → [`TerminalOutput`]s of a fresh shell on a terminal; HTTP/2's extended CONNECT, or `GET` with `Upgrade` |
//! | `GET /v1/ports` | → a list of [`ListeningPort`] |
//! | `GET /v1/ports/{port}?wait=SECONDS` | → [`PortState`], as soon as something listens or the time is over |
//! | `CONNECT /v1/ports/{port}/tunnel` | → bytes to and from that port; HTTP/2's extended CONNECT, or `GET` with `Upgrade` |
//! | `CONNECT /v1/sockets/tunnel?path=PATH` | → the same for a unix socket |
//! | `GET`, `HEAD /v1/files?path=` | → the file's bytes, of a `range` if one is asked for |
//! | `PUT /v1/files?path=[&mode=0644]` | the file's bytes → [`FileStatus`]; 201 when it is new; whole or not at all |
//! | `DELETE /v1/files?path=[&recursive=true]` | → 204 |
//! | `GET /v1/files/stat?path=[&follow=true]` | → [`FileStatus`] |
//! | `GET /v1/files/list?path=[&depth=1][&hidden=true]` | [`ListQuery`] → [`FileList`], at most 10,000 |
//! | `POST /v1/files/move` | [`MoveRequest`] → [`FileStatus`] |
//! | `POST /v1/files/mkdir` | [`MakeFolderRequest`] → [`FileStatus`]; 201 when it is new |
//! | `POST /v1/files/chmod` | [`ChangeModeRequest`] → [`ModeChanged`] |
//! | `GET /v1/files/glob?path=&pattern=` | [`GlobQuery`] → [`FileList`], at most 10,000 |
//! | `GET /v1/files/grep?path=&pattern=` | [`GrepQuery`] → [`GrepMatches`] |
//! | `GET /v1/files/tree?path=` | → the folder as a tar archive |
//! | `PUT /v1/files/tree?path=` | a tar archive → 204; what would leave the folder is refused with 422 |
//! | `GET /v1/files/watch?path=[&recursive=true]` | → [`WatchEvent`]s, a line each, until the client goes |
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
//! Errors are an [`ErrorBody`] with a fitting status. A server with a root answers 403 `outside_root` to paths of files
//! that are not beneath it; a file action says so in its observation.
//!
//! `action-server v0` serves the routes of OpenHands V0's server instead, to its clients and in its words; no host of
//! ours speaks to it, so they are listed where they are served (`action-server/src/v0`).

mod action;
mod environment;
mod files;
mod frame;
mod info;
mod observation;
mod port;
mod process;
mod process_frame;
mod session;
mod terminal;

pub use action::{ActionRequest, NotASandboxAction, SandboxAction};
pub use environment::{CommandEnvironment, MAX_ENVIRONMENT_BYTES, MAX_VARIABLE_BYTES};
pub use files::{
    ChangeModeRequest, FileKind, FileList, FileMode, FileStatus, GlobQuery, GrepMatch, GrepMatches,
    GrepQuery, ListQuery, MakeFolderRequest, ModeChanged, MoveRequest, PathQuery, RemoveQuery, StatusQuery,
    UploadQuery, WatchEvent, WatchQuery,
};
pub use frame::{
    ActionFrame, ActionFrameDecoder, FrameDecoder, FrameError, FramePayload, MAX_FRAME_LENGTH,
    MAX_OUTPUT_LENGTH,
};
pub use info::{Capability, ErrorBody, ErrorCode, ServerInfo, ServerLimits};
pub use port::{ListeningPort, PortProcess, PortState};
pub use process::{
    ExitReason, ProcessExit, ProcessInfo, ProcessLimits, ProcessRequest, ProcessState, ProcessStdin,
    ProcessUsage, SignalName, SignalRequest, SignalScope,
};
pub use process_frame::{OutputStream, ProcessFrame, ProcessFrameDecoder};
pub use session::SessionInfo;
pub use terminal::{TerminalInput, TerminalOutput, TerminalQuery};

/// The header that carries the server's key, as V0 names it.
pub const KEY_HEADER: &str = "x-session-api-key";

/// The media type of a stream of [`ActionFrame`]s.
pub const FRAMES_MEDIA_TYPE: &str = "application/vnd.glovebox.frames";

/// The media type of a folder's archive.
pub const TREE_MEDIA_TYPE: &str = "application/x-tar";

/// The media type of [`WatchEvent`]s, one a line.
pub const WATCH_MEDIA_TYPE: &str = "application/x-ndjson";

/// What `action-server dial` writes before the bytes of the server's socket: a host that reads anything else first
/// is not talking to an action server.
pub const DIAL_GREETING: &[u8] = b"glovebox dial 1\n";
