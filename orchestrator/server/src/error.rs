//! Errors of the API, and the one table of their status codes.

use std::error::Error;
use std::io;
use std::time::Duration;

use accounts::AccountError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use conversations::{
    ConversationsError, HostError, InvalidRequest, ProfileError, SandboxAccessError, WorkspaceError,
};
use engine::conversation::ConversationError;
use engine::events::StoreError;
use engine::sandbox::SandboxError;
use git_providers::{GitError, RequestError};
use http::{HeaderValue, StatusCode, header};
use protocol::client_api::ErrorBody;
use protocol::client_api::git::GitProvider;
use rustix::io::Errno;
use serde_json::Value;

use crate::audit::WrongKey;
use crate::state::MAX_STREAMS_PER_USER;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the request has no valid key: send it as X-Session-API-Key, or as a bearer token")]
    NoKey,
    #[error("the key of the request is not valid, or no longer")]
    WrongKey,
    #[error("too many requests: wait a second")]
    TooManyRequests,
    #[error("too many wrong keys: wait {} s", .0.as_secs() + 1)]
    TooManyWrongKeys(Duration),
    #[error("the key may only read")]
    ReadOnlyKey,
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("the request is from a page of another origin")]
    ForeignOrigin,
    #[error("the request has no `Host`, several, or one that is not a host and a port")]
    NoHost,
    #[error("this server has no name {0}: start it with `--allow-host {0}`")]
    UnknownHost(String),
    #[error("open this address with a link of the conversation's route web-hosts")]
    NoPortCookie,
    #[error("cannot forward the request to the program in the sandbox")]
    Program(#[source] hyper::Error),
    #[error("the program in the sandbox does not respond in time")]
    ProgramTimeout,
    #[error("the program in the sandbox changes the protocol without a request for it")]
    ProgramProtocol,
    #[error("cannot reach the port in the sandbox: {0}")]
    Port(SandboxError),
    #[error("cannot access the sandbox: {0}")]
    Sandbox(SandboxError),
    #[error(
        "cannot reach the host that runs the conversation: if it has ended, another one takes over within a minute"
    )]
    OtherHost,
    #[error("the store cannot be reached, or does not respond in time: try again")]
    StoreUnavailable,
    /// A check of the store has failed.
    #[error("the store or the place of blobs cannot be used: the log of the server has the cause")]
    NotReady(StoreProblem),
    #[error("the key is not the operator's")]
    NotOperator,
    #[error("cannot write the metrics")]
    Metrics,
    #[error("there is no such route")]
    NoRoute,
    #[error("settings can no longer be reset")]
    RemovedRoute,
    #[error("security analyzers have no routes")]
    NoAnalyzerRoutes,
    #[error("the route has no such method")]
    NoMethod,
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    #[error("the body has more than the maximum number of bytes")]
    TooLarge,
    #[error("the body arrives too slowly")]
    BodyTooSlow,
    #[error(
        "bodies and messages of this user, or of all, use too much memory at the moment: try again"
    )]
    TooMuchInput,
    #[error("too many actions of this client wait to be applied")]
    TooManyActions,
    #[error("too many downloads of workspaces at the moment")]
    TooManyDownloads,
    #[error(
        "too many expensive requests of this user at the moment: try again when one of them has ended"
    )]
    TooMuchWork,
    #[error("this user has {MAX_STREAMS_PER_USER} open streams, which is the maximum: close some")]
    TooManyStreams,
    #[error(
        "few events match, and the search takes too long: search a part of the log with start_id and end_id"
    )]
    SearchTimeout,
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Conversations(ConversationsError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("Invalid token. Please make sure it is a valid {0} token.")]
    InvalidGitToken(GitProvider),
    #[error("there is no model `{model}`; the models are {known}")]
    UnknownModel { model: String, known: String },
    /// A value that cannot be parsed, with its location in V0's form.
    #[error("{field}: {problem}")]
    Malformed {
        field: String,
        problem: String,
        location: Vec<Value>,
    },
    #[error("{reason}")]
    UnfinishedTurn { code: &'static str, reason: String },
}

impl From<ConversationsError> for ApiError {
    fn from(error: ConversationsError) -> Self {
        match error {
            ConversationsError::Invalid(invalid) => invalid.into(),
            ConversationsError::NotOperator => Self::NotOperator,
            error => Self::Conversations(error),
        }
    }
}

impl From<InvalidRequest> for ApiError {
    fn from(InvalidRequest { field, problem }: InvalidRequest) -> Self {
        Self::Invalid { field, problem }
    }
}

/// Why the store cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreProblem {
    Full,
    Unavailable,
    /// It is damaged, or its place cannot be used.
    Failed,
}

impl StoreProblem {
    fn code(self) -> &'static str {
        match self {
            Self::Full => STORAGE_FULL.1,
            Self::Unavailable => STORE_UNAVAILABLE.1,
            Self::Failed => "SERVER$FAILED",
        }
    }
}

impl ApiError {
    pub(crate) fn invalid(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::Invalid {
            field: field.into(),
            problem: problem.to_string(),
        }
    }

    /// Returns the error of the sandbox of a conversation.
    pub(crate) fn from_sandbox(error: SandboxAccessError) -> Self {
        match error {
            SandboxAccessError::Conversation(error) => error.into(),
            SandboxAccessError::Sandbox(error) => Self::Sandbox(error),
        }
    }

    /// Returns the error of a token that cannot be stored.
    pub(crate) fn from_token_check(error: GitError) -> Self {
        match error {
            GitError::Request {
                provider,
                source: RequestError::TokenRejected { .. },
                ..
            } => Self::InvalidGitToken(provider),
            error => Self::Git(error),
        }
    }

    /// Returns an error without V0's status, for routes that are not V0's.
    pub(crate) fn without_location(self) -> Self {
        match self {
            Self::Malformed { field, problem, .. } => Self::Invalid { field, problem },
            error => error,
        }
    }

    /// The status, and the code of V0's message.
    fn status(&self) -> (StatusCode, &'static str) {
        match self.own_status() {
            (StatusCode::INTERNAL_SERVER_ERROR, _) if is_unavailable(self) => STORE_UNAVAILABLE,
            status => status,
        }
    }

    /// The status, and the code, whatever the cause of a failure is.
    fn own_status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoKey => (StatusCode::UNAUTHORIZED, "AUTH$NO_KEY"),
            Self::WrongKey => (StatusCode::UNAUTHORIZED, "AUTH$WRONG_KEY"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "API$TOO_MANY_REQUESTS"),
            Self::TooManyWrongKeys(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "AUTH$TOO_MANY_WRONG_KEYS")
            }
            Self::ReadOnlyKey => (StatusCode::FORBIDDEN, "AUTH$READ_ONLY_KEY"),
            Self::NotOperator => (StatusCode::FORBIDDEN, "AUTH$NOT_OPERATOR"),
            Self::Account(error) if is_full(error) => STORAGE_FULL,
            Self::Profile(ProfileError::Store(HostError::Failed(error)))
                if is_full(error.as_ref()) =>
            {
                STORAGE_FULL
            }
            // Of those, only failures of the store can occur here.
            Self::Account(_) | Self::Metrics => {
                (StatusCode::INTERNAL_SERVER_ERROR, "SERVER$FAILED")
            }
            Self::ForeignOrigin | Self::NoHost | Self::UnknownHost(_) => {
                (StatusCode::FORBIDDEN, "AUTH$FOREIGN_ORIGIN")
            }
            Self::OtherHost => (
                StatusCode::SERVICE_UNAVAILABLE,
                "CONVERSATION$HOST_UNREACHABLE",
            ),
            Self::StoreUnavailable => STORE_UNAVAILABLE,
            // For probes always the same status, with the code of the requests that fail.
            Self::NotReady(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem.code()),
            Self::NoRoute | Self::NoAnalyzerRoutes => (StatusCode::NOT_FOUND, "API$NO_ROUTE"),
            Self::RemovedRoute => (StatusCode::GONE, "API$REMOVED"),
            Self::NoPortCookie => (StatusCode::UNAUTHORIZED, "AUTH$NO_PORT_COOKIE"),
            Self::ProgramTimeout => (StatusCode::GATEWAY_TIMEOUT, "SANDBOX$TIMEOUT"),
            Self::Program(_) | Self::ProgramProtocol | Self::Port(_) => {
                (StatusCode::BAD_GATEWAY, "SANDBOX$UNREACHABLE")
            }
            Self::NoMethod => (StatusCode::METHOD_NOT_ALLOWED, "API$NO_METHOD"),
            Self::TooManyActions => (StatusCode::TOO_MANY_REQUESTS, "CONVERSATION$BUSY"),
            Self::Invalid { .. } => (StatusCode::BAD_REQUEST, "API$INVALID_REQUEST"),
            // As in V0.
            Self::Malformed { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "API$INVALID_REQUEST"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "API$BODY_TOO_LARGE"),
            Self::BodyTooSlow => (StatusCode::REQUEST_TIMEOUT, "API$BODY_TOO_SLOW"),
            Self::Profile(error) => match error {
                ProfileError::NoSettings => (StatusCode::NOT_FOUND, "SETTINGS$NOT_FOUND"),
                ProfileError::UnknownSecret(_) => (StatusCode::NOT_FOUND, "SECRET$NOT_FOUND"),
                ProfileError::SecretExists(_) => (StatusCode::BAD_REQUEST, "SECRET$EXISTS"),
                ProfileError::Invalid(_) => (StatusCode::BAD_REQUEST, "API$INVALID_REQUEST"),
                ProfileError::Contended => (StatusCode::CONFLICT, "SETTINGS$CONFLICT"),
                ProfileError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "SERVER$FAILED"),
            },
            Self::Git(error) => git_status(error),
            Self::InvalidGitToken(_) => (StatusCode::UNAUTHORIZED, TOKEN_REJECTED),
            Self::UnknownModel { .. } => (StatusCode::NOT_FOUND, "model_not_found"),
            // Not a status that clients send a request again for.
            Self::UnfinishedTurn { code, .. } => (StatusCode::UNPROCESSABLE_ENTITY, code),
            Self::TooManyDownloads => (StatusCode::TOO_MANY_REQUESTS, "FILE$TOO_MANY_DOWNLOADS"),
            Self::TooMuchWork => (StatusCode::TOO_MANY_REQUESTS, "API$TOO_MUCH_WORK"),
            Self::TooManyStreams => (StatusCode::TOO_MANY_REQUESTS, "API$TOO_MANY_STREAMS"),
            Self::TooMuchInput => (StatusCode::TOO_MANY_REQUESTS, "API$TOO_MUCH_INPUT"),
            // Clients do not repeat the same search.
            Self::SearchTimeout => (StatusCode::UNPROCESSABLE_ENTITY, "API$SEARCH_TIMEOUT"),
            Self::Sandbox(error) => sandbox_status(error),
            Self::Workspace(error) => workspace_status(error),
            Self::Conversations(error) => match error {
                ConversationsError::Unknown(_)
                | ConversationsError::NoConversations
                | ConversationsError::UnknownEvent { .. }
                | ConversationsError::Conversation(ConversationError::Unknown(_)) => {
                    (StatusCode::NOT_FOUND, "CONVERSATION$NOT_FOUND")
                }
                ConversationsError::Invalid(_) => (StatusCode::BAD_REQUEST, "API$INVALID_REQUEST"),
                ConversationsError::NotOperator => (StatusCode::FORBIDDEN, "AUTH$NOT_OPERATOR"),
                ConversationsError::Ambiguous(_)
                | ConversationsError::Host(HostError::Refused(_)) => {
                    (StatusCode::BAD_REQUEST, "CONVERSATION$REJECTED")
                }
                ConversationsError::Host(HostError::NoModel) => {
                    (StatusCode::BAD_REQUEST, "CONFIGURATION$SETTINGS_NOT_FOUND")
                }
                ConversationsError::Host(HostError::NoModelKey(_)) => {
                    (StatusCode::BAD_REQUEST, "STATUS$ERROR_LLM_AUTHENTICATION")
                }
                ConversationsError::Exists(_)
                | ConversationsError::Working(_)
                | ConversationsError::SandboxNotKept(_)
                | ConversationsError::Locked(_)
                | ConversationsError::NotRunning(_)
                | ConversationsError::NothingToDecide(_)
                | ConversationsError::OtherActionAwaits { .. }
                | ConversationsError::NotInLoop(_)
                | ConversationsError::Conversation(ConversationError::Closed(_)) => {
                    (StatusCode::CONFLICT, "CONVERSATION$CONFLICT")
                }
                ConversationsError::TooLong(_) => {
                    (StatusCode::PAYLOAD_TOO_LARGE, "CONVERSATION$TOO_LONG")
                }
                ConversationsError::NoSandbox(_) => {
                    (StatusCode::CONFLICT, "CONVERSATION$NO_SANDBOX")
                }
                ConversationsError::TooManyRunning(_) | ConversationsError::Abandoned => (
                    StatusCode::TOO_MANY_REQUESTS,
                    "CONVERSATION$TOO_MANY_RUNNING",
                ),
                ConversationsError::ShuttingDown => {
                    (StatusCode::SERVICE_UNAVAILABLE, "SERVER$SHUTTING_DOWN")
                }
                ConversationsError::Conversation(ConversationError::Busy(_)) => {
                    (StatusCode::TOO_MANY_REQUESTS, "CONVERSATION$BUSY")
                }
                // The client's next request reaches the host that has taken over.
                ConversationsError::Store(StoreError::LeaseLost { .. })
                | ConversationsError::Conversation(ConversationError::Log(
                    _,
                    StoreError::LeaseLost { .. },
                )) => (StatusCode::SERVICE_UNAVAILABLE, "CONVERSATION$TAKEN_OVER"),
                ConversationsError::Store(StoreError::Full { .. })
                | ConversationsError::Conversation(ConversationError::Log(
                    _,
                    StoreError::Full { .. },
                )) => STORAGE_FULL,
                ConversationsError::Host(HostError::Failed(error)) if is_full(error.as_ref()) => {
                    STORAGE_FULL
                }
                ConversationsError::Conversation(
                    ConversationError::Log(..) | ConversationError::Panicked(_),
                )
                | ConversationsError::Store(_)
                | ConversationsError::RemoveSandbox(_)
                | ConversationsError::Host(HostError::Failed(_)) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, "SERVER$FAILED")
                }
            },
        }
    }

    /// Classifies an error of the store.
    pub(crate) fn store_problem(&self) -> StoreProblem {
        match self.status() {
            STORAGE_FULL => StoreProblem::Full,
            STORE_UNAVAILABLE => StoreProblem::Unavailable,
            _ => StoreProblem::Failed,
        }
    }

    /// The status.
    pub(crate) fn status_code(&self) -> StatusCode {
        self.status().0
    }

    /// The message for the client. The cause of an internal error is only logged.
    pub(crate) fn to_body(&self) -> ErrorBody {
        let field = match self {
            Self::Invalid { field, .. } | Self::Malformed { field, .. } => Some(field.clone()),
            Self::Workspace(WorkspaceError::Invalid(invalid)) => Some(invalid.field.clone()),
            Self::UnknownModel { .. } => Some("model".to_owned()),
            Self::Profile(ProfileError::Invalid(invalid)) => Some(invalid.field.to_owned()),
            _ => None,
        };
        let (_, code) = self.status();
        let message = match self {
            _ if code == STORE_UNAVAILABLE.1 => Self::StoreUnavailable.to_string(),
            _ if code == STORAGE_FULL.1 => "the server's disk is full".to_owned(),
            // The cause says what the user can do. Neither of them contains a token.
            Self::Git(error @ GitError::Request { source, .. }) => format!("{error}: {source}"),
            // Its text may name files of this machine.
            Self::Conversations(ConversationsError::Host(HostError::Failed(_))) => {
                "an operation of the server has failed".to_owned()
            }
            error => error.to_string(),
        };
        let body = ErrorBody::new(code, message, field);
        match self {
            Self::Malformed { location, .. } => body.with_location(location.clone()),
            // V0's page shows what to do when it finds this text.
            Self::Workspace(WorkspaceError::NoRepository) => {
                body.with_v0_error("Not a git repository")
            }
            _ => body,
        }
    }
}

const TOKEN_REJECTED: &str = "GIT$TOKEN_REJECTED";

const SANDBOX_REFUSED: (StatusCode, &str) = (StatusCode::CONFLICT, "SANDBOX$REFUSED");

const STORAGE_FULL: (StatusCode, &str) = (StatusCode::INSUFFICIENT_STORAGE, "SERVER$STORAGE_FULL");

const STORE_UNAVAILABLE: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "SERVER$STORE_UNAVAILABLE");

/// Whether the cause of an error is that the store is unavailable, or that the process has no
/// descriptors left.
fn is_unavailable(error: &ApiError) -> bool {
    let error: &(dyn Error + 'static) = match error {
        // Transparent, so that the chain would start at its cause.
        ApiError::Conversations(ConversationsError::Host(HostError::Failed(error)))
        | ApiError::Profile(ProfileError::Store(HostError::Failed(error))) => error.as_ref(),
        error => error,
    };
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| {
            let has_no_descriptor = error.raw_os_error().is_some_and(|code| {
                [Errno::MFILE, Errno::NFILE]
                    .iter()
                    .any(|errno| errno.raw_os_error() == code)
            });
            has_no_descriptor || error.kind() == io::ErrorKind::NotConnected
        })
    })
}

/// Whether an error, or one of its causes, is that a disk has no space left.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::StorageFull)
    })
}

impl From<SandboxAccessError> for ApiError {
    fn from(error: SandboxAccessError) -> Self {
        match error {
            SandboxAccessError::Conversation(error) => Self::Conversations(error),
            SandboxAccessError::Sandbox(error) => Self::Port(error),
        }
    }
}

fn git_status(error: &GitError) -> (StatusCode, &'static str) {
    let source = match error {
        // As in V0, whose page then asks for a token.
        GitError::NoToken(_) | GitError::NoTokens => {
            return (StatusCode::UNAUTHORIZED, "GIT$NO_TOKEN");
        }
        GitError::Unsupported { .. } => return (StatusCode::BAD_REQUEST, "GIT$UNSUPPORTED"),
        GitError::Request { source, .. } => source,
    };
    match source {
        RequestError::InvalidInput { .. } => (StatusCode::BAD_REQUEST, "GIT$INVALID_REQUEST"),
        RequestError::AddressRefused { .. } => (StatusCode::BAD_REQUEST, "GIT$ADDRESS_REFUSED"),
        RequestError::TokenRejected { .. } => (StatusCode::UNAUTHORIZED, TOKEN_REJECTED),
        RequestError::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, "GIT$RATE_LIMITED"),
        RequestError::NotFound => (StatusCode::NOT_FOUND, "GIT$NOT_FOUND"),
        RequestError::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, "GIT$TIMEOUT"),
        RequestError::Unreachable { .. }
        | RequestError::OtherOrigin
        | RequestError::TooLarge { .. }
        | RequestError::Malformed { .. }
        | RequestError::Status { .. } => (StatusCode::BAD_GATEWAY, "GIT$PROVIDER_FAILED"),
    }
}

fn workspace_status(error: &WorkspaceError) -> (StatusCode, &'static str) {
    match error {
        WorkspaceError::Invalid(_) => (StatusCode::BAD_REQUEST, "API$INVALID_REQUEST"),
        WorkspaceError::InvalidPath { .. } => (StatusCode::BAD_REQUEST, "FILE$INVALID_PATH"),
        WorkspaceError::Outside(_) => (StatusCode::FORBIDDEN, "FILE$OUTSIDE_WORKSPACE"),
        WorkspaceError::NotFound(_) => (StatusCode::NOT_FOUND, "FILE$NOT_FOUND"),
        WorkspaceError::Exists(_) => (StatusCode::CONFLICT, "FILE$EXISTS"),
        WorkspaceError::NotAFile(_) | WorkspaceError::NotAFolder(_) => {
            (StatusCode::BAD_REQUEST, "FILE$WRONG_KIND")
        }
        WorkspaceError::Binary(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "FILE$BINARY"),
        WorkspaceError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "FILE$TOO_LARGE"),
        WorkspaceError::NoRepository => (StatusCode::NOT_FOUND, "GIT$NO_REPOSITORY"),
        WorkspaceError::GitTimeout(_) => (StatusCode::SERVICE_UNAVAILABLE, "GIT$TIMEOUT"),
        WorkspaceError::Refused(_) => SANDBOX_REFUSED,
        WorkspaceError::Sandbox(error) => sandbox_status(error),
    }
}

fn sandbox_status(error: &SandboxError) -> (StatusCode, &'static str) {
    match error {
        SandboxError::Refused { .. }
        | SandboxError::Invalid { .. }
        | SandboxError::Unsupported { .. } => SANDBOX_REFUSED,
        _ => (StatusCode::SERVICE_UNAVAILABLE, "SANDBOX$UNAVAILABLE"),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        if matches!(
            status,
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::INSUFFICIENT_STORAGE
        ) {
            tracing::error!(
                code,
                error = &self as &dyn std::error::Error,
                "cannot serve a request"
            );
        } else if code == STORE_UNAVAILABLE.1 && !matches!(self, Self::NotReady(_)) {
            tracing::warn!(
                code,
                error = &self as &dyn std::error::Error,
                "the store is unavailable"
            );
        }
        let body = self.to_body();
        let mut response = (status, Json(&body)).into_response();
        // For routes whose errors have another format.
        response.extensions_mut().insert(body);
        if let Self::WrongKey = self {
            response.extensions_mut().insert(WrongKey);
        }
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            let seconds = match &self {
                Self::TooManyWrongKeys(wait) => wait.as_secs() + 1,
                _ => 1,
            };
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_repository_has_v0s_text() {
        let body =
            serde_json::to_value(ApiError::from(WorkspaceError::NoRepository).to_body()).unwrap();
        assert_eq!(
            (&body["error"], &body["msg_id"]),
            (&"Not a git repository".into(), &"GIT$NO_REPOSITORY".into())
        );
        assert_ne!(body["message"], body["error"]);
    }

    #[test]
    fn unavailable_store_is_no_failure_of_the_server() {
        let status = |source: io::Error| {
            let error = StoreError::Storage {
                operation: "append an event",
                source: source.into(),
            };
            let error = ApiError::from(ConversationsError::from(error));
            (error.status(), error.to_body().msg_id)
        };
        let unavailable = (STORE_UNAVAILABLE, STORE_UNAVAILABLE.1);
        assert_eq!(status(io::ErrorKind::NotConnected.into()), unavailable);
        assert_eq!(
            status(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error())),
            unavailable
        );
        assert_eq!(
            status(io::ErrorKind::PermissionDenied.into()).1,
            "SERVER$FAILED"
        );
        // A folder of a conversation that cannot be created.
        let full = io::Error::from_raw_os_error(Errno::NFILE.raw_os_error());
        let error = ConversationsError::Host(HostError::Failed(full.into()));
        assert_eq!(ApiError::from(error).status(), STORE_UNAVAILABLE);
    }
}
