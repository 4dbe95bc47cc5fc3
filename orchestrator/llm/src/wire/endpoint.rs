//! The URL and headers of requests. The header with the key is marked as sensitive.

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::config::{ConfigError, LlmConfig};
use crate::secrets::Secrets;

/// Segments of the paths of providers' APIs.
const KNOWN_SEGMENTS: [&str; 8] = [
    "api",
    "chat",
    "completions",
    "messages",
    "openai",
    "responses",
    "v1",
    "v1beta",
];

/// The API of a provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Api {
    /// The provider's own base URL.
    pub(crate) base: &'static str,
    /// The path below the provider's or the configured base URL.
    pub(crate) path: &'static str,
    /// The header with the key, and the prefix of its value.
    pub(crate) key: (&'static str, &'static str),
}

/// The URL, headers and secrets of a provider.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) secrets: Secrets,
}

impl Endpoint {
    /// Creates an endpoint. Configured headers override those of the wire.
    pub(crate) fn new(
        config: &LlmConfig,
        api: &Api,
        wire_headers: &[(&'static str, &'static str)],
    ) -> Result<Self, ConfigError> {
        let headers = wire_headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut endpoint = Self {
            url: build_url(config, api)?,
            headers: headers.collect(),
            secrets: Secrets::default(),
        };
        if let Some(key) = &config.api_key {
            let (name, scheme) = api.key;
            endpoint.add_key(
                name,
                &SecretString::from(format!("{scheme}{}", key.expose_secret())),
            )?;
            endpoint.secrets.add(key);
        }
        for (name, value) in &config.headers {
            endpoint.add_named_header(name, value)?;
        }
        endpoint.add_extra_headers(config)?;
        Ok(endpoint)
    }

    /// Whether requests have a key, or a configured header that may hold one.
    pub(crate) fn has_credentials(&self) -> bool {
        self.headers.values().any(HeaderValue::is_sensitive)
    }

    /// Returns host and port.
    pub(crate) fn address(&self) -> String {
        let port = self
            .url
            .port_or_known_default()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        format!("{}{port}", self.url.host_str().unwrap_or_default())
    }

    /// Returns the URL without its query, and with `…` for each segment that is not part of a
    /// well-known path: gateways have keys there.
    pub(crate) fn public_url(&self) -> String {
        let segments = self.url.path_segments().into_iter().flatten();
        let path = segments.map(|segment| {
            if KNOWN_SEGMENTS.contains(&segment) {
                segment
            } else {
                "…"
            }
        });
        let path: Vec<_> = path.collect();
        format!(
            "{}://{}/{}",
            self.url.scheme(),
            self.address(),
            path.join("/")
        )
    }

    /// Adds a header with the key.
    pub(crate) fn add_key(
        &mut self,
        name: &'static str,
        value: &SecretString,
    ) -> Result<(), ConfigError> {
        self.add_header(HeaderName::from_static(name), value, "`api_key`")
    }

    fn add_extra_headers(&mut self, config: &LlmConfig) -> Result<(), ConfigError> {
        let invalid = |problem| ConfigError::CompletionKwargs {
            key: "extra_headers".into(),
            problem,
        };
        let headers = match config.completion_kwargs.get("extra_headers") {
            None => return Ok(()),
            Some(headers) => headers
                .as_object()
                .ok_or_else(|| invalid("is not an object"))?,
        };
        for (name, value) in headers {
            let Value::String(value) = value else {
                return Err(invalid("has a value that is not text"));
            };
            self.add_named_header(name, &value.as_str().into())?;
        }
        Ok(())
    }

    fn add_named_header(&mut self, name: &str, value: &SecretString) -> Result<(), ConfigError> {
        let parsed: HeaderName = name
            .parse()
            .map_err(|_| ConfigError::Header(format!("`{name}`")))?;
        self.add_header(parsed, value, &format!("the value of `{name}`"))?;
        self.secrets.add(value);
        Ok(())
    }

    fn add_header(
        &mut self,
        name: HeaderName,
        value: &SecretString,
        what: &str,
    ) -> Result<(), ConfigError> {
        let mut value: HeaderValue = value
            .expose_secret()
            .parse()
            .map_err(|_| ConfigError::Header(what.to_owned()))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

/// Appends the path to the base URL, except for a part of the path that the base URL already has.
fn build_url(config: &LlmConfig, api: &Api) -> Result<Url, ConfigError> {
    let base = config.configured_base_url().unwrap_or(api.base);
    if !base.contains("://") {
        // The rest may hold a key.
        let host = base
            .split(['/', '?'])
            .next()
            .and_then(|host| host.rsplit('@').next());
        return Err(ConfigError::BaseUrlWithoutScheme(
            host.unwrap_or_default().to_owned(),
        ));
    }
    let mut url: Url = base.parse().map_err(|error| ConfigError::BaseUrl {
        source: Box::new(error),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ConfigError::BaseUrlUnusable(
            "does not start with http:// or https://",
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ConfigError::BaseUrlUnusable(
            "has a user name or password, which would be logged",
        ));
    }
    let path = join(url.path().trim_end_matches('/'), api.path);
    url.set_path(&path);
    Ok(url)
}

/// Joins two paths, without repeating segments of `path` that end `base`.
fn join(base: &str, path: &str) -> String {
    let segment_ends = path
        .match_indices('/')
        .map(|(end, _)| end)
        .chain([path.len()]);
    let common = segment_ends
        .filter(|end| base.ends_with(&format!("/{}", &path[..*end])))
        .max()
        .unwrap_or_default();
    format!("{base}/{}", path[common..].trim_start_matches('/'))
        .trim_end_matches('/')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const API: Api = Api {
        base: "https://api.openai.com/v1",
        path: "chat/completions",
        key: ("authorization", "Bearer "),
    };

    fn endpoint(change: impl FnOnce(&mut LlmConfig)) -> Result<Endpoint, ConfigError> {
        let mut config = LlmConfig::new("m");
        change(&mut config);
        Endpoint::new(
            &config,
            &API,
            &[("x-title", "ours"), ("x-other", "ours too")],
        )
    }

    #[test]
    fn path_is_appended_to_the_base_url() {
        for (base, url) in [
            ("", "https://api.openai.com/v1/chat/completions"),
            (
                "http://localhost:4000",
                "http://localhost:4000/chat/completions",
            ),
            (
                "http://localhost:4000/",
                "http://localhost:4000/chat/completions",
            ),
            ("http://h/v1/", "http://h/v1/chat/completions"),
            (
                "http://h/v1/chat/completions",
                "http://h/v1/chat/completions",
            ),
            (
                "http://h/v1?tenant=7",
                "http://h/v1/chat/completions?tenant=7",
            ),
        ] {
            let endpoint = endpoint(|config| config.base_url = Some(base.into())).unwrap();
            assert_eq!(endpoint.url.as_str(), url, "{base}");
        }
    }

    #[test]
    fn unsupported_base_url_is_an_error() {
        for (base, error) in [
            (
                "localhost:4000",
                "`base_url` localhost:4000 lacks `http://` or `https://`",
            ),
            (
                "me:pass@127.0.0.1:1/v1?key=k",
                "`base_url` 127.0.0.1:1 lacks `http://` or `https://`",
            ),
            (
                "ftp://h/",
                "`base_url` does not start with http:// or https://",
            ),
            (
                "http://me:pass@h/",
                "`base_url` has a user name or password, which would be logged",
            ),
            ("http://", "`base_url` is not a URL"),
        ] {
            let result = endpoint(|config| config.base_url = Some(base.into()));
            assert_eq!(result.unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn common_segments_of_a_path_are_not_repeated() {
        for (base, path) in [
            ("", "/v1/messages"),
            ("/v1", "/v1/messages"),
            ("/v1/messages", "/v1/messages"),
            ("/anthropic", "/anthropic/v1/messages"),
            ("/av1", "/av1/v1/messages"),
        ] {
            assert_eq!(join(base, "v1/messages"), path, "{base}");
        }
    }

    #[test]
    fn address_is_host_and_port() {
        for (base, address) in [
            ("https://h/v1?key=k", "h:443"),
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://[::1]", "[::1]:80"),
        ] {
            let endpoint = endpoint(|config| config.base_url = Some(base.into())).unwrap();
            assert_eq!(endpoint.address(), address);
        }
    }

    #[test]
    fn public_url_shows_known_segments_only() {
        for (base, url) in [
            (
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080/chat/completions",
            ),
            (
                "https://h/sk-1234567/v1?key=k",
                "https://h:443/…/v1/chat/completions",
            ),
        ] {
            let endpoint = endpoint(|config| config.base_url = Some(base.into())).unwrap();
            assert_eq!(endpoint.public_url(), url);
        }
    }

    #[test]
    fn headers_of_all_sources_are_sent_and_not_printed() {
        let endpoint = endpoint(|config| {
            config.api_key = Some("sk-1234567".into());
            config.headers = [("X-Team".into(), "team-of-seven".into())].into();
            config.completion_kwargs.insert(
                "extra_headers".into(),
                json!({ "X-Title": "Glovebox here" }),
            );
        })
        .unwrap();
        assert_eq!(endpoint.headers["authorization"], "Bearer sk-1234567");
        assert_eq!(endpoint.headers["x-title"], "Glovebox here");
        assert_eq!(endpoint.headers["x-other"], "ours too");
        let printed = format!("{endpoint:?}");
        assert!(
            !printed.contains("sk-1234567") && !printed.contains("team-of-seven"),
            "{printed}"
        );
        assert_eq!(
            endpoint.secrets.detail("sk-1234567 team-of-seven"),
            "[redacted] [redacted]"
        );
    }

    #[test]
    fn error_of_an_invalid_header_omits_its_value() {
        let error = endpoint(|config| config.api_key = Some("sk-\n".into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`api_key` cannot be sent as an HTTP header"
        );
    }
}
