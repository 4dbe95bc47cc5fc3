//! Resolves a path, component by component.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::{MAX_LEVELS, Node};

/// Maximum number of links on the way, as for the kernel.
const MAX_LINKS: usize = 40;

/// A folder on the way. It need not be readable.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a path beneath a folder. Links are followed, but neither they nor `..` lead out of the
/// folder.
pub(crate) fn open_beneath(folder: OwnedFd, path: &Path) -> io::Result<Node> {
    match Lookup::new(folder, Base::Folder).run(path)? {
        NamedPath::Existing { node, .. } => Ok(node),
        NamedPath::Folder(_) => Err(Errno::ISDIR.into()),
        NamedPath::Missing { .. } => Err(Errno::NOENT.into()),
    }
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum NamedPath {
    /// A folder, which is not open for reading.
    Folder(OwnedFd),
    /// Anything else, in this folder.
    Existing {
        folder: OwnedFd,
        name: OsString,
        node: Node,
    },
    /// No entry of this name in a folder.
    Missing { folder: OwnedFd, name: OsString },
}

impl NamedPath {
    /// Resolves a path that the user named. A link is followed only where just root can create one,
    /// such as `/home` on some systems: any other may be planted by a sandbox that can write its
    /// folder.
    ///
    /// # Errors
    /// A link is not followed; a folder of the path does not exist or cannot be searched.
    pub(crate) fn resolve(path: &Path) -> io::Result<Self> {
        Lookup::from_working_folder()?.run(path)
    }

    /// Like [`resolve`](Self::resolve), but creates the missing folders of the path.
    pub(crate) fn resolve_new(path: &Path) -> io::Result<Self> {
        Lookup {
            creates_folders: true,
            ..Lookup::from_working_folder()?
        }
        .run(path)
    }
}

/// What a lookup cannot leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The folder at which it started.
    Folder,
    /// This machine's root. Links in folders that a sandbox may write are refused.
    Machine,
}

struct Lookup {
    /// The current folder, and those above it down from the start.
    folders: Vec<OwnedFd>,
    base: Base,
    rest: VecDeque<OsString>,
    links: usize,
    creates_folders: bool,
}

impl Lookup {
    fn new(folder: OwnedFd, base: Base) -> Self {
        Self {
            folders: vec![folder],
            base,
            rest: VecDeque::new(),
            links: 0,
            creates_folders: false,
        }
    }

    fn from_working_folder() -> io::Result<Self> {
        Ok(Self::new(
            rustix::fs::open(".", ON_THE_WAY, Mode::empty())?,
            Base::Machine,
        ))
    }

    /// Puts a path before the rest.
    fn push(&mut self, path: &Path) -> io::Result<()> {
        if path.is_absolute() {
            if self.base == Base::Folder {
                return Err(leads_out());
            }
            self.folders = vec![rustix::fs::open("/", ON_THE_WAY, Mode::empty())?];
        }
        for component in path.components().rev() {
            if matches!(component, Component::Normal(_) | Component::ParentDir) {
                self.rest.push_front(component.as_os_str().to_owned());
            }
        }
        Ok(())
    }

    fn run(mut self, path: &Path) -> io::Result<NamedPath> {
        self.push(path)?;
        while let Some(folder) = self.folders.last()
            && let Some(name) = self.rest.pop_front()
        {
            if name == ".." {
                self.go_up()?;
                continue;
            }
            let node = match Node::open(folder, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.rest.is_empty() => {
                    return self
                        .into_folder()
                        .map(|folder| NamedPath::Missing { folder, name });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.creates_folders => {
                    match mkdirat(folder, &name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => Node::open(folder, &name)?,
                        Err(error) => return Err(error.into()),
                    }
                }
                node => node?,
            };
            if node.metadata().is_symlink() {
                self.follow(&name, &node.link_target()?)?;
            } else if node.metadata().is_dir() {
                if self.folders.len() == MAX_LEVELS {
                    return Err(Errno::NAMETOOLONG.into());
                }
                self.folders.push(node.handle.into());
            } else if self.rest.is_empty() {
                return self
                    .into_folder()
                    .map(|folder| NamedPath::Existing { folder, name, node });
            } else {
                return Err(Errno::NOTDIR.into());
            }
        }
        self.into_folder().map(NamedPath::Folder)
    }

    fn into_folder(mut self) -> io::Result<OwnedFd> {
        self.folders.pop().ok_or_else(leads_out)
    }

    fn go_up(&mut self) -> io::Result<()> {
        let folder = self.folders.pop().ok_or_else(leads_out)?;
        match (self.folders.is_empty(), self.base) {
            (false, _) => {}
            (true, Base::Folder) => return Err(leads_out()),
            (true, Base::Machine) => {
                self.folders
                    .push(openat(folder, "..", ON_THE_WAY, Mode::empty())?);
            }
        }
        Ok(())
    }

    fn follow(&mut self, name: &OsStr, target: &Path) -> io::Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        if self.base == Base::Machine && !self.is_only_written_by_root()? {
            let name = Path::new(name);
            return Err(io::Error::other(format!(
                "{} is a link to {}, which is not followed, because a sandbox may have created it; name its target",
                name.display(),
                target.display()
            )));
        }
        self.push(target)
    }

    /// Whether only root can write the current folder. If this process is root, only `/` is known:
    /// a sandbox may be root as well, but never gets that folder.
    fn is_only_written_by_root(&self) -> io::Result<bool> {
        let Some(folder) = self.folders.last() else {
            return Ok(false);
        };
        let (found, root) = (
            File::from(folder.try_clone()?).metadata()?,
            std::fs::metadata("/")?,
        );
        let is_root = (found.dev(), found.ino()) == (root.dev(), root.ino());
        let is_private = found.uid() == 0 && found.mode() & 0o022 == 0;
        Ok(is_private && (is_root || !rustix::process::geteuid().is_root()))
    }
}

fn leads_out() -> io::Error {
    Errno::XDEV.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::testing::{Found, open, swap_folder_and_link};
    use super::*;

    #[test]
    fn path_stays_beneath_when_a_folder_becomes_a_link() {
        swap_folder_and_link().observe(|root| {
            let Ok(node) = open_beneath(open(root), Path::new("folder/key")) else {
                return Found::Link;
            };
            assert_eq!(
                io::read_to_string(node.open_file().unwrap()).unwrap(),
                "inside"
            );
            Found::Folder
        });
    }

    #[test]
    fn link_is_followed_beneath_unless_it_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("root").join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/file"), "").unwrap();
        std::fs::write(folder.path().join("outside"), "").unwrap();
        for (target, name) in [
            ("../file", "a/b/up"),
            ("a/b", "inner"),
            ("loop", "loop"),
            ("../outside", "out"),
            ("a/../../outside", "through"),
            ("/etc/passwd", "absolute"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        let open = |path: &str| open_beneath(open(&at("")), Path::new(path));
        for path in ["a/file", "inner/up", "inner/../file", "./a/./b/../file"] {
            assert!(open(path).unwrap().open_file().is_ok(), "{path}");
        }
        for path in [
            "out",
            "through",
            "absolute",
            "../outside",
            "/etc/passwd",
            "a/../../outside",
        ] {
            let error = open(path).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::CrossesDevices,
                "{path}: {error}"
            );
        }
        assert_eq!(
            open("loop").unwrap_err().raw_os_error(),
            Some(Errno::LOOP.raw_os_error())
        );
        assert_eq!(open("a/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(
            open("a/file/x").unwrap_err().kind(),
            io::ErrorKind::NotADirectory
        );
        assert_eq!(open("a").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn named_link_is_refused_where_a_sandbox_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/file"), "").unwrap();
        symlink("real", at("link")).unwrap();
        let resolve = |name: &str| NamedPath::resolve(&at(name));
        assert!(matches!(resolve("real/").unwrap(), NamedPath::Folder(_)));
        assert!(matches!(
            resolve("real/../real/file").unwrap(),
            NamedPath::Existing { .. }
        ));
        assert!(matches!(
            resolve("real/new").unwrap(),
            NamedPath::Missing { .. }
        ));
        for path in ["link", "link/", "link/.", "link/file", "real/../link"] {
            let error = resolve(path).unwrap_err().to_string();
            assert!(
                error.starts_with("link is a link to real"),
                "{path}: {error}"
            );
        }
        // `/bin` may be a link, of the system.
        for path in ["/bin", "/../proc/../tmp"] {
            assert!(
                matches!(
                    NamedPath::resolve(Path::new(path)).unwrap(),
                    NamedPath::Folder(_)
                ),
                "{path}"
            );
        }
    }
}
