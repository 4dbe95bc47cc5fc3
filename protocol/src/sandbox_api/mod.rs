//! The API between the host and the action server.
//!
//! | route | request → response |
//! |---|---|
//! | `GET /alive` | → `{"status":"ok"}`; needs no key |
//! | `GET /v1/info` | → [`ServerInfo`] |
//! | `GET /v1/openapi.json` | → this API as an OpenAPI document, generated from the code |
//! | `POST /v1/actions/{id}?after=OFFSET` | [`ActionRequest`] → [`ActionFrame`]s; the same id attaches, it never runs twice |
//! | `GET /v1/actions/{id}?after=OFFSET` | → [`ActionFrame`]s from that offset |
//! | `DELETE /v1/actions/{id}` | kills the action's process tree → 204; its observation still follows |
//! | `GET /v1/sessions` | → a list of [`SessionInfo`] |
//! | `DELETE /v1/sessions/{name}` | kills the shell and all its processes within a second → 204; the next action gets a new shell |
//! | `PUT /v1/environment` | an object of names to values → 204; overrides the server's environment for every process started from then on, and for unused shells |
//! | `CONNECT /v1/terminal` | [`TerminalQuery`], [`TerminalInput`]s → [`TerminalOutput`]s of a new shell in a terminal; HTTP/2's extended CONNECT, or `GET` with `Upgrade` |
//! | `GET /v1/ports` | → a list of [`ListeningPort`] |
//! | `GET /v1/ports/{port}?wait=SECONDS` | → [`PortState`], once a process listens or the time has passed |
//! | `CONNECT /v1/ports/{port}/tunnel` | → bytes to and from that port; HTTP/2's extended CONNECT, or `GET` with `Upgrade` |
//! | `CONNECT /v1/sockets/tunnel?path=PATH` | → the same for a unix socket |
//! | `GET`, `HEAD /v1/files?path=` | → the content of the file, or of the `range` that the request names |
//! | `PUT /v1/files?path=[&mode=0644]` | the content → [`FileStatus`]; 201 if the file is new; atomic |
//! | `DELETE /v1/files?path=[&recursive=true]` | → 204 |
//! | `GET /v1/files/stat?path=[&follow=true]` | → [`FileStatus`] |
//! | `GET /v1/files/list?path=[&depth=1][&hidden=true]` | [`ListQuery`] → [`FileList`], at most 10,000 |
//! | `POST /v1/files/move` | [`MoveRequest`] → [`FileStatus`] |
//! | `POST /v1/files/mkdir` | [`MakeFolderRequest`] → [`FileStatus`]; 201 if the folder is new |
//! | `POST /v1/files/chmod` | [`ChangeModeRequest`] → [`ModeChanged`] |
//! | `GET /v1/files/glob?path=&pattern=` | [`GlobQuery`] → [`FileList`], at most 10,000 |
//! | `GET /v1/files/grep?path=&pattern=` | [`GrepQuery`] → [`GrepMatches`] |
//! | `GET /v1/files/tree?path=` | → the folder as a tar archive |
//! | `PUT /v1/files/tree?path=` | a tar archive → 204; 422 for an entry that would leave the folder |
//! | `GET /v1/files/watch?path=[&recursive=true]` | → [`WatchEvent`]s, one per line, until the client disconnects |
//! | `POST /v1/actions/{id}/acknowledge` | discards a completed action: its id is 410 from then on → 204; 409 while it runs |
//! | `GET /v1/processes` | → a list of [`ProcessInfo`]: running processes, and exited ones that are still retained |
//! | `POST /v1/processes/{id}?follow=true&stdout=OFFSET&stderr=OFFSET` | [`ProcessRequest`] → [`ProcessFrame`]s until the exit; the same id attaches, it never starts twice. With `follow=false` → 201 [`ProcessInfo`] immediately |
//! | `GET /v1/processes/{id}` | → [`ProcessInfo`] |
//! | `DELETE /v1/processes/{id}` | kills the process tree → 204; its exit still follows |
//! | `POST /v1/processes/{id}/acknowledge` | discards an exited process → 204; 409 while it runs |
//! | `GET /v1/processes/{id}/output?stdout=OFFSET&stderr=OFFSET&follow=false` | → [`ProcessFrame`]s: the retained output, and the exit if it has exited; with `follow=true` until the exit |
//! | `POST /v1/processes/{id}/stdin?close=false` | bytes of any length → 204 once they are written; 409 if stdin is not a pipe |
//! | `POST /v1/processes/{id}/signal` | [`SignalRequest`] → 204; 409 if it has exited |
//! | `POST /execute_action` | V0: `{"action": event}` → observation |
//!
//! An error is an [`ErrorBody`] with a matching status. A server with a root answers 403
//! `outside_root` to a path outside of it; a file action reports that in its observation.
//!
//! `action-server v0` serves the routes of OpenHands V0's server instead. Only V0's clients use
//! them, so they are listed in `action-server/src/v0`.

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
    GrepQuery, ListQuery, MakeFolderRequest, ModeChanged, MoveRequest, PathQuery, RemoveQuery,
    SKIPPED_TRAILER, SkippedEntries, StatusQuery, UploadQuery, WatchEvent, WatchQuery,
};
pub use frame::{
    ActionFrame, ActionFrameDecoder, FrameDecoder, FrameError, FramePayload, MAX_FRAME_LENGTH,
    MAX_OUTPUT_LENGTH,
};
pub use info::{Capability, ErrorBody, ErrorCode, ServerInfo, ServerLimits};
pub use port::{ListeningPort, PortProcess, PortState};
pub use process::{
    ExitReason, ProcessExit, ProcessInfo, ProcessLimits, ProcessRequest, ProcessState,
    ProcessStdin, ProcessUsage, SignalName, SignalRequest, SignalScope,
};
pub use process_frame::{OutputStream, ProcessFrame, ProcessFrameDecoder};
pub use session::SessionInfo;
pub use terminal::{TerminalInput, TerminalOutput, TerminalQuery};

/// The header with the server's key; V0's name.
pub const KEY_HEADER: &str = "x-session-api-key";

/// The media type of a stream of [`ActionFrame`]s.
pub const FRAMES_MEDIA_TYPE: &str = "application/vnd.glovebox.frames";

/// The media type of a folder's archive.
pub const TREE_MEDIA_TYPE: &str = "application/x-tar";

/// The media type of [`WatchEvent`]s, one a line.
pub const WATCH_MEDIA_TYPE: &str = "application/x-ndjson";

/// What `action-server dial` writes before the bytes of the server's socket. A host that reads
/// anything else is not connected to an action server.
pub const DIAL_GREETING: &[u8] = b"glovebox dial 1\n";
