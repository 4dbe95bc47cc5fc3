//! The endpoint, and Azure's form of it.
//!
//! Azure serves the API at one URL for all deployments of a resource, and takes the deployment as
//! the model. Users configure the URL of chat completions, which names the deployment, and a dated
//! API version, with which Azure does not serve this API.

use crate::config::{ConfigError, LlmConfig};
use crate::hosts;
use crate::wire::endpoint::{Api, Endpoint};

const API: Api = Api {
    base: "https://api.openai.com/v1",
    path: "responses",
    key: ("authorization", "Bearer "),
};

/// The part of a base URL's path that users configure for chat completions.
const CHAT_PATH: &str = "/chat/completions";

pub(super) fn endpoint(config: &LlmConfig) -> Result<Endpoint, ConfigError> {
    let mut endpoint = Endpoint::new(config, &API, &[])?;
    let is_azure = endpoint.url.host_str().is_some_and(hosts::is_azure);
    let path = endpoint.url.path().replace(CHAT_PATH, "");
    endpoint
        .url
        .set_path(&if is_azure { azure_path(&path) } else { path });
    let version = config.api_version.as_deref();
    if let Some(version) = version.filter(|version| !is_azure || !is_dated(version)) {
        endpoint
            .url
            .query_pairs_mut()
            .append_pair("api-version", version);
    }
    if let Some(key) = config
        .api_key
        .as_ref()
        .filter(|_| is_azure || version.is_some())
    {
        endpoint.add_key("api-key", key)?;
    }
    Ok(endpoint)
}

/// Returns the deployment that a URL of Azure names.
pub(super) fn azure_deployment(config: &LlmConfig) -> Option<&str> {
    let (host, path) = config
        .configured_base_url()?
        .split_once("/openai/deployments/")?;
    let host = host.rsplit('/').next()?;
    hosts::is_azure(host).then_some(path.split(['/', '?']).next()?)
}

/// Returns the path below the resource or, in Azure's Foundry, below the project.
fn azure_path(path: &str) -> String {
    if path.contains("/openai/v1/") {
        return path.to_owned();
    }
    let base = path.strip_suffix("/responses").unwrap_or(path);
    let (base, _) = base.split_once("/openai").unwrap_or((base, ""));
    format!("{base}/openai/v1/responses")
}

fn is_dated(version: &str) -> bool {
    version.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(base: &str) -> LlmConfig {
        LlmConfig {
            base_url: Some(base.into()),
            ..LlmConfig::new("m")
        }
    }

    #[test]
    fn path_is_appended_to_the_base_url() {
        for (base, url) in [
            ("", "https://api.openai.com/v1/responses"),
            ("http://h/v1/", "http://h/v1/responses"),
            ("http://h/v1/responses", "http://h/v1/responses"),
            ("http://h/v1/chat/completions", "http://h/v1/responses"),
        ] {
            assert_eq!(endpoint(&config(base)).unwrap().url.as_str(), url, "{base}");
        }
    }

    #[test]
    fn azure_has_one_url_for_all_deployments() {
        let resource = "https://x.openai.azure.com";
        for path in [
            "",
            "/openai",
            "/openai/v1",
            "/openai/v1/responses",
            "/openai/deployments/d",
            "/openai/deployments/d/chat/completions",
        ] {
            let url = endpoint(&config(&format!("{resource}{path}"))).unwrap().url;
            assert_eq!(
                url.as_str(),
                format!("{resource}/openai/v1/responses"),
                "{path}"
            );
        }
        let project = "https://x.services.ai.azure.com/api/projects/p";
        let url = endpoint(&config(project)).unwrap().url;
        assert_eq!(url.as_str(), format!("{project}/openai/v1/responses"));
    }

    #[test]
    fn azure_gets_its_key_header_and_no_dated_version() {
        let endpoint = |base: &str, version: &str| {
            let config = LlmConfig {
                api_version: Some(version.into()),
                api_key: Some("key-of-azure".into()),
                ..config(base)
            };
            let endpoint = endpoint(&config).unwrap();
            assert_eq!(endpoint.headers["api-key"], "key-of-azure");
            endpoint.url.query().map(str::to_owned)
        };
        let azure = "https://x.openai.azure.com";
        assert_eq!(endpoint(azure, "2024-10-21"), None);
        assert_eq!(
            endpoint(azure, "preview").as_deref(),
            Some("api-version=preview")
        );
        assert_eq!(
            endpoint("http://gateway", "2024-10-21").as_deref(),
            Some("api-version=2024-10-21")
        );
    }

    #[test]
    fn deployment_is_found_in_azures_url_only() {
        for (base, deployment) in [
            ("https://x.openai.azure.com/openai/deployments/d", Some("d")),
            (
                "https://x.openai.azure.com/openai/deployments/d/chat/completions?a=1",
                Some("d"),
            ),
            ("https://x.openai.azure.com/openai/v1", None),
            ("http://gateway/openai/deployments/d", None),
            ("", None),
        ] {
            assert_eq!(azure_deployment(&config(base)), deployment, "{base}");
        }
    }
}
