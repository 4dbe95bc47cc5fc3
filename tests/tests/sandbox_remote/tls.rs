//! TLS in front of action servers and of a sandbox-host, terminated by a proxy with certificates of
//! a test authority.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use engine::sandbox::{SandboxError, SandboxProvider, SandboxSpec};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use sandbox_host::SandboxHostConfig;
use sandbox_remote::{
    RemoteRuntimeBackend, RemoteRuntimeConfig, RemoteRuntimeProvider, RemoteServerConfig,
    RemoteServerProvider,
};
use tempfile::TempDir;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::remote::{
    DirectServerBackend, SECRET, SERVER_KEY, SandboxHostBackend,
};
use tests::sandbox_contract::{Backend, error, run, spec};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate authority of one test.
struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl CertificateAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("ca.pem"),
            params.self_signed(&key).unwrap().pem(),
        )
        .unwrap();
        Self {
            issuer: Issuer::new(params, key),
            folder,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Terminates TLS with a certificate for `name` and forwards to `target`, until the test's
    /// runtime ends.
    async fn start_proxy(&self, target: SocketAddr, name: &str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = self.acceptor(name);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that rejects the certificate disconnects.
                    let Ok(mut near) = acceptor.accept(near).await else {
                        return;
                    };
                    let mut far = TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        address
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

fn server_at(address: SocketAddr, additional_ca: Option<PathBuf>) -> RemoteServerProvider {
    RemoteServerProvider::new(RemoteServerConfig {
        url: format!("https://{address}").parse().unwrap(),
        key: SERVER_KEY.to_owned().into(),
        additional_ca,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_server_is_used_only_when_its_certificate_is_valid() {
    let (backend, authority) = (
        DirectServerBackend::new().unwrap(),
        CertificateAuthority::new(),
    );
    let server = backend.start().await;
    let address = authority.start_proxy(server.address, "127.0.0.1").await;
    let sandbox = server_at(address, Some(authority.file()))
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    assert_eq!(
        run(&*sandbox, 1, "echo over tls").await.content.trim(),
        "over tls"
    );

    let elsewhere = authority
        .start_proxy(server.address, "elsewhere.test")
        .await;
    let other = CertificateAuthority::new();
    let missing = authority.folder.path().join("missing.pem");
    let empty = authority.folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for (address, ca, message) in [
        (address, None, "UnknownIssuer"),
        (address, Some(other.file()), "is not valid"),
        (address, Some(missing), "missing.pem"),
        (address, Some(empty), "contains no certificate"),
        (elsewhere, Some(authority.file()), "NotValidForName"),
        (
            server.address,
            Some(authority.file()),
            "cannot establish TLS",
        ),
    ] {
        let failed = error(server_at(address, ca).create(&unplaced(), &|_| {}).await);
        assert!(
            matches!(failed, SandboxError::RuntimeUnavailable { .. }),
            "{failed:?}"
        );
        assert!(
            failed.to_string().contains(message),
            "{failed} does not say {message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_host_leases_only_over_tls_when_behind_a_proxy() {
    let (backend, authority) = (
        SandboxHostBackend::<LocalBackend>::over_local().unwrap(),
        CertificateAuthority::new(),
    );
    // The host must know the proxy's address, so a free port is chosen first.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let listener = TcpListener::bind(free).await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let host = backend.start_host(SandboxHostConfig {
        public_url: Some(url.parse().unwrap()),
        ..SandboxHostBackend::<LocalBackend>::host_config()
    });
    let acceptor = authority.acceptor("127.0.0.1");
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut near = acceptor.accept(near).await.unwrap();
                let mut far = TcpStream::connect(host).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let client = |url: &str| {
        let config = RemoteRuntimeConfig::new(url.parse().unwrap(), SECRET.to_owned().into());
        RemoteRuntimeProvider::new(
            RemoteRuntimeBackend::new(RemoteRuntimeConfig {
                additional_ca: Some(authority.file()),
                ..config
            })
            .unwrap(),
        )
    };
    let provider = client(&url);
    let sandbox = provider.create(&spec(&backend), &|_| {}).await.unwrap();
    assert_eq!(
        run(&*sandbox, 1, "echo leased over tls")
            .await
            .content
            .trim(),
        "leased over tls"
    );
    provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();

    let host = backend.start_host(SandboxHostBackend::<LocalBackend>::host_config());
    let unaware = authority.start_proxy(host, "127.0.0.1").await;
    let spec = spec(&backend);
    let failed = error(
        client(&format!("https://{unaware}"))
            .create(&spec, &|_| {})
            .await,
    );
    assert!(failed.to_string().contains("--public-url"), "{failed}");
    let sandbox = format!("glovebox-{}", spec.conversation).parse().unwrap();
    assert_eq!(backend.remains(&sandbox).await, Vec::<String>::new());
}

fn unplaced() -> SandboxSpec {
    SandboxSpec::new("never-created".parse().unwrap())
}
