//! Names and hosts that a user supplies.

use percent_encoding::percent_decode_str;
use protocol::client_api::git::GitProvider;
use reqwest::Url;

use crate::error::RequestError;

/// Splits `owner/name`.
pub(crate) fn owner_and_name(repository: &str) -> Result<(&str, &str), RequestError> {
    match segments(repository)?[..] {
        [owner, name] => Ok((owner, name)),
        _ => Err(invalid_repository("expected owner/name")),
    }
}

/// Splits a repository's name at `/`.
pub(crate) fn segments(repository: &str) -> Result<Vec<&str>, RequestError> {
    let segments: Vec<&str> = repository.split('/').collect();
    if segments.len() < 2 || !segments.iter().all(|segment| is_segment(segment)) {
        return Err(invalid_repository("expected owner/name"));
    }
    Ok(segments)
}

/// Whether a URL's path keeps this segment.
pub(crate) fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}

pub(crate) fn invalid_repository(problem: &'static str) -> RequestError {
    RequestError::InvalidInput {
        field: "repository",
        problem,
    }
}

/// Splits the path of a file in a repository at `/`.
pub(crate) fn file_segments(path: &str) -> Result<Vec<&str>, RequestError> {
    let segments: Vec<&str> = path.split('/').collect();
    if !segments.iter().all(|segment| is_segment(segment)) {
        let problem = "expected a path relative to the repository, without `.` or `..`";
        return Err(RequestError::InvalidInput {
            field: "file path",
            problem,
        });
    }
    Ok(segments)
}

/// Parses the host of a token. Its scheme must be `https`, because the token is sent there.
pub(crate) fn host_url(host: &str) -> Result<Url, RequestError> {
    let invalid = |problem| RequestError::InvalidInput {
        field: "host",
        problem,
    };
    let text = if host.contains("://") {
        host.to_owned()
    } else {
        format!("https://{host}")
    };
    let url = Url::parse(&text).map_err(|_| invalid("expected a host name"))?;
    if url.scheme() != "https" {
        return Err(invalid("its scheme must be https"));
    }
    let has_more = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
    if has_more || url.fragment().is_some() {
        return Err(invalid("expected a host name, with a path at most"));
    }
    Ok(url)
}

/// Returns the host of a token, unless it is one of `own`, the provider's own hosts.
pub(crate) fn foreign_host(host: Option<&str>, own: &[&str]) -> Result<Option<Url>, RequestError> {
    let Some(host) = host.map(str::trim).filter(|host| !host.is_empty()) else {
        return Ok(None);
    };
    let url = host_url(host)?;
    let is_own = url.host_str().is_some_and(|name| own.contains(&name)) && url.port().is_none();
    Ok((!is_own).then_some(url))
}

/// Appends a path to a URL of a host.
pub(crate) fn url_below(host: &Url, path: &str) -> Url {
    let mut url = host.clone();
    url.set_path(&format!("{}/{path}", host.path().trim_end_matches('/')));
    url
}

/// Returns the path of a URL of a repository, without `.git` and what web pages add to it. `None`
/// if the text is no URL.
pub(crate) fn repository_in_url(text: &str) -> Option<(String, String)> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "https" | "http"))?;
    let path = url.path().trim_matches('/');
    let path = path
        .split_once("/-/")
        .map_or(path, |(repository, _)| repository);
    let path = path.strip_suffix(".git").unwrap_or(path);
    Some((url.host_str()?.to_owned(), path.to_owned()))
}

/// Returns V0's name of the repository at a URL: `owner/name`, with all groups at GitLab, and
/// `organization/project/name` at Azure DevOps. Returns the URL if the provider is unknown, or if
/// it has no such URL. A path below which a GitLab serves counts as a group, because nothing
/// distinguishes it.
pub fn repository_name(provider: Option<GitProvider>, url: &str) -> String {
    full_name(provider, url).unwrap_or_else(|| url.to_owned())
}

fn full_name(provider: Option<GitProvider>, url: &str) -> Option<String> {
    let (host, path) = repository_in_url(url)?;
    // The provider of V0's names without one.
    let provider = provider.or_else(|| (host == "github.com").then_some(GitProvider::GitHub))?;
    let segments: Vec<&str> = path.split('/').collect();
    let name = match (provider, &segments[..]) {
        (GitProvider::GitHub | GitProvider::Bitbucket, [.., owner, name]) => {
            format!("{owner}/{name}")
        }
        (GitProvider::GitLab, [_, _, ..]) => path,
        (GitProvider::AzureDevOps, [.., organization, project, "_git", name]) => {
            format!("{organization}/{project}/{name}")
        }
        _ => return None,
    };
    Some(percent_decode_str(&name).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_is_owner_and_name() {
        assert_eq!(owner_and_name("acme/app").unwrap(), ("acme", "app"));
        for name in [
            "",
            "app",
            "/app",
            "acme/",
            "acme/../app",
            "acme/..",
            "./app",
            "a/b/c",
        ] {
            let error = owner_and_name(name).unwrap_err();
            assert!(
                matches!(
                    error,
                    RequestError::InvalidInput {
                        field: "repository",
                        ..
                    }
                ),
                "{name}"
            );
        }
    }

    #[test]
    fn file_path_stays_in_the_repository() {
        assert_eq!(
            file_segments(".openhands/microagents/a.md").unwrap().len(),
            3
        );
        for path in ["", "/etc/passwd", "a//b", "a/../b", "..", "a/"] {
            assert!(file_segments(path).is_err(), "{path}");
        }
    }

    #[test]
    fn host_is_a_name_or_an_https_url() {
        assert_eq!(
            host_url("git.example.com/sub").unwrap().as_str(),
            "https://git.example.com/sub"
        );
        assert_eq!(
            host_url("https://git.example.com:8443").unwrap().port(),
            Some(8443)
        );
        for host in [
            "http://git.example.com",
            "ftp://x",
            "me@x",
            "x?q",
            "x#f",
            "a b",
            "https://",
        ] {
            assert!(host_url(host).is_err(), "{host}");
        }
    }

    #[test]
    fn own_host_is_not_foreign() {
        let foreign = |host| {
            foreign_host(host, &["github.com"])
                .unwrap()
                .map(String::from)
        };
        assert_eq!(foreign(None), None);
        assert_eq!(foreign(Some(" ")), None);
        assert_eq!(foreign(Some("GitHub.com")), None);
        assert_eq!(
            foreign(Some("github.com:8443")),
            Some("https://github.com:8443/".into())
        );
        assert_eq!(
            foreign(Some("github.com.evil.example")),
            Some("https://github.com.evil.example/".into())
        );
    }

    #[test]
    fn path_is_appended_to_that_of_the_host() {
        let below = |host: &str| url_below(&host.parse().unwrap(), "api/v4").to_string();
        assert_eq!(
            below("https://git.example.com"),
            "https://git.example.com/api/v4"
        );
        assert_eq!(
            below("https://example.com:8443/git/"),
            "https://example.com:8443/git/api/v4"
        );
    }

    #[test]
    fn repository_has_v0s_name_at_a_known_provider() {
        use GitProvider::*;
        for (provider, url, name) in [
            (None, "https://github.com/a/b.git", "a/b"),
            (
                Some(GitHub),
                "https://github.com/acme/.github",
                "acme/.github",
            ),
            (
                Some(GitHub),
                "https://git.example.com:8443/below/a/b.git",
                "a/b",
            ),
            (
                Some(GitLab),
                "https://gitlab.com/group/sub/app.git",
                "group/sub/app",
            ),
            (
                Some(GitLab),
                "https://git.example.com/a/\u{e4}.git",
                "a/\u{e4}",
            ),
            (Some(Bitbucket), "https://bitbucket.org/a/b", "a/b"),
            (
                Some(AzureDevOps),
                "https://dev.azure.com/acme/my%20project/_git/app",
                "acme/my project/app",
            ),
            (
                Some(AzureDevOps),
                "https://devops.example.com/c/p/_git/app",
                "c/p/app",
            ),
        ] {
            assert_eq!(repository_name(provider, url), name);
        }
        for (provider, url) in [
            (None, "https://gitlab.com/a/b.git"),
            (None, "git@github.com:a/b"),
            (Some(GitHub), "https://github.com/a"),
            (Some(GitLab), "file:///srv/a/b"),
            (Some(AzureDevOps), "https://dev.azure.com/a/b"),
            (Some(EnterpriseSso), "https://example.com/a/b"),
        ] {
            assert_eq!(repository_name(provider, url), url);
        }
    }

    #[test]
    fn repository_is_found_in_urls_of_web_pages() {
        let found = |text| repository_in_url(text);
        let expected = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(
            found("https://github.com/acme/app.git"),
            expected("github.com", "acme/app")
        );
        assert_eq!(
            found("https://gitlab.com/a/b/c/-/tree/main"),
            expected("gitlab.com", "a/b/c")
        );
        assert_eq!(found("acme/app"), None);
        assert_eq!(found("ssh://git@github.com/acme/app"), None);
    }
}
