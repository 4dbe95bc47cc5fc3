//! Whether a provider can be asked at all, found out before anything is started for it. Sends nothing.

use engine::llm::{LlmError, LlmErrorKind};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{ConfigError, LlmConfig};
use crate::wire::ProviderLlm;

/// Whether a key is missing: a provider's own API wants one. A server at a `base_url` may want none, and a key may stand in
/// a configured header.
pub fn lacks_key(config: &LlmConfig) -> bool {
    let has_own_headers =
        !config.headers.is_empty() || config.completion_kwargs.contains_key("extra_headers");
    config.api_key.is_none() && config.own_base_url().is_none() && !has_own_headers
}

/// Connects to the provider, and closes the connection. Behind a proxy there is nothing to find out without a request.
///
/// # Errors
/// `Connection` if the provider cannot be reached, or the configuration cannot be used.
pub async fn reach(config: &LlmConfig) -> Result<(), LlmError> {
    let unusable = |error: ConfigError| failure(LlmErrorKind::BadRequest, error.to_string());
    let url = ProviderLlm::new(config).map_err(unusable)?.url().clone();
    let is_proxied =
        url.as_str().parse::<http::Uri>().is_ok_and(|uri| Matcher::from_env().intercept(&uri).is_some());
    let (Some(host), Some(port), false) = (url.host_str(), url.port_or_known_default(), is_proxied) else {
        return Ok(());
    };
    // An IPv6 address stands in brackets in a URL, and nowhere else.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let wait = config.timeouts.connect;
    let unreachable = |detail: String| failure(LlmErrorKind::Connection, format!("{host}:{port}: {detail}"));
    match timeout(wait, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!("no connection within {wait:?}"))),
    }
}

fn failure(kind: LlmErrorKind, detail: String) -> LlmError {
    LlmError { kind, detail, retry_after: None }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_provider_is_reachable_exactly_while_it_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = LlmConfig { base_url: Some(format!("http://{address}/v1")), ..LlmConfig::new("m") };
        assert_eq!(reach(&config).await, Ok(()));
        drop(listener);
        let error = reach(&config).await.unwrap_err();
        assert!(
            error.kind == LlmErrorKind::Connection && error.detail.contains(&address.to_string()),
            "{error}"
        );
    }

    #[test]
    fn only_a_providers_own_api_lacks_a_key() {
        let named = LlmConfig::new("gpt-4o");
        assert!(lacks_key(&named));
        assert!(!lacks_key(&LlmConfig { api_key: Some("sk-1".into()), ..named.clone() }));
        assert!(!lacks_key(&LlmConfig { base_url: Some("http://127.0.0.1:1".into()), ..named }));
    }
}
