//! Source or target of a copy on this machine. It is opened once, because a sandbox may be able to
//! write its folder.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;

use super::{location, unpack};
use crate::exit::UsageError;
use crate::untrusted_folder::NamedPath;

/// An open source.
#[derive(Debug)]
pub(super) enum Source {
    Folder(OwnedFd),
    File(File),
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, UsageError> {
        let refuse =
            |error: io::Error| UsageError(format!("cannot read {}: {error}", path.display()));
        match NamedPath::resolve(path).map_err(refuse)? {
            NamedPath::Folder(folder) => Ok(Self::Folder(folder)),
            NamedPath::Existing { node, .. } if node.metadata().is_file() => {
                node.open_file().map(Self::File).map_err(refuse)
            }
            NamedPath::Existing { .. } => Err(UsageError(format!(
                "{} is neither a file nor a folder",
                path.display()
            ))),
            NamedPath::Missing { .. } => Err(refuse(Errno::NOENT.into())),
        }
    }
}

/// An open target.
#[derive(Debug)]
pub(super) enum Target {
    /// An existing folder, for the contents of another one.
    Contents(OwnedFd),
    /// An entry of a folder. It may exist, and is not followed if it is a link.
    Entry { folder: OwnedFd, name: OsString },
}

impl Target {
    /// Opens a path that the user named: the copy itself, or an existing folder for a copy of this
    /// name. `copied` is `None` for the contents of a folder.
    pub(super) fn open(path: &Path, copied: Option<String>) -> Result<Self, UsageError> {
        let refuse = |error: &dyn std::fmt::Display| {
            UsageError(format!("cannot write to {}: {error}", path.display()))
        };
        match (
            NamedPath::resolve(path).map_err(|error| refuse(&error))?,
            copied,
        ) {
            (NamedPath::Folder(folder), Some(name)) => Ok(Self::Entry {
                folder,
                name: name.into(),
            }),
            (NamedPath::Folder(folder), None) => Ok(Self::Contents(folder)),
            _ if location::has_trailing_slash(path) => Err(refuse(&"there is no such folder")),
            (NamedPath::Existing { node, .. }, _) if !node.metadata().is_file() => {
                Err(refuse(&"it is not a regular file; `-` is standard output"))
            }
            (NamedPath::Existing { folder, name, .. } | NamedPath::Missing { folder, name }, _) => {
                Ok(Self::Entry { folder, name })
            }
        }
    }

    /// Opens the folder for the contents of another one, and creates it if it does not exist. Fails
    /// if it is a link.
    pub(super) fn into_folder(self) -> anyhow::Result<OwnedFd> {
        match self {
            Self::Contents(folder) => Ok(folder),
            Self::Entry { folder, name } => unpack::open_or_create_folder(&folder, &name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn target_is_refused_when_it_is_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("keys")).unwrap();
        std::fs::create_dir(at("work")).unwrap();
        symlink(at("keys"), at("work/result.json")).unwrap();
        // The name of the copy comes from the sandbox.
        for (target, copied) in [("work", Some("result.json")), ("work/result.json", None)] {
            let target = Target::open(&at(target), copied.map(str::to_owned));
            let error = target
                .map_err(anyhow::Error::from)
                .and_then(Target::into_folder)
                .unwrap_err();
            assert!(format!("{error:#}").contains("result.json"), "{error:#}");
        }
        for target in [
            "work/result.json",
            "work/result.json/",
            "work/result.json/new",
        ] {
            let error = Target::open(&at(target), Some("x".to_owned()))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("result.json is a link to /"),
                "{target}: {error}"
            );
            assert!(Source::open(&at(target)).is_err(), "{target}");
        }
        assert!(Target::open(&at("none/"), Some("x".to_owned())).is_err());
        assert!(
            Target::open(&at("new"), None)
                .unwrap()
                .into_folder()
                .is_ok()
        );
        assert!(at("new").is_dir());
    }
}
