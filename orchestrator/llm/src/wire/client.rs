//! The HTTP client: ring's TLS, the machine's roots, no redirects.
//!
//! Set up by hand, because the client's own set-up fails on a machine without certificates, even for plain HTTP. A
//! provider of cryptography that was installed for the whole process is not needed.

use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::config::{ConfigError, Timeouts};

/// No redirects: one would turn the request into another, and carry the key elsewhere.
pub(crate) fn client(url: &Url, timeouts: &Timeouts) -> Result<Client, ConfigError> {
    let roots = if url.scheme() == "https" { roots() } else { RootCertStore::empty() };
    Client::builder()
        .tls_backend_preconfigured(tls(roots)?)
        .connect_timeout(timeouts.connect)
        .redirect(Policy::none())
        .build()
        .map_err(|error| ConfigError::Client { source: Box::new(error) })
}

/// None at all is no error here: TLS fails when it is spoken, and says so then.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (usable, unusable) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(usable, unusable, errors = ?found.errors, "loaded the machine's certificates");
    roots
}

fn tls(roots: RootCertStore) -> Result<ClientConfig, ConfigError> {
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Client { source: Box::new(error) })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}
