//! The images that clients may start.

use std::str::FromStr;

use globset::{Error, GlobBuilder, GlobMatcher};

/// Images of one repository, or of several: `python`, `registry.example/team/*:1.2`. A star stands
/// for a part of a name between slashes. Without a tag, all tags and digests are meant; with one,
/// no digest, because an engine ignores a tag in front of it.
#[derive(Debug, Clone)]
pub struct ImagePattern {
    repository: GlobMatcher,
    tag: Option<GlobMatcher>,
}

impl FromStr for ImagePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Parts {
            repository, tag, ..
        } = Parts::of(text);
        let matcher = |text: &str| {
            let mut glob = GlobBuilder::new(text);
            Ok(glob.literal_separator(true).build()?.compile_matcher())
        };
        Ok(Self {
            repository: matcher(&repository)?,
            tag: tag.map(matcher).transpose()?,
        })
    }
}

impl ImagePattern {
    pub(super) fn matches(&self, image: &str) -> bool {
        let Parts {
            repository,
            tag,
            digest,
        } = Parts::of(image);
        self.repository.is_match(repository)
            && self.tag.as_ref().is_none_or(|pattern| {
                digest.is_none() && pattern.is_match(tag.unwrap_or(DEFAULT_TAG))
            })
    }
}

/// Whether two names mean the same image.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let name = |image| {
        let parts = Parts::of(image);
        let tag = parts.digest.or(parts.tag).unwrap_or(DEFAULT_TAG);
        (parts.repository, tag)
    };
    name(one) == name(other)
}

const DEFAULT_TAG: &str = "latest";

/// The parts of an image's name.
struct Parts<'a> {
    /// With its registry, as Docker completes it.
    repository: String,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(image: &'a str) -> Self {
        let (name, digest) = match image.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (image, None),
        };
        let last = name.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match name[last..].find(':') {
            Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
            None => (name, None),
        };
        Self {
            repository: full_name(repository),
            tag,
            digest,
        }
    }
}

fn full_name(repository: &str) -> String {
    let is_registry = |first: &str| {
        first == "localhost"
            || first.contains(['.', ':'])
            || first.contains(|letter: char| letter.is_ascii_uppercase())
    };
    let (registry, path) = match repository.split_once('/') {
        Some((first, path)) if is_registry(first) => (first, path),
        _ => (DOCKER_HUB, repository),
    };
    let library = match registry == DOCKER_HUB && !path.contains('/') {
        true => "library/",
        false => "",
    };
    format!("{registry}/{library}{path}")
}

const DOCKER_HUB: &str = "docker.io";

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
            ("python:3.*", "python:3.1@sha256:8d48", false),
            ("docker.io/python", "python", true),
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

    #[test]
    fn names_of_one_image_are_the_same() {
        for (one, other, expected) in [
            ("debian:13", "docker.io/library/debian:13", true),
            ("debian", "debian:latest", true),
            ("debian:12", "debian:13", false),
            ("team/a@sha256:1", "team/a@sha256:2", false),
        ] {
            assert_eq!(is_same(one, other), expected, "{one} {other}");
        }
    }
}
