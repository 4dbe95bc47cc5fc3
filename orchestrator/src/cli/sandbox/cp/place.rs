//! Where something is copied from or to: a path of this machine, one in a sandbox, or a stream.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::super::name::Name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// A path in a sandbox; where shells begin when none was written.
    Inside { name: Name, path: String },
    /// Standard input or output.
    Stream,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        match text.split_once(':') {
            Some((name, path)) if !name.contains('/') => {
                let name = name.parse().map_err(|error| format!("the sandbox {name:?}: {error}"))?;
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::Inside { name, path: path.to_owned() })
            }
            _ if text.is_empty() => Err("an empty path".into()),
            _ => Ok(Self::Local(text.into())),
        }
    }
}

/// What a copy of this is called; nothing for what has no name of its own, and for `DIR/.`.
pub(super) fn last_name(path: &Path) -> Option<String> {
    let is_contents = path.as_os_str().as_encoded_bytes().ends_with(b"/.");
    match path.components().next_back()? {
        Component::Normal(name) if !is_contents => name.to_str().map(str::to_owned),
        _ => None,
    }
}

/// Whether it is written as a folder.
pub(super) fn means_a_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Place, last_name};

    #[test]
    fn a_colon_before_any_slash_is_a_sandboxs() {
        let inside =
            |name: &str, path: &str| Ok(Place::Inside { name: name.parse().unwrap(), path: path.into() });
        for (text, expected) in [
            ("box:/a", inside("box", "/a")),
            ("box:a:b", inside("box", "a:b")),
            ("box:", inside("box", ".")),
            ("./a:b", Ok(Place::Local("./a:b".into()))),
            ("/a:b", Ok(Place::Local("/a:b".into()))),
            ("a", Ok(Place::Local("a".into()))),
            ("-", Ok(Place::Stream)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        assert!(":/a".parse::<Place>().is_err() && "a b:/c".parse::<Place>().is_err());
    }

    #[test]
    fn what_has_no_name_of_its_own_is_copied_without_one() {
        let name = |path: &str| last_name(Path::new(path));
        assert_eq!((name("a/b").as_deref(), name("a/b/").as_deref()), (Some("b"), Some("b")));
        assert!([".", "..", "/", "a/.", "a/.."].iter().all(|path| name(path).is_none()));
    }
}
