//! The images that clients may start.

use std::str::FromStr;

use globset::{Error, GlobBuilder, GlobMatcher};

/// Images of one repository, or of several: `python`, `registry.example/team/*:1.2`. A star stands
/// for a part of a name between slashes. Without a tag, all tags and digests are meant.
#[derive(Debug, Clone)]
pub struct ImagePattern {
    repository: GlobMatcher,
    tag: Option<GlobMatcher>,
}

impl FromStr for ImagePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (repository, tag) = split(text);
        let matcher = |text: &str| {
            let mut glob = GlobBuilder::new(text);
            Ok(glob.literal_separator(true).build()?.compile_matcher())
        };
        Ok(Self {
            repository: matcher(&full_name(repository))?,
            tag: tag.map(matcher).transpose()?,
        })
    }
}

impl ImagePattern {
    pub(super) fn matches(&self, image: &str) -> bool {
        let (repository, tag) = split(image);
        self.repository.is_match(full_name(repository))
            && self
                .tag
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(tag.unwrap_or("latest")))
    }
}

/// Splits a name into its repository and its tag or digest, or both.
fn split(image: &str) -> (&str, Option<&str>) {
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[name..].find([':', '@']) {
        None => (image, None),
        Some(end) => (&image[..name + end], Some(&image[name + end + 1..])),
    }
}

/// Returns a repository with its registry, as Docker completes it.
fn full_name(repository: &str) -> String {
    let is_registry = |first: &str| {
        first == "localhost"
            || first.contains(['.', ':'])
            || first.contains(|letter: char| letter.is_ascii_uppercase())
    };
    match repository.split_once('/') {
        None => format!("docker.io/library/{repository}"),
        Some((first, _)) if is_registry(first) => repository.to_owned(),
        Some(_) => format!("docker.io/{repository}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_the_full_name() {
        for (pattern, image, is_match) in [
            ("python", "python", true),
            ("python", "python:3.12", true),
            ("python", "python@sha256:8d48", true),
            ("python", "docker.io/library/python", true),
            ("python", "evil.example/library/python", false),
            ("python", "evil/python", false),
            ("python:3.*", "python:3.12-slim", true),
            ("python:3.*", "python", false),
            ("python:latest", "python", true),
            ("python:3.12", "python:3.12@sha256:8d48", false),
            ("r.test:5000/team/*", "r.test:5000/team/a:1", true),
            ("r.test:5000/team/*", "r.test:5000/team/a/b", false),
            ("r.test:5000/team/*", "r.test/team/a", false),
            ("r.test/team/*", "r.test/team/../other", false),
            ("*/base", "Evil/base", false),
            ("*/base", "team/base", true),
        ] {
            let parsed: ImagePattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(image), is_match, "{pattern} {image}");
        }
    }
}
