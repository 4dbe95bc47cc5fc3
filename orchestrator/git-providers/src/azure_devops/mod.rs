//! Azure DevOps: the REST API, version 7.1, of one organization.
//!
//! A repository's full name is `organization/project/name`. Lists of repositories have no pages, so
//! that they are cut here.

mod branches;
mod microagents;
mod repositories;
mod tasks;

use protocol::client_api::git::User;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::client::GitClient;
use crate::error::RequestError;
use crate::http::{Api, Credentials};
use crate::names::{foreign_host, invalid_repository, segments};
use crate::token::ProviderToken;

const MEDIA_TYPE: &str = "application/json";
const VERSION: (&str, &str) = ("api-version", "7.1");

/// Requests an error instead of a redirect to the sign-in page.
const NO_SIGN_IN: (&str, &str) = ("x-tfs-fedauthredirect", "Suppress");

/// The host of organizations.
const HOST: &str = "dev.azure.com";

/// The domain of organizations that were created before [`HOST`] existed.
const OLD_DOMAIN: &str = ".visualstudio.com";

/// Azure DevOps with a token.
#[derive(Debug)]
pub(crate) struct AzureDevOps {
    api: Api,
    /// The API of users' profiles.
    profiles: Api,
    organization: String,
}

/// A list.
#[derive(Deserialize)]
struct Values<T> {
    value: Vec<T>,
}

/// The parts of a full name.
struct RepositoryName<'a> {
    organization: &'a str,
    project: &'a str,
    name: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    id: String,
    display_name: Option<String>,
    email_address: Option<String>,
}

impl AzureDevOps {
    pub(crate) fn new(client: &GitClient, token: &ProviderToken) -> Result<Self, RequestError> {
        let credentials = credentials(token)?;
        let (foreign, organization) = organization(token.host.as_deref())?;
        let urls = &client.shared.base_urls;
        let base = foreign.clone().unwrap_or_else(|| urls.azure_devops.clone());
        let profiles = foreign.unwrap_or_else(|| urls.azure_devops_profile.clone());
        let api = Api::new(client.clone(), base, credentials, MEDIA_TYPE);
        Ok(Self {
            profiles: api.with_base(profiles),
            api,
            organization,
        })
    }

    /// Whether web pages are at a host.
    pub(crate) fn is_at(&self, host: &str) -> bool {
        self.api.base().host_str() == Some(host)
    }

    pub(crate) fn organizations(&self) -> Vec<String> {
        vec![self.organization.clone()]
    }

    /// Requests no profile, which most personal access tokens cannot read.
    pub(crate) async fn check_token(&self) -> Result<(), RequestError> {
        let path = [&self.organization, "_apis", "connectionData"];
        let _: IgnoredAny = self.api.get(self.api.url(&path, &[])?).await?;
        Ok(())
    }

    pub(crate) async fn user(&self) -> Result<User, RequestError> {
        let profile = self.profile().await?;
        Ok(User {
            id: profile.id,
            login: profile.email_address.clone().unwrap_or_default(),
            avatar_url: String::new(),
            company: None,
            name: profile.display_name,
            email: profile.email_address,
        })
    }

    async fn profile(&self) -> Result<Profile, RequestError> {
        let path = [&self.organization, "_apis", "profile", "profiles", "me"];
        self.profiles
            .get(self.profiles.url(&path, &[VERSION])?)
            .await
    }

    /// Returns the URL of a path below a repository.
    fn repository_url(
        &self,
        repository: &RepositoryName<'_>,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Url, RequestError> {
        let RepositoryName {
            organization,
            project,
            name,
        } = *repository;
        let parents = [organization, project, "_apis", "git", "repositories", name];
        self.api.url(
            &[&parents[..], path].concat(),
            &[query, &[VERSION]].concat(),
        )
    }

    /// Splits `organization/project/name`. The organization may be left out.
    fn split<'a>(&'a self, repository: &'a str) -> Result<RepositoryName<'a>, RequestError> {
        match segments(repository)?[..] {
            [organization, project, name] => Ok(RepositoryName {
                organization,
                project,
                name,
            }),
            [project, name] => Ok(RepositoryName {
                organization: &self.organization,
                project,
                name,
            }),
            _ => Err(invalid_repository("expected organization/project/name")),
        }
    }
}

/// Personal access tokens are passwords; tokens of Microsoft Entra are JSON web tokens.
fn credentials(token: &ProviderToken) -> Result<Credentials, RequestError> {
    let secret = token.token.expose_secret();
    let is_web_token = secret.starts_with("eyJ") && secret.split('.').count() == 3;
    let credentials = if is_web_token {
        Credentials::bearer(&token.token)
    } else {
        Credentials::basic("", secret)
    };
    Ok(credentials?.with_header(NO_SIGN_IN.0, NO_SIGN_IN.1))
}

/// Finds the organization in the host of a token, and the server's URL if it is not the cloud's.
fn organization(host: Option<&str>) -> Result<(Option<Url>, String), RequestError> {
    let missing = || RequestError::InvalidInput {
        field: "host",
        problem: "expected the organization, for example dev.azure.com/acme",
    };
    let host = host
        .map(|host| host.trim().trim_end_matches('/'))
        .filter(|host| !host.is_empty());
    let host = host.ok_or_else(missing)?;
    if !host.contains(['/', '.', ':']) {
        return Ok((None, host.to_owned()));
    }
    let url = foreign_host(Some(host), &[])?.ok_or_else(missing)?;
    let name = url.host_str().unwrap_or_default();
    if let Some(organization) = name.strip_suffix(OLD_DOMAIN) {
        return Ok((None, organization.to_owned()));
    }
    let (parent, organization) = url.path().rsplit_once('/').ok_or_else(missing)?;
    if organization.is_empty() {
        return Err(missing());
    }
    if name == HOST && url.port().is_none() && parent.is_empty() {
        return Ok((None, organization.to_owned()));
    }
    let organization = organization.to_owned();
    let mut server = url.clone();
    server.set_path(parent);
    Ok((Some(server), organization))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organization_is_found_in_every_form_of_the_host() {
        let found = |host| {
            organization(Some(host))
                .map(|(url, name)| (url.map(String::from), name))
                .ok()
        };
        let in_cloud = Some((None, "acme".to_owned()));
        for host in [
            "acme",
            "dev.azure.com/acme",
            "https://dev.azure.com/acme/",
            "acme.visualstudio.com",
        ] {
            assert_eq!(found(host), in_cloud, "{host}");
        }
        let server = "https://tfs.example.com:8443/tfs".to_owned();
        assert_eq!(
            found("tfs.example.com:8443/tfs/acme"),
            Some((Some(server), "acme".to_owned()))
        );
        for host in [
            "",
            "dev.azure.com",
            "dev.azure.com/",
            "http://dev.azure.com/acme",
        ] {
            assert_eq!(found(host), None, "{host}");
        }
    }
}
