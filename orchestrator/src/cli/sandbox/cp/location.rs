//! Source or target of a copy: a path of this machine, a path in a sandbox, or a stream.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::cli::sandbox::name::SandboxName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CopyLocation {
    /// Path of this machine.
    Local(PathBuf),
    /// Path in a sandbox. `.`, the working directory of its shells, if the argument has no path.
    Sandbox { name: SandboxName, path: String },
    /// Standard input or output.
    Stream,
}

impl FromStr for CopyLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        match text.split_once(':') {
            Some((name, path)) if !name.contains('/') => {
                let name = name
                    .parse()
                    .map_err(|error| format!("the sandbox {name:?}: {error}"))?;
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::Sandbox {
                    name,
                    path: path.to_owned(),
                })
            }
            _ if text.is_empty() => Err("an empty path".into()),
            _ => Ok(Self::Local(text.into())),
        }
    }
}

/// File name of a copy. `None` for paths without a name, such as `..`, and for `DIR/.`, the
/// contents of a folder.
pub(super) fn copy_name(path: &Path) -> Option<String> {
    let is_contents = path.as_os_str().as_encoded_bytes().ends_with(b"/.");
    match path.components().next_back()? {
        Component::Normal(name) if !is_contents => name.to_str().map(str::to_owned),
        _ => None,
    }
}

/// Whether the path ends with `/`, so that it must be a folder.
pub(super) fn has_trailing_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{CopyLocation, copy_name};

    #[test]
    fn path_is_in_a_sandbox_when_a_colon_precedes_slashes() {
        let in_sandbox = |name: &str, path: &str| {
            Ok(CopyLocation::Sandbox {
                name: name.parse().unwrap(),
                path: path.into(),
            })
        };
        for (text, expected) in [
            ("box:/a", in_sandbox("box", "/a")),
            ("box:a:b", in_sandbox("box", "a:b")),
            ("box:", in_sandbox("box", ".")),
            ("./a:b", Ok(CopyLocation::Local("./a:b".into()))),
            ("/a:b", Ok(CopyLocation::Local("/a:b".into()))),
            ("a", Ok(CopyLocation::Local("a".into()))),
            ("-", Ok(CopyLocation::Stream)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        assert!(
            ":/a".parse::<CopyLocation>().is_err() && "a b:/c".parse::<CopyLocation>().is_err()
        );
    }

    #[test]
    fn copy_has_no_name_when_the_path_has_none() {
        let name = |path: &str| copy_name(Path::new(path));
        assert_eq!(
            (name("a/b").as_deref(), name("a/b/").as_deref()),
            (Some("b"), Some("b"))
        );
        assert!(
            [".", "..", "/", "a/.", "a/.."]
                .iter()
                .all(|path| name(path).is_none())
        );
    }
}
