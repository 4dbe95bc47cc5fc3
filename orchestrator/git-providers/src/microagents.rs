//! Microagents of a repository: Markdown files in a folder that its name and provider determine.

use protocol::client_api::git::{GitProvider, Microagent};

use crate::concurrently::concurrently;
use crate::error::RequestError;
use crate::service::Service;

/// Maximum number of microagents in a list. Each costs a request, for its date.
const MAX_MICROAGENTS: usize = 100;

/// Rules of another program, which V0 lists as a microagent.
const CURSOR_RULES: &str = ".cursorrules";

/// A microagent's file as it is in the repository.
///
/// The front matter is not parsed: `engine` parses that of all knowledge files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicroagentSource {
    /// The path in the repository.
    pub path: String,
    /// The whole text, with its front matter.
    pub text: String,
    /// Where the repository is hosted.
    pub git_provider: GitProvider,
}

/// Lists the microagents of a repository.
pub(crate) async fn list(
    service: &Service,
    provider: GitProvider,
    repository: &str,
) -> Result<Vec<Microagent>, RequestError> {
    let folder = folder(provider, repository);
    let mut paths = match service.files_in(repository, folder).await {
        // The folder or the repository does not exist.
        Err(RequestError::NotFound) => {
            service.repository(repository).await?;
            Vec::new()
        }
        files => files?,
    };
    paths.retain(|path| is_microagent(path));
    match service.file(repository, CURSOR_RULES).await {
        Ok(_) => paths.push(CURSOR_RULES.to_owned()),
        Err(RequestError::NotFound) => {}
        Err(error) => return Err(error),
    }
    paths.truncate(MAX_MICROAGENTS);
    concurrently(
        paths
            .into_iter()
            .map(|path| describe(service, provider, repository, path)),
    )
    .await
}

/// Returns the folder of microagents. In a repository for an organization's configuration it is not
/// hidden.
fn folder(provider: GitProvider, repository: &str) -> &'static str {
    let name = repository.rsplit('/').next().unwrap_or_default();
    let configuration = if provider == GitProvider::GitLab {
        "openhands-config"
    } else {
        ".openhands"
    };
    if name == configuration {
        "microagents"
    } else {
        ".openhands/microagents"
    }
}

fn is_microagent(path: &str) -> bool {
    let name = file_name(path);
    name.ends_with(".md") && name != "README.md"
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

async fn describe(
    service: &Service,
    git_provider: GitProvider,
    repository: &str,
    path: String,
) -> Result<Microagent, RequestError> {
    let created_at = service.oldest_commit_date(repository, &path).await?;
    let name = file_name(&path);
    let name = name
        .strip_suffix(".md")
        .unwrap_or(name.trim_start_matches('.'))
        .to_owned();
    Ok(Microagent {
        name,
        created_at,
        git_provider,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_depends_on_the_repository_and_its_provider() {
        let hidden = ".openhands/microagents";
        assert_eq!(folder(GitProvider::GitHub, "acme/app"), hidden);
        assert_eq!(
            folder(GitProvider::GitHub, "acme/.openhands"),
            "microagents"
        );
        assert_eq!(folder(GitProvider::GitLab, "acme/.openhands"), hidden);
        assert_eq!(
            folder(GitProvider::GitLab, "acme/openhands-config"),
            "microagents"
        );
    }

    #[test]
    fn microagent_is_a_markdown_file_but_no_readme() {
        assert!(is_microagent(".openhands/microagents/a/b.md"));
        for path in [
            "microagents/README.md",
            "microagents/a.txt",
            "microagents/md",
        ] {
            assert!(!is_microagent(path), "{path}");
        }
    }
}
