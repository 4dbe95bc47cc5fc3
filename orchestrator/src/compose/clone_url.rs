//! The URL of a repository that a user names by its provider.

use std::collections::BTreeMap;

use conversations::GitToken;
use protocol::client_api::git::GitProvider;

use super::user_config::host_name;
use crate::exit::UsageError;

/// Maximum number of groups and subgroups in a name.
const MAX_SEGMENTS: usize = 22;

/// A repository to clone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChosenRepository {
    /// Without credentials, unless the user has named a URL with some.
    pub(crate) url: String,
    /// `None` if the user has named a URL without its provider.
    pub(crate) provider: Option<GitProvider>,
}

/// Returns the URL of a repository. A name without a provider is that of the only provider with a
/// token, else GitHub's.
pub(crate) fn choose(
    repository: &str,
    provider: Option<GitProvider>,
    tokens: &BTreeMap<GitProvider, GitToken>,
) -> Result<ChosenRepository, UsageError> {
    let repository = repository.trim();
    if repository.contains(':') || repository.starts_with('/') {
        return Ok(ChosenRepository {
            url: repository.to_owned(),
            provider,
        });
    }
    let provider = match provider {
        Some(provider) => provider,
        None if tokens.is_empty() || tokens.contains_key(&GitProvider::GitHub) => {
            GitProvider::GitHub
        }
        None => match tokens.keys().collect::<Vec<_>>()[..] {
            [provider] => *provider,
            _ => return refuse("names no git_provider, and there are tokens of several"),
        },
    };
    let host = tokens
        .get(&provider)
        .and_then(|token| token.host.as_deref());
    Ok(ChosenRepository {
        url: clone_url(provider, host, repository)?,
        provider: Some(provider),
    })
}

fn clone_url(provider: GitProvider, host: Option<&str>, name: &str) -> Result<String, UsageError> {
    let segments: Vec<&str> = name.split('/').collect();
    if segments.len() > MAX_SEGMENTS || !segments.iter().all(|segment| is_segment(segment)) {
        return refuse("is neither a full name nor a URL");
    }
    // Only projects of Azure DevOps have names with spaces.
    let encoded = name.replace(' ', "%20");
    let at = |own| host.map_or(own, server);
    match (provider, &encoded.split('/').collect::<Vec<_>>()[..]) {
        (GitProvider::GitHub, [_, _]) => Ok(format!("https://{}/{encoded}.git", at("github.com"))),
        (GitProvider::GitLab, [_, _, ..]) => {
            Ok(format!("https://{}/{encoded}.git", at("gitlab.com")))
        }
        (GitProvider::Bitbucket, [_, _]) => {
            Ok(format!("https://{}/{encoded}.git", at("bitbucket.org")))
        }
        (GitProvider::AzureDevOps, [organization, project, name]) => {
            // The host may be only the organization.
            let host = host
                .map(host_name)
                .filter(|host| host.contains('.'))
                .unwrap_or("dev.azure.com");
            Ok(format!(
                "https://{host}/{organization}/{project}/_git/{name}"
            ))
        }
        (GitProvider::EnterpriseSso, _) => refuse("is at a provider without repositories"),
        (GitProvider::AzureDevOps, _) => refuse("must be organization/project/name"),
        _ => refuse("must be owner/name"),
    }
}

/// Returns the host of a token, with the path below which it serves.
fn server(host: &str) -> &str {
    let host = host.trim();
    host.split_once("://")
        .map_or(host, |(_, rest)| rest)
        .trim_end_matches('/')
}

fn is_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..")
        && !segment.starts_with('-')
        && segment.trim() == segment
        && segment
            .chars()
            .all(|character| character.is_alphanumeric() || " ._-~+".contains(character))
}

fn refuse<T>(problem: &str) -> Result<T, UsageError> {
    Err(UsageError(format!("the repository {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(hosts: &[(GitProvider, Option<&str>)]) -> BTreeMap<GitProvider, GitToken> {
        let token = |host: Option<&str>| GitToken {
            token: "hunter2".into(),
            user_id: None,
            host: host.map(str::to_owned),
        };
        hosts
            .iter()
            .map(|(provider, host)| (*provider, token(*host)))
            .collect()
    }

    #[test]
    fn name_leads_to_the_host_of_its_provider() {
        use GitProvider::*;
        for (provider, host, name, url) in [
            (
                GitHub,
                None,
                "acme/.github",
                "https://github.com/acme/.github.git",
            ),
            (
                GitHub,
                Some("https://git.example.com/"),
                "acme/app",
                "https://git.example.com/acme/app.git",
            ),
            (
                GitLab,
                None,
                "group/sub/app",
                "https://gitlab.com/group/sub/app.git",
            ),
            (
                GitLab,
                Some("example.com:8443/git"),
                "a/b",
                "https://example.com:8443/git/a/b.git",
            ),
            (
                Bitbucket,
                None,
                "acme/app",
                "https://bitbucket.org/acme/app.git",
            ),
            (
                AzureDevOps,
                Some("acme"),
                "acme/my project/app",
                "https://dev.azure.com/acme/my%20project/_git/app",
            ),
            (
                AzureDevOps,
                Some("devops.example.com/c"),
                "c/p/app",
                "https://devops.example.com/c/p/_git/app",
            ),
        ] {
            let found = choose(name, Some(provider), &tokens(&[(provider, host)])).unwrap();
            assert_eq!(
                found,
                ChosenRepository {
                    url: url.to_owned(),
                    provider: Some(provider)
                }
            );
        }
    }

    #[test]
    fn name_without_a_provider_is_that_of_the_only_token() {
        use GitProvider::*;
        let provider = |given: &[GitProvider]| {
            let given: Vec<_> = given.iter().map(|provider| (*provider, None)).collect();
            choose("a/b", None, &tokens(&given))
                .map(|chosen| chosen.provider)
                .ok()
                .flatten()
        };
        assert_eq!(provider(&[]), Some(GitHub));
        assert_eq!(provider(&[GitLab]), Some(GitLab));
        assert_eq!(provider(&[GitHub, GitLab]), Some(GitHub));
        assert_eq!(provider(&[GitLab, Bitbucket]), None);
    }

    #[test]
    fn url_is_used_as_it_is() {
        for url in ["https://h/a/b", "file:///srv/p", "/srv/p", "git@h:a/b.git"] {
            let found = choose(url, None, &tokens(&[(GitProvider::GitLab, None)])).unwrap();
            assert_eq!(
                found,
                ChosenRepository {
                    url: url.to_owned(),
                    provider: None
                }
            );
        }
    }

    #[test]
    fn name_is_refused_when_the_provider_has_none_like_it() {
        use GitProvider::*;
        for (provider, name) in [
            (GitHub, "app"),
            (GitHub, "a/b/c"),
            (GitHub, "../b"),
            (GitHub, "a/-b"),
            (GitHub, "a/b#c"),
            (GitHub, "a/b?c"),
            (GitHub, "a@evil/b"),
            (GitLab, "a//b"),
            (AzureDevOps, "a/b"),
            (EnterpriseSso, "a/b"),
        ] {
            assert!(
                choose(name, Some(provider), &tokens(&[])).is_err(),
                "{name}"
            );
        }
    }
}
