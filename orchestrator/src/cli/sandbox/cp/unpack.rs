//! An archive from a sandbox becomes a folder of this machine. It is hostile.
//!
//! Every step goes from an open folder to a name in it that is no link, so that neither an entry nor somebody who changes the
//! folder meanwhile leads anywhere else. Files and folders are the user's, without bits that give rights away. Links
//! that lead out of the folder are left out. Anything else that an honest server does not send ends the copy: paths
//! with `..`, absolute ones, devices, hard links, too many entries or bytes. What came before that stays.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use engine::sandbox::ByteSource;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};
use tokio::task::spawn_blocking;
use tokio_util::io::SyncIoBridge;

use super::{LeftOut, PIECE, links};

/// As much as a server takes of us.
const MAX_ENTRIES: u64 = 500_000;
const MAX_BYTES: u64 = 16 << 30;

/// Between the contents of two entries: headers and long names, which are held in memory.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// What stands between an entry's content and the next.
const BLOCK_BYTES: u64 = 512;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Into `target`, which is made if it is missing.
pub(super) async fn unpack(archive: ByteSource, target: PathBuf) -> anyhow::Result<LeftOut> {
    let archive = SyncIoBridge::new(archive);
    spawn_blocking(move || unpack_here(archive, &target)).await.context("unpacking")?
}

fn unpack_here(archive: impl Read, target: &Path) -> anyhow::Result<LeftOut> {
    match std::fs::create_dir(target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("making {}", target.display()));
        }
        _ => {}
    }
    let root = rustix::fs::openat(CWD, target, FOLDER, Mode::empty())
        .with_context(|| format!("opening the folder {}", target.display()))?;
    let mut unpacking = Unpacking { root, bytes_left: MAX_BYTES, left_out: LeftOut::default() };
    unpacking.run(archive).with_context(|| format!("unpacking into {}", target.display()))?;
    Ok(unpacking.left_out)
}

struct Unpacking {
    root: OwnedFd,
    bytes_left: u64,
    left_out: LeftOut,
}

impl Unpacking {
    fn run(&mut self, archive: impl Read) -> anyhow::Result<()> {
        let allowance = Rc::new(std::cell::Cell::new(MAX_HEADER_BYTES));
        let mut archive = Archive::new(Allowed { archive, allowance: Rc::clone(&allowance) });
        for (number, entry) in (0_u64..).zip(archive.entries()?) {
            let mut entry = entry.context("reading the archive")?;
            if number == MAX_ENTRIES {
                bail!("the archive has more than {MAX_ENTRIES} entries");
            }
            allowance.set(entry.size().min(self.bytes_left).saturating_add(BLOCK_BYTES));
            let path = entry.path()?.into_owned();
            let shown = path.to_string_lossy().chars().take(200).collect::<String>();
            self.take(&mut entry, &path).with_context(|| format!("the archive's entry {shown:?}"))?;
            allowance.set(MAX_HEADER_BYTES);
        }
        Ok(())
    }

    fn take(&mut self, entry: &mut Entry<'_, impl Read>, path: &Path) -> anyhow::Result<()> {
        let Some(below) = links::below(path) else {
            bail!("its path leads out of the folder, or is too long")
        };
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
            return Ok(()); // the folder itself
        };
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o777);
        let parent = self.folder(parent)?;
        match entry.header().entry_type() {
            EntryType::Directory => {
                let folder = folder_in(&parent, name)?;
                // Whatever else it says, we go on putting things into it.
                Ok(rustix::fs::fchmod(&folder, mode | Mode::RWXU)?)
            }
            EntryType::Regular => {
                clear(&parent, name)?;
                self.take_file(&parent, name, mode, entry)
            }
            EntryType::Symlink => {
                let Some(target) = entry.link_name()? else { bail!("a link that leads nowhere") };
                if links::stays(&below, &target) {
                    clear(&parent, name)?;
                    rustix::fs::symlinkat(target.as_ref(), &parent, name)?;
                } else {
                    self.left_out.add(&below, "a link that leads out of the folder");
                }
                Ok(())
            }
            _ => bail!("it is no file, folder or link"),
        }
    }

    fn folder(&self, below: &Path) -> anyhow::Result<OwnedFd> {
        let mut folder = self.root.try_clone()?;
        for name in below {
            folder = folder_in(&folder, name)?;
        }
        Ok(folder)
    }

    fn take_file(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        mode: Mode,
        entry: &mut Entry<'_, impl Read>,
    ) -> anyhow::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?);
        let mut buffer = vec![0; PIECE];
        loop {
            let count = entry.read(&mut buffer)?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
            let left = self.bytes_left.checked_sub(count as u64);
            self.bytes_left = left.with_context(|| format!("the archive has more than {MAX_BYTES} bytes"))?;
            file.write_all(bytes)?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(mode.as_raw_mode()))?;
        if let Some(modified) =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(entry.header().mtime()?))
        {
            // A date that the system cannot keep is no reason to refuse the file.
            let _ = file.set_modified(modified);
        }
        Ok(())
    }
}

/// The folder of this name, made if there is nothing; never through a link.
fn folder_in(parent: &OwnedFd, name: &OsStr) -> anyhow::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::fs::openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => anyhow::anyhow!("it leads through {name:?}, which is no folder here"),
        other => other.into(),
    })
}

/// A file or link of this name makes room; a folder does not.
fn clear(parent: &OwnedFd, name: &OsStr) -> anyhow::Result<()> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            bail!("there is a folder in its place")
        }
        Ok(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
        Err(error) => Err(error.into()),
    }
}

/// Lets only so much be read before somebody has looked at what it is.
struct Allowed<R> {
    archive: R,
    allowance: Rc<std::cell::Cell<u64>>,
}

impl<R: Read> Read for Allowed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.allowance.get()).unwrap_or(usize::MAX);
        if left == 0 {
            return Err(io::Error::other("what stands between two entries is too long, or the archive is"));
        }
        let room = buffer.len().min(left);
        let count = self.archive.read(buffer.get_mut(..room).unwrap_or_default())?;
        self.allowance.set(self.allowance.get().saturating_sub(count as u64));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use tar::{Builder, EntryType, Header};

    use super::super::LeftOut;
    use super::unpack_here;

    /// An archive of entries whose names nobody has checked.
    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, content) in entries {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o6755);
            let data = if *kind == EntryType::Regular { content.as_bytes() } else { b"" };
            if matches!(*kind, EntryType::Symlink | EntryType::Link) {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpacked(target: &Path, entries: &[(EntryType, &str, &str)]) -> anyhow::Result<LeftOut> {
        unpack_here(&archive(entries)[..], target)
    }

    #[test]
    fn files_folders_and_inner_links_replace_existing_ones() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new");
        let entries = [
            (EntryType::Directory, "a/", ""),
            (EntryType::Regular, "a/file", "one"),
            (EntryType::Symlink, "a/link", "../a/file"),
        ];
        for _ in 0..2 {
            assert_eq!(unpacked(&target, &entries).unwrap(), LeftOut::default());
        }
        assert_eq!(std::fs::read_to_string(target.join("a/link")).unwrap(), "one");
        let mode = std::fs::metadata(target.join("a/file")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "no bits that give rights away");
    }

    #[test]
    fn nothing_is_written_outside() {
        let folder = tempfile::tempdir().unwrap();
        let (outside, target) = (folder.path().join("outside"), folder.path().join("target"));
        std::fs::create_dir(&outside).unwrap();
        let absolute = outside.join("x");
        let absolute = absolute.to_str().unwrap();
        let hostile: [&[(EntryType, &str, &str)]; 6] = [
            &[(EntryType::Regular, "../outside/x", "x")],
            &[(EntryType::Regular, "a/../../outside/x", "x")],
            &[(EntryType::Regular, absolute, "x")],
            &[(EntryType::Link, "x", "../outside/x")],
            &[(EntryType::Char, "x", "")],
            &[(EntryType::Fifo, "x", "")],
        ];
        for entries in hostile {
            unpacked(&target, entries).unwrap_err();
        }
        // A link that is left out is a folder for what comes after it.
        let through = [(EntryType::Symlink, "a", "../outside"), (EntryType::Regular, "a/x", "x")];
        assert_eq!(unpacked(&target, &through).unwrap().count, 1);
        assert!(target.join("a/x").exists());
        // One that is there already is not gone through.
        symlink(&outside, target.join("there")).unwrap();
        let error = unpacked(&target, &[(EntryType::Regular, "there/x", "x")]).unwrap_err();
        assert!(format!("{error:#}").contains("no folder here"), "{error:#}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        // It is replaced, not written to.
        std::fs::write(outside.join("kept"), "kept").unwrap();
        symlink(outside.join("kept"), target.join("file")).unwrap();
        unpacked(&target, &[(EntryType::Regular, "file", "x")]).unwrap();
        assert_eq!(std::fs::read_to_string(outside.join("kept")).unwrap(), "kept");
    }

    #[test]
    fn a_long_name_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        let endless = std::io::Read::chain(&header.as_bytes()[..], std::io::repeat(b'a'));
        unpack_here(endless, &folder.path().join("t")).unwrap_err();
    }

    #[test]
    fn an_archive_that_breaks_off_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let whole = archive(&[(EntryType::Regular, "file", &"x".repeat(2000))]);
        unpack_here(&whole[..1500], &folder.path().join("t")).unwrap_err();
    }
}
