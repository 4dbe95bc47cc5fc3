//! TLS to the server, on a loopback port: PostgreSQL has none on unix sockets.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;

use engine::events::EventStore as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use storage::PostgresStore;
use storage::postgres::{PostgresOpenError, PostgresOptions};
use tests::postgres::{PostgresServer, TestDatabase, USER};
use tests::store_contract::{conversation, events, log};

/// A server with a certificate for 127.0.0.1, and the authority that issued it.
struct TlsServer {
    database: TestDatabase,
    port: u16,
    roots: Arc<RootCertStore>,
}

impl TlsServer {
    fn start() -> Option<Self> {
        let authority = Authority::new();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let server = PostgresServer::start_with(port, |folder| {
            authority.issue(folder);
            [
                "listen_addresses=127.0.0.1",
                "ssl=on",
                "ssl_cert_file=../server.pem",
                "ssl_key_file=../server.key",
            ]
            .map(str::to_owned)
            .into()
        })?;
        let database = TestDatabase::on(Arc::new(server));
        Some(Self {
            database,
            port,
            roots: Arc::new(authority.roots),
        })
    }

    fn address(&self, mode: &str) -> String {
        format!(
            "postgres://{USER}@127.0.0.1:{}/{}?sslmode={mode}",
            self.port,
            self.database.name()
        )
    }

    async fn open(
        &self,
        mode: &str,
        roots: &Arc<RootCertStore>,
    ) -> Result<PostgresStore, PostgresOpenError> {
        let options = PostgresOptions {
            roots: Some(Arc::clone(roots)),
            ..PostgresOptions::default()
        };
        PostgresStore::open(&self.address(mode), options).await
    }

    /// Returns the numbers of connections of stores with and without TLS.
    fn connections(&self) -> String {
        self.database.execute(
            "SELECT count(*) FILTER (WHERE ssl) > 0, count(*) FILTER (WHERE NOT ssl) > 0
             FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'glovebox'",
        )
    }
}

/// A certificate authority of one test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(params.self_signed(&key).unwrap().der().clone())
            .unwrap();
        Self {
            issuer: Issuer::new(params, key),
            roots,
        }
    }

    /// Writes a certificate and its key to the folder of a server, readable for its user.
    fn issue(&self, folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let owner = std::fs::metadata(folder).unwrap();
        for (name, content) in [
            ("server.pem", certificate),
            ("server.key", key.serialize_pem()),
        ] {
            let file = folder.join(name);
            std::fs::write(&file, content).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }
}

#[tokio::test]
async fn connection_is_encrypted_when_the_address_requires_it() {
    let Some(server) = TlsServer::start() else {
        return;
    };
    let store = server.open("require", &server.roots).await.unwrap();
    let a = conversation("a");
    store.append(&a, &events(0..3)).await.unwrap();
    assert_eq!(log(&store, &a).await, events(0..3));
    assert_eq!(server.connections(), "t|f");
}

#[tokio::test]
async fn connection_is_plain_when_the_address_does_not_require_tls() {
    let Some(server) = TlsServer::start() else {
        return;
    };
    for mode in ["disable", "prefer"] {
        let store = server.open(mode, &server.roots).await.unwrap();
        store
            .append(&conversation(mode), &events(0..3))
            .await
            .unwrap();
        assert_eq!(server.connections(), "f|t", "{mode}");
    }
}

#[tokio::test]
async fn server_is_rejected_when_its_authority_is_unknown() {
    let Some(server) = TlsServer::start() else {
        return;
    };
    let error = server
        .open("require", &Arc::new(Authority::new().roots))
        .await
        .err()
        .unwrap();
    assert!(
        matches!(error, PostgresOpenError::Connect { .. }),
        "{error}"
    );
    assert_eq!(server.connections(), "f|f");
}
