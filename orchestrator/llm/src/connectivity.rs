//! Checks whether a provider can be called, without sending a request.

use engine::llm::{LlmError, LlmErrorKind};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{ConfigError, LlmConfig};
use crate::wire::ProviderLlm;

/// Whether the key of a provider's own API is missing. A server at a `base_url` may require none,
/// and a configured header may hold the key.
pub fn is_key_missing(config: &LlmConfig) -> bool {
    let has_own_headers =
        !config.headers.is_empty() || config.completion_kwargs.contains_key("extra_headers");
    config.api_key.is_none() && config.configured_base_url().is_none() && !has_own_headers
}

/// Connects to the provider, and closes the connection. Does nothing behind a proxy, which hides
/// the provider.
///
/// # Errors
/// `Connection` if the provider cannot be reached, `BadRequest` if the configuration is invalid.
pub async fn check_connection(config: &LlmConfig) -> Result<(), LlmError> {
    let invalid = |cause: ConfigError| error(LlmErrorKind::BadRequest, cause.to_string());
    let url = ProviderLlm::new(config).map_err(invalid)?.url().clone();
    let is_proxied = url
        .as_str()
        .parse::<http::Uri>()
        .is_ok_and(|uri| Matcher::from_env().intercept(&uri).is_some());
    let (Some(host), Some(port), false) = (url.host_str(), url.port_or_known_default(), is_proxied)
    else {
        return Ok(());
    };
    // A URL has brackets around an IPv6 address.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let limit = config.timeouts.connect;
    let unreachable =
        |detail: String| error(LlmErrorKind::Connection, format!("{host}:{port}: {detail}"));
    match timeout(limit, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!("no connection within {limit:?}"))),
    }
}

fn error(kind: LlmErrorKind, detail: String) -> LlmError {
    LlmError {
        kind,
        detail,
        retry_after: None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn check_succeeds_exactly_while_the_provider_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = LlmConfig {
            base_url: Some(format!("http://{address}/v1")),
            ..LlmConfig::new("m")
        };
        assert_eq!(check_connection(&config).await, Ok(()));
        drop(listener);
        let error = check_connection(&config).await.unwrap_err();
        assert!(
            error.kind == LlmErrorKind::Connection && error.detail.contains(&address.to_string()),
            "{error}"
        );
    }

    #[test]
    fn key_is_missing_only_for_a_providers_own_api() {
        let named = LlmConfig::new("gpt-4o");
        assert!(is_key_missing(&named));
        assert!(!is_key_missing(&LlmConfig {
            api_key: Some("sk-1".into()),
            ..named.clone()
        }));
        assert!(!is_key_missing(&LlmConfig {
            base_url: Some("http://127.0.0.1:1".into()),
            ..named
        }));
    }
}
