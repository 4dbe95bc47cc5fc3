//! Where requests go and with which headers. The key is in them, marked as not to be printed.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::config::{ConfigError, LlmConfig};
use crate::secrets::Secrets;

const OPENAI: &str = "https://api.openai.com/v1";
const PATH: &str = "chat/completions";

#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) secrets: Secrets,
}

impl Endpoint {
    pub(super) fn new(config: &LlmConfig) -> Result<Self, ConfigError> {
        let mut endpoint = Self { url: url(config)?, headers: HeaderMap::new(), secrets: Secrets::default() };
        if let Some(key) = &config.api_key {
            let bearer = SecretString::from(format!("Bearer {}", key.expose_secret()));
            endpoint.header(AUTHORIZATION, &bearer, "`api_key`")?;
            endpoint.secrets.add(key);
            if config.api_version.is_some() {
                endpoint.header(HeaderName::from_static("api-key"), key, "`api_key`")?;
            }
        }
        for (name, value) in &config.headers {
            endpoint.named_header(name, value)?;
        }
        endpoint.extra_headers(config)?;
        Ok(endpoint)
    }

    /// OpenAI itself, and nobody who speaks like it.
    pub(super) fn is_openai(&self) -> bool {
        self.url.host_str() == Some("api.openai.com")
    }

    fn extra_headers(&mut self, config: &LlmConfig) -> Result<(), ConfigError> {
        let wrong = |problem| ConfigError::CompletionKwargs { key: "extra_headers".into(), problem };
        let headers = match config.completion_kwargs.get("extra_headers") {
            None => return Ok(()),
            Some(headers) => headers.as_object().ok_or_else(|| wrong("is not an object"))?,
        };
        for (name, value) in headers {
            let Value::String(value) = value else {
                return Err(wrong("has a value that is not text"));
            };
            self.named_header(name, &value.as_str().into())?;
        }
        Ok(())
    }

    fn named_header(&mut self, name: &str, value: &SecretString) -> Result<(), ConfigError> {
        let parsed: HeaderName = name.parse().map_err(|_| ConfigError::Header(format!("`{name}`")))?;
        self.header(parsed, value, &format!("the value of `{name}`"))?;
        self.secrets.add(value);
        Ok(())
    }

    fn header(&mut self, name: HeaderName, value: &SecretString, what: &str) -> Result<(), ConfigError> {
        let mut value: HeaderValue =
            value.expose_secret().parse().map_err(|_| ConfigError::Header(what.to_owned()))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

/// `base_url` as it is given, and the path; whoever gave the whole path meant it.
fn url(config: &LlmConfig) -> Result<Url, ConfigError> {
    let base = config.base_url.as_deref().map(str::trim).filter(|base| !base.is_empty()).unwrap_or(OPENAI);
    let mut url: Url = base.parse().map_err(|error| ConfigError::BaseUrl { source: Box::new(error) })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ConfigError::BaseUrlUnusable("does not begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ConfigError::BaseUrlUnusable("holds a name or password: it would be printed"));
    }
    let path = url.path().trim_end_matches('/');
    let path = if path.ends_with(PATH) { path.to_owned() } else { format!("{path}/{PATH}") };
    url.set_path(&path);
    if let Some(version) = &config.api_version {
        url.query_pairs_mut().append_pair("api-version", version);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(change: impl FnOnce(&mut LlmConfig)) -> Result<Endpoint, ConfigError> {
        let mut config = LlmConfig::new("m");
        change(&mut config);
        Endpoint::new(&config)
    }

    #[test]
    fn the_base_url_is_used_as_given() {
        for (base, url) in [
            ("", "https://api.openai.com/v1/chat/completions"),
            ("http://localhost:4000", "http://localhost:4000/chat/completions"),
            ("http://localhost:4000/", "http://localhost:4000/chat/completions"),
            ("http://h/v1/", "http://h/v1/chat/completions"),
            ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
            ("http://h/v1?tenant=7", "http://h/v1/chat/completions?tenant=7"),
        ] {
            let endpoint = endpoint(|config| config.base_url = Some(base.into())).unwrap();
            assert_eq!(endpoint.url.as_str(), url, "{base}");
        }
    }

    #[test]
    fn a_base_url_that_cannot_be_used_says_why() {
        for (base, error) in [
            ("localhost:4000", "`base_url` does not begin with http:// or https://"),
            ("http://me:pass@h/", "`base_url` holds a name or password: it would be printed"),
            ("not a url", "`base_url` is not a URL"),
        ] {
            let result = endpoint(|config| config.base_url = Some(base.into()));
            assert_eq!(result.unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn azure_gets_its_version_and_the_key_under_its_name() {
        let endpoint = endpoint(|config| {
            config.base_url = Some("https://x.openai.azure.com/openai/deployments/d".into());
            config.api_version = Some("2024-10-21".into());
            config.api_key = Some("key-of-azure".into());
        })
        .unwrap();
        assert_eq!(endpoint.url.query(), Some("api-version=2024-10-21"));
        assert_eq!(endpoint.headers["api-key"], "key-of-azure");
    }

    #[test]
    fn headers_come_from_both_places_and_never_print() {
        let endpoint = endpoint(|config| {
            config.api_key = Some("sk-1234567".into());
            config.headers = [("X-Team".into(), "team-of-seven".into())].into();
            config.completion_kwargs.insert("extra_headers".into(), json!({ "X-Title": "Glovebox here" }));
        })
        .unwrap();
        assert_eq!(endpoint.headers["authorization"], "Bearer sk-1234567");
        assert_eq!(endpoint.headers["x-title"], "Glovebox here");
        let printed = format!("{endpoint:?}");
        assert!(!printed.contains("sk-1234567") && !printed.contains("team-of-seven"), "{printed}");
        assert_eq!(endpoint.secrets.detail("sk-1234567 team-of-seven"), "[redacted] [redacted]");
    }

    #[test]
    fn a_value_that_is_no_header_is_not_told() {
        let error = endpoint(|config| config.api_key = Some("sk-\n".into())).unwrap_err();
        assert_eq!(error.to_string(), "`api_key` cannot be sent as an HTTP header");
    }
}
