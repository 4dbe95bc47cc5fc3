//! Blobs in a bucket of S3, or of a compatible server: objects `PREFIX/CONVERSATION/BLOB`.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpService,
};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore as _, ObjectStoreExt as _, RetryConfig,
};
use protocol::ConversationId;
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::content::{PutPayload, read_checked_length};
use super::reference::BlobReference;
use super::{BlobError, BlobStoreError};

/// Time to connect to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without any progress of a request.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Attempts after the first one of a request.
const MAX_RETRIES: usize = 3;

/// Time after which a request is not attempted again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval of checks that write an object, because requests cost money, and probes of the server
/// repeat the check.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// A bucket of S3, or of a compatible server.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// Name of the bucket, which exists.
    pub bucket: String,
    /// Path below which the blobs are. Empty for the whole bucket.
    pub prefix: String,
    /// Values of [`S3_VARIABLES`].
    pub variables: Vec<(&'static str, SecretString)>,
}

/// The variables of Amazon's own programs that are supported. A later one wins over an earlier one
/// of the same meaning. Without keys, the credentials are those of the container or of the machine.
pub const S3_VARIABLES: [&str; 13] = [
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// Those of them that name the server.
const ENDPOINT_VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"];

/// The blobs in a bucket.
pub(super) struct BlobBucket {
    store: AmazonS3,
    prefix: Path,
    /// When the last check succeeded. Held during a check, so that there is one at a time.
    checked_at: Mutex<Option<Instant>>,
}

impl BlobBucket {
    pub(super) fn new(options: &S3Options) -> Result<Self, BlobStoreError> {
        if !is_name(&options.bucket) {
            return Err(BlobStoreError::Bucket(options.bucket.clone()));
        }
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &options.variables {
            let key = name
                .to_ascii_lowercase()
                .parse()
                .map_err(BlobStoreError::Options)?;
            let value = value.expose_secret();
            if !is_valid(name, value) {
                return Err(BlobStoreError::Variable(name));
            }
            // Plain HTTP only where the user has written it.
            if ENDPOINT_VARIABLES.contains(name) && value.starts_with("http://") {
                builder = builder.with_allow_http(true);
            }
            builder = builder.with_config(key, value);
        }
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: MIN_BACKOFF,
                max_backoff: MAX_BACKOFF,
                base: 2.0,
            },
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        };
        let store = builder
            .with_bucket_name(&options.bucket)
            .with_retry(retry)
            .with_http_connector(Connector);
        let prefix =
            Path::parse(&options.prefix).map_err(|error| BlobStoreError::Options(error.into()))?;
        let store = store.build().map_err(BlobStoreError::Options)?;
        Ok(Self {
            store,
            prefix,
            checked_at: Mutex::default(),
        })
    }

    /// Checks that objects can be stored and read, with an object of its own. A success counts for
    /// [`CHECK_INTERVAL`].
    pub(super) async fn check(&self) -> Result<(), BlobError> {
        let mut checked_at = self.checked_at.lock().await;
        if checked_at.is_some_and(|checked_at| checked_at.elapsed() < CHECK_INTERVAL) {
            return Ok(());
        }
        *checked_at = None;
        let path = self.prefix.clone().join(".check");
        self.store.put(&path, "check".into()).await?;
        self.store.get(&path).await?;
        *checked_at = Some(Instant::now());
        Ok(())
    }

    pub(super) async fn put(
        &self,
        conversation: &ConversationId,
        reference: &BlobReference,
        content: PutPayload,
    ) -> Result<(), BlobError> {
        self.store
            .put(&self.path(conversation, reference), content)
            .await?;
        Ok(())
    }

    pub(super) async fn get(
        &self,
        conversation: &ConversationId,
        reference: &BlobReference,
    ) -> Result<bytes::Bytes, BlobError> {
        read_checked_length(&self.store, &self.path(conversation, reference), reference).await
    }

    /// Checks that the server responds and lets us delete, with a name that no blob has.
    pub(super) async fn probe(&self, conversation: &ConversationId) -> Result<(), BlobError> {
        match self
            .store
            .delete(&self.folder(conversation).join("none"))
            .await
        {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn remove(&self, conversation: &ConversationId) -> Result<(), BlobError> {
        let listed = self.store.list(Some(&self.folder(conversation)));
        let paths = listed.map_ok(|found| found.location).boxed();
        self.store
            .delete_stream(paths)
            .try_for_each(async |_| Ok(()))
            .await?;
        Ok(())
    }

    fn folder(&self, conversation: &ConversationId) -> Path {
        self.prefix.clone().join(conversation.as_str())
    }

    fn path(&self, conversation: &ConversationId, reference: &BlobReference) -> Path {
        self.folder(conversation).join(reference.to_string())
    }
}

/// Whether a text can be the name of a bucket or a region.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_allowed) && !text.starts_with('.')
}

/// Whether the value of a variable can be part of a URL, which object_store does not check before
/// it sends a request.
fn is_valid(name: &str, value: &str) -> bool {
    match name {
        "AWS_ENDPOINT_URL" | "AWS_ENDPOINT_URL_S3" | "AWS_CONTAINER_CREDENTIALS_FULL_URI" => {
            Url::parse(value).is_ok_and(|url| {
                ["http", "https"].contains(&url.scheme())
                    && url.query().is_none()
                    && url.fragment().is_none()
                    && url.password().is_none()
            })
        }
        "AWS_DEFAULT_REGION" | "AWS_REGION" => is_name(value),
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" => value.starts_with('/'),
        _ => true,
    }
}

/// Creates clients that use our TLS, and follow no redirects, because one could send the signed
/// request to another host.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options
            .get_config_value(&ClientConfigKey::AllowHttp)
            .as_deref()
            == Some("true");
        let client = tls::http_client("https")
            .map_err(failed_to_connect)
            .and_then(|tls| {
                reqwest::Client::builder()
                    .tls_backend_preconfigured(tls)
                    .https_only(!allows_http)
                    .connect_timeout(CONNECT_TIMEOUT)
                    .read_timeout(READ_TIMEOUT)
                    .redirect(Policy::none())
                    .build()
                    .map_err(failed_to_connect)
            })?;
        Ok(HttpClient::new(Client(client)))
    }
}

fn failed_to_connect(
    source: impl std::error::Error + Send + Sync + 'static,
) -> object_store::Error {
    object_store::Error::Generic {
        store: "S3",
        source: Box::new(source),
    }
}

/// A client that reports a full server as a full disk.
#[derive(Debug)]
struct Client(reqwest::Client);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.call(request).await?;
        if response.status() == StatusCode::INSUFFICIENT_STORAGE {
            let full = io::Error::new(io::ErrorKind::StorageFull, "the server has no space left");
            return Err(HttpError::new(HttpErrorKind::Unknown, full));
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn open(bucket: &str, prefix: &str, variables: &[(&'static str, &str)]) -> Result<(), String> {
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, SecretString::from(*value)))
            .collect();
        let options = S3Options {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            variables,
        };
        BlobBucket::new(&options).map(drop).map_err(|error| {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{error}: {cause} {error:?} {options:?}")
        })
    }

    #[test]
    fn options_are_checked_before_the_first_request() {
        let keys = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "canary"),
        ];
        open("my-bucket.1", "a/b", &keys).unwrap();
        open("b", "", &[]).unwrap();
        open(
            "b",
            "",
            &[
                ("AWS_ENDPOINT_URL", "https://[::1]:9000/path"),
                ("AWS_REGION", "eu-west-1"),
            ],
        )
        .unwrap();
        for (bucket, prefix) in [
            ("", ""),
            ("a b", ""),
            ("a?b", ""),
            ("..", ""),
            ("a", "b//c"),
            ("a", "../b"),
        ] {
            assert!(
                open(bucket, prefix, &keys).is_err(),
                "{bucket:?} {prefix:?}"
            );
        }
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "localhost:9000"),
            ("AWS_ENDPOINT_URL_S3", "http://"),
            ("AWS_ENDPOINT_URL", "https://host/?canary"),
            ("AWS_ENDPOINT_URL", "https://user:canary@host"),
            ("AWS_REGION", "x:99999"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ":canary"),
            ("AWS_SECRET_ACCESS_KEY", "canary"), // without an id
        ] {
            let error = open("b", "", &[(name, value)]).unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn every_variable_is_known_to_the_library() {
        for name in S3_VARIABLES {
            let key = name
                .to_ascii_lowercase()
                .parse::<object_store::aws::AmazonS3ConfigKey>();
            assert!(key.is_ok(), "{name}");
        }
    }
}
