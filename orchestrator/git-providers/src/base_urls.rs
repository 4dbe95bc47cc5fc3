//! The URLs of the providers' APIs.

use std::str::FromStr;

use reqwest::Url;

/// The base URLs of the APIs. Used for every token that names no other host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrls {
    /// GitHub's REST API. GraphQL is expected at `graphql` below it; at `/api/graphql` if this ends
    /// in `/api/v3`.
    pub github: Url,
    /// GitLab's REST API, version 4.
    pub gitlab: Url,
    /// Bitbucket Cloud's REST API, version 2.0.
    pub bitbucket: Url,
    /// Azure DevOps, without the organization.
    pub azure_devops: Url,
    /// The profiles of Azure DevOps, without the organization.
    pub azure_devops_profile: Url,
}

impl Default for BaseUrls {
    #[expect(clippy::unwrap_used, reason = "constants, parsed by a test")]
    fn default() -> Self {
        Self {
            github: Url::parse("https://api.github.com/").unwrap(),
            gitlab: Url::parse("https://gitlab.com/api/v4/").unwrap(),
            bitbucket: Url::parse("https://api.bitbucket.org/2.0/").unwrap(),
            azure_devops: Url::parse("https://dev.azure.com/").unwrap(),
            azure_devops_profile: Url::parse("https://vssps.dev.azure.com/").unwrap(),
        }
    }
}

/// Replaces one of the [`BaseUrls`]. Its text is `NAME=URL`, with a name of [`BaseUrl::NAMES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    name: &'static str,
    url: Url,
}

/// A text that is no [`BaseUrl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBaseUrl {
    /// It has no name of an API.
    #[error("expected NAME=URL, with one of the names {}", BaseUrl::NAMES.join(", "))]
    Name,
    /// Its URL is none of HTTP.
    #[error("expected a URL of https or http, without credentials, query and fragment")]
    Url,
}

impl BaseUrl {
    /// The names of the APIs: those of [`BaseUrls`]' fields.
    pub const NAMES: [&str; 5] = [
        "github",
        "gitlab",
        "bitbucket",
        "azure_devops",
        "azure_devops_profile",
    ];
}

impl FromStr for BaseUrl {
    type Err = InvalidBaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBaseUrl> {
        let (name, url) = text.split_once('=').ok_or(InvalidBaseUrl::Name)?;
        let name = Self::NAMES
            .into_iter()
            .find(|known| *known == name)
            .ok_or(InvalidBaseUrl::Name)?;
        let url = Url::parse(url).map_err(|_| InvalidBaseUrl::Url)?;
        let is_http = matches!(url.scheme(), "http" | "https");
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if !is_http || has_credentials || url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidBaseUrl::Url);
        }
        Ok(Self { name, url })
    }
}

impl BaseUrls {
    /// Replaces a base URL.
    pub fn set(&mut self, BaseUrl { name, url }: BaseUrl) {
        match name {
            "github" => self.github = url,
            "gitlab" => self.gitlab = url,
            "bitbucket" => self.bitbucket = url,
            "azure_devops" => self.azure_devops = url,
            _ => self.azure_devops_profile = url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_replaces_its_own_url() {
        let defaults = BaseUrls::default();
        for name in BaseUrl::NAMES {
            let mut urls = defaults.clone();
            urls.set(format!("{name}=http://127.0.0.1:1/x").parse().unwrap());
            let all = |urls: &BaseUrls| {
                [
                    urls.github.clone(),
                    urls.gitlab.clone(),
                    urls.bitbucket.clone(),
                    urls.azure_devops.clone(),
                    urls.azure_devops_profile.clone(),
                ]
            };
            let changed: Vec<_> = all(&urls)
                .into_iter()
                .zip(all(&defaults))
                .zip(BaseUrl::NAMES)
                .filter(|((new, old), _)| new != old)
                .map(|(_, name)| name)
                .collect();
            assert_eq!(changed, [name]);
        }
    }

    #[test]
    fn base_url_is_refused_when_it_is_malformed() {
        for (text, error) in [
            ("https://api.github.com", InvalidBaseUrl::Name),
            ("gitea=https://h", InvalidBaseUrl::Name),
            ("github=ftp://h", InvalidBaseUrl::Url),
            ("github=h", InvalidBaseUrl::Url),
            ("github=https://me:x@h", InvalidBaseUrl::Url),
            ("github=https://h?x=1", InvalidBaseUrl::Url),
        ] {
            assert_eq!(text.parse::<BaseUrl>(), Err(error), "{text}");
        }
    }
}
