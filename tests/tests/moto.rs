//! Blobs in a bucket of a server of the S3 protocol.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use reqwest::Url;
use secrecy::SecretString;
use storage::{BlobStore, S3Options};
use tests::moto_server::{MotoServer, SHARED_SERVER_VARIABLE};
use tests::store_contract::blobs::BlobPlace;
use tests::tcp_proxy::TcpProxy;

use crate::pypi::packages;

const REQUIREMENTS: &str = include_str!("../moto.txt");

const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=id/20261001/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

const PREFIX: &str = "some/prefix";

/// An empty bucket of a server, behind a proxy.
pub(crate) struct Moto {
    url: Url,
    bucket: String,
    proxy: TcpProxy,
    client: reqwest::Client,
    /// `None` if all tests share the server.
    _server: Option<MotoServer>,
}

impl Moto {
    /// Creates a bucket on the server of `cargo ci test`, or starts one. `None`, and the test is
    /// skipped, if it is not installed on a developer's machine.
    pub(crate) async fn start() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (url, server) = match std::env::var(SHARED_SERVER_VARIABLE) {
            Ok(url) => (url, None),
            Err(_) => {
                let server = MotoServer::start(&packages("moto", REQUIREMENTS, &[])?).unwrap();
                (server.url().to_owned(), Some(server))
            }
        };
        let url: Url = url.parse().unwrap();
        let proxy = TcpProxy::to(url.port().unwrap()).await;
        let tls = tls::http_client("http").unwrap();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .build()
            .unwrap();
        let bucket = format!(
            "bucket-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let moto = Self {
            url,
            bucket,
            proxy,
            client,
            _server: server,
        };
        moto.send(reqwest::Method::PUT, "", Vec::new()).await;
        Some(moto)
    }

    /// Returns the URL of the server, which refuses connections while the place is unavailable.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.proxy.port())
    }

    /// Returns the place of blobs in the bucket, as the program's configuration names it.
    pub(crate) fn place(&self) -> String {
        format!("s3://{}/{PREFIX}/", self.bucket)
    }

    /// Returns options of a store in the bucket.
    fn options(&self) -> S3Options {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "id".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ];
        S3Options {
            bucket: self.bucket.clone(),
            prefix: PREFIX.to_owned(),
            variables: variables
                .map(|(name, value)| (name, SecretString::from(value)))
                .into(),
        }
    }

    /// Sends a request about the bucket or an object, and returns the body of the response. The
    /// server does not check signatures.
    async fn send(&self, method: reqwest::Method, object: &str, body: Vec<u8>) -> Vec<u8> {
        let url = self.url.join(&format!("{}{object}", self.bucket)).unwrap();
        let request = self
            .client
            .request(method, url)
            .header("authorization", AUTHORIZATION);
        let response = request.body(body).send().await.unwrap();
        response
            .error_for_status()
            .unwrap()
            .bytes()
            .await
            .unwrap()
            .to_vec()
    }
}

#[async_trait]
impl BlobPlace for Moto {
    fn open(&self) -> BlobStore {
        BlobStore::s3(&self.options()).unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let list = self
            .send(reqwest::Method::GET, "?list-type=2", Vec::new())
            .await;
        let list = String::from_utf8(list).unwrap();
        assert!(list.contains("<IsTruncated>false</IsTruncated>"), "{list}");
        let keys = list
            .split("<Key>")
            .skip(1)
            .map(|rest| rest.split_once("</Key>").unwrap().0);
        let mut names: Vec<_> = keys
            .map(|key| key.strip_prefix(&format!("{PREFIX}/")).unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    async fn read(&self, name: &str) -> Vec<u8> {
        self.send(
            reqwest::Method::GET,
            &format!("/{PREFIX}/{name}"),
            Vec::new(),
        )
        .await
    }

    async fn write(&self, name: &str, content: &[u8]) {
        self.send(
            reqwest::Method::PUT,
            &format!("/{PREFIX}/{name}"),
            content.to_owned(),
        )
        .await;
    }

    async fn delete(&self, name: &str) {
        self.send(
            reqwest::Method::DELETE,
            &format!("/{PREFIX}/{name}"),
            Vec::new(),
        )
        .await;
    }

    fn set_available(&self, is_available: bool) {
        self.proxy.refuse(!is_available);
    }
}
