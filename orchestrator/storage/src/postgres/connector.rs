//! Opens connections: over TLS if the address has `sslmode=require`, else without.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::open::PostgresOpenError;

/// Time to establish a connection to one address of the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without an acknowledgement after which the kernel closes a connection.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

/// Idle time after which the kernel probes a connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// Limits of every session. No statement of ours needs seconds, unless the server is overloaded or
/// another host holds a lock.
const SESSION: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '10s'";

/// Receives the notifications of a connection.
pub(super) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;

/// The address of the database, and how to connect to it.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    on_notification: Option<OnNotification>,
}

/// Whether a URL has an `@` that is not encoded, besides the one that precedes the host.
fn has_several_ats(address: &str) -> bool {
    let is_url = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    let before_options = address.split('?').next().unwrap_or_default();
    is_url && before_options.matches('@').count() > 1
}

impl Connector {
    /// Parses the address. Loads the machine's certificates if TLS is required and `roots` is
    /// `None`.
    pub(super) fn new(
        address: &str,
        roots: Option<Arc<RootCertStore>>,
    ) -> Result<Self, PostgresOpenError> {
        if has_several_ats(address) {
            return Err(PostgresOpenError::NotEncoded);
        }
        let mut config: Config = address.parse().map_err(PostgresOpenError::Address)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(PostgresOpenError::NoHost);
        }
        if config.get_application_name().is_none() {
            config.application_name("glovebox");
        }
        config
            .tcp_user_timeout(TCP_USER_TIMEOUT)
            .keepalives_idle(KEEPALIVE_IDLE);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Require => {
                let roots = roots.unwrap_or_else(|| Arc::new(tls::roots()));
                Some(MakeRustlsConnect::new(
                    tls::client(roots, &[]).map_err(PostgresOpenError::Tls)?,
                ))
            }
            _ => None,
        };
        let connector = Self {
            config,
            tls,
            on_notification: None,
        };
        if connector.is_readable_on_the_network() {
            tracing::warn!(database = %connector, "the connection is not encrypted: add sslmode=require to the address");
        }
        Ok(connector)
    }

    /// Returns a connector whose connections report notifications.
    pub(super) fn with_notifications(&self, on_notification: OnNotification) -> Self {
        Self {
            on_notification: Some(on_notification),
            ..self.clone()
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Opens a connection and sets the limits of its session. The task performs its I/O and ends
    /// with it.
    pub(super) async fn open(&self) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, driver) = match &self.tls {
            Some(tls) => self.start(self.config.connect(tls.clone()).await?),
            None => self.start(self.config.connect(NoTls).await?),
        };
        client.batch_execute(SESSION).await?;
        Ok((client, driver))
    }

    fn start<S, T>(
        &self,
        (client, connection): (Client, Connection<S, T>),
    ) -> (Client, JoinHandle<()>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        (
            client,
            tokio::spawn(drive(connection, self.on_notification.clone())),
        )
    }

    /// Whether a third party on the network can read the connection.
    fn is_readable_on_the_network(&self) -> bool {
        let is_remote = |host: &Host| match host {
            Host::Tcp(name) => {
                name != "localhost"
                    && !name
                        .parse::<IpAddr>()
                        .is_ok_and(|address| address.is_loopback())
            }
            Host::Unix(_) => false,
        };
        self.tls.is_none() && self.config.get_hosts().iter().any(is_remote)
    }
}

/// Port of a server whose address names none.
const DEFAULT_PORT: u16 = 5432;

/// Performs the I/O of a connection until it is closed or its client is dropped.
async fn drive<S, T>(mut connection: Connection<S, T>, on_notification: Option<OnNotification>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await
    {
        match (message, &on_notification) {
            (Ok(AsyncMessage::Notification(notification)), Some(on_notification)) => {
                on_notification(&notification);
            }
            (Ok(AsyncMessage::Notice(notice)), _) => {
                tracing::debug!(%notice, "PostgreSQL sent a notice");
            }
            (Ok(_), _) => {}
            (Err(error), _) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the connection to PostgreSQL broke"
                );
                return;
            }
        }
    }
}

impl deadpool_postgres::Connect for Connector {
    fn connect(
        &self,
        _config: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(self.open())
    }
}

impl fmt::Display for Connector {
    /// Names the database without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .config
            .get_dbname()
            .or(self.config.get_user())
            .unwrap_or("postgres");
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => {
                let port = self
                    .config
                    .get_ports()
                    .first()
                    .copied()
                    .unwrap_or(DEFAULT_PORT);
                write!(f, "{name} on {host}:{port}")
            }
            Some(Host::Unix(folder)) => write!(f, "{name} at {}", folder.display()),
            None => f.write_str(name),
        }
    }
}
