//! A server of the S3 protocol in a separate process: moto, of PyPI.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use async_trait::async_trait;
use reqwest::Url;
use secrecy::SecretString;
use storage::{BlobStore, S3Options};
use tests::store_contract::blobs::BlobPlace;
use tests::tcp_proxy::TcpProxy;

use crate::pypi::packages;

const REQUIREMENTS: &str = include_str!("../moto.txt");

/// The start of the server's line with its address.
const READY: &str = "Running on ";

const AUTHORIZATION: &str =
    "AWS4-HMAC-SHA256 Credential=id/20261001/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

const BUCKET: &str = "bucket";
const PREFIX: &str = "some/prefix";

/// A running server with an empty bucket, behind a proxy. Stopped on drop.
pub(crate) struct Moto {
    url: Url,
    proxy: TcpProxy,
    client: reqwest::Client,
    process: Child,
}

impl Moto {
    /// Starts the server. `None`, and the test is skipped, if it is not installed on a developer's machine.
    pub(crate) async fn start() -> Option<Self> {
        let packages = packages("moto", REQUIREMENTS, &[])?;
        let mut process = Command::new("python3")
            .args(["-m", "moto.server", "--host", "127.0.0.1", "--port", "0"])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut output = Vec::new();
        let address = lines.find_map(|line| {
            let address = line.split_once(READY).map(|(_, rest)| rest.trim().to_owned());
            output.push(line);
            address
        });
        // A full pipe would block the server.
        std::thread::spawn(|| lines.for_each(drop));
        let Some(address) = address else { panic!("moto ended before it was ready:\n{}", output.join("\n")) };
        let url: Url = address.parse().unwrap();
        let proxy = TcpProxy::to(url.port().unwrap()).await;
        let tls = tls::http_client("http").unwrap();
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).build().unwrap();
        let moto = Self { url, proxy, client, process };
        moto.send(reqwest::Method::PUT, "", Vec::new()).await;
        Some(moto)
    }

    /// Returns the URL of the server, which refuses connections while the place is unavailable.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.proxy.port())
    }

    /// Returns options of a store in the bucket.
    fn options(&self) -> S3Options {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "id".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ];
        S3Options {
            bucket: BUCKET.to_owned(),
            prefix: PREFIX.to_owned(),
            variables: variables.map(|(name, value)| (name, SecretString::from(value))).into(),
        }
    }

    /// Sends a request about the bucket or an object, and returns the body of the response. The server does not check signatures.
    async fn send(&self, method: reqwest::Method, object: &str, body: Vec<u8>) -> Vec<u8> {
        let url = self.url.join(&format!("{BUCKET}{object}")).unwrap();
        let request = self.client.request(method, url).header("authorization", AUTHORIZATION);
        let response = request.body(body).send().await.unwrap();
        response.error_for_status().unwrap().bytes().await.unwrap().to_vec()
    }
}

#[async_trait]
impl BlobPlace for Moto {
    fn open(&self) -> BlobStore {
        BlobStore::s3(&self.options()).unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let list = self.send(reqwest::Method::GET, "?list-type=2", Vec::new()).await;
        let list = String::from_utf8(list).unwrap();
        assert!(list.contains("<IsTruncated>false</IsTruncated>"), "{list}");
        let keys = list.split("<Key>").skip(1).map(|rest| rest.split_once("</Key>").unwrap().0);
        let mut names: Vec<_> =
            keys.map(|key| key.strip_prefix(&format!("{PREFIX}/")).unwrap().to_owned()).collect();
        names.sort();
        names
    }

    async fn read(&self, name: &str) -> Vec<u8> {
        self.send(reqwest::Method::GET, &format!("/{PREFIX}/{name}"), Vec::new()).await
    }

    async fn write(&self, name: &str, content: &[u8]) {
        self.send(reqwest::Method::PUT, &format!("/{PREFIX}/{name}"), content.to_owned()).await;
    }

    async fn delete(&self, name: &str) {
        self.send(reqwest::Method::DELETE, &format!("/{PREFIX}/{name}"), Vec::new()).await;
    }

    fn set_available(&self, is_available: bool) {
        self.proxy.refuse(!is_available);
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
