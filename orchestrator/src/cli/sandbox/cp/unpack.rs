//! Unpacks an archive from a sandbox into a folder of this machine. The archive is hostile.
//!
//! Each path is opened component by component relative to the folder, and no component may be a
//! link, so that neither an entry nor a concurrent change of the folder leads out of it. Files and
//! folders belong to the user and have no setuid, setgid and sticky bits. Links that lead out of
//! the folder are skipped. Everything else that only a hostile server sends fails the copy: paths
//! that are absolute or contain `..`, devices, hard links, too many entries or bytes. Entries that
//! were unpacked before the failure stay.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use engine::sandbox::{ByteSource, IncompleteArchive};
use protocol::sandbox_api::SkippedEntries;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};
use tokio::task::spawn_blocking;
use tokio_util::io::SyncIoBridge;

use super::{CHUNK_BYTES, links};
use crate::untrusted_folder;

/// Maximum number of entries and bytes, as for uploads to an action server.
const MAX_ENTRIES: u64 = 500_000;
const MAX_BYTES: u64 = 16 << 30;

/// Maximum size of what is between the contents of two entries: headers and long names, which are
/// held in memory.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Size of a block, to which the content of an entry is padded.
const BLOCK_BYTES: u64 = 512;

/// Unpacks into a folder.
pub(super) async fn unpack(archive: ByteSource, folder: OwnedFd) -> anyhow::Result<SkippedEntries> {
    let archive = SyncIoBridge::new(archive);
    spawn_blocking(move || unpack_blocking(archive, folder)).await?
}

fn unpack_blocking(archive: impl Read, root: OwnedFd) -> anyhow::Result<SkippedEntries> {
    let mut unpacker = Unpacker {
        root,
        bytes_left: MAX_BYTES,
        skipped: SkippedEntries::default(),
    };
    unpacker.run(archive)?;
    Ok(unpacker.skipped)
}

struct Unpacker {
    root: OwnedFd,
    bytes_left: u64,
    skipped: SkippedEntries,
}

impl Unpacker {
    fn run(&mut self, archive: impl Read) -> anyhow::Result<()> {
        let allowance = Rc::new(std::cell::Cell::new(MAX_HEADER_BYTES));
        let mut archive = Archive::new(AllowanceReader {
            archive,
            allowance: Rc::clone(&allowance),
        });
        for (number, entry) in (0_u64..).zip(archive.entries()?) {
            let mut entry = entry.context("cannot read the archive")?;
            if number == MAX_ENTRIES {
                bail!("the archive has more than {MAX_ENTRIES} entries");
            }
            allowance.set(
                entry
                    .size()
                    .min(self.bytes_left)
                    .saturating_add(BLOCK_BYTES),
            );
            let path = entry.path()?.into_owned();
            let shown = path.to_string_lossy().chars().take(200).collect::<String>();
            self.unpack_entry(&mut entry, &path)
                .with_context(|| format!("the archive's entry {shown:?}"))?;
            allowance.set(MAX_HEADER_BYTES);
        }
        let skipped = IncompleteArchive::read_skipped(archive.into_inner());
        self.skipped
            .append(skipped.context("cannot read the archive")?);
        Ok(())
    }

    fn unpack_entry(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        path: &Path,
    ) -> anyhow::Result<()> {
        let Some(below) = links::below(path) else {
            bail!("its path leads out of the folder, or is too long")
        };
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
            return Ok(()); // the folder itself
        };
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o777);
        let parent = self.open_folder(parent)?;
        match entry.header().entry_type() {
            EntryType::Directory => {
                let folder = open_or_create_folder(&parent, name)?;
                // The folder stays writable, because entries in it follow.
                Ok(rustix::fs::fchmod(&folder, mode | Mode::RWXU)?)
            }
            EntryType::Regular => {
                remove_existing(&parent, name)?;
                self.write_file(&parent, name, mode, entry)
            }
            EntryType::Symlink => {
                let Some(target) = entry.link_name()? else {
                    bail!("a link without a target")
                };
                if links::stays(&below, &target) {
                    remove_existing(&parent, name)?;
                    rustix::fs::symlinkat(target.as_ref(), &parent, name)?;
                } else {
                    self.skipped
                        .add(&below, "a link that leads out of the folder");
                }
                Ok(())
            }
            _ => bail!("neither a file, a folder nor a link"),
        }
    }

    fn open_folder(&self, below: &Path) -> anyhow::Result<OwnedFd> {
        let mut folder = self.root.try_clone()?;
        for name in below {
            folder = open_or_create_folder(&folder, name)?;
        }
        Ok(folder)
    }

    fn write_file(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        mode: Mode,
        entry: &mut Entry<'_, impl Read>,
    ) -> anyhow::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(
            parent,
            name,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?);
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let count = entry.read(&mut buffer)?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            let left = self.bytes_left.checked_sub(count as u64);
            self.bytes_left =
                left.with_context(|| format!("the archive has more than {MAX_BYTES} bytes"))?;
            file.write_all(bytes)?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(mode.as_raw_mode()))?;
        if let Some(modified) =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(entry.header().mtime()?))
        {
            // An unsupported time does not fail the copy.
            let _ = file.set_modified(modified);
        }
        Ok(())
    }
}

/// Opens the folder of this name, and creates it if it does not exist. Fails if it is a link.
pub(super) fn open_or_create_folder(parent: &OwnedFd, name: &OsStr) -> anyhow::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    untrusted_folder::open_folder(parent, name).map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP => {
            anyhow::anyhow!("{name:?} is not a folder, or is a link, which is not followed")
        }
        other => other.into(),
    })
}

/// Removes a file or a link of this name. Fails if it is a folder.
fn remove_existing(parent: &OwnedFd, name: &OsStr) -> anyhow::Result<()> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            bail!("a folder of this name exists")
        }
        Ok(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
        Err(error) => Err(error.into()),
    }
}

/// Limits how much is read before the next entry was checked.
struct AllowanceReader<R> {
    archive: R,
    allowance: Rc<std::cell::Cell<u64>>,
}

impl<R: Read> Read for AllowanceReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.allowance.get()).unwrap_or(usize::MAX);
        if left == 0 {
            return Err(io::Error::other(
                "the headers between two entries are too long, or the archive is",
            ));
        }
        let room = buffer.len().min(left);
        let count = self
            .archive
            .read(buffer.get_mut(..room).unwrap_or_default())?;
        self.allowance
            .set(self.allowance.get().saturating_sub(count as u64));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use tar::{Builder, EntryType, Header};

    use super::super::local_path::Target;
    use super::{IncompleteArchive, SkippedEntries, unpack_blocking};

    /// Creates an archive without checking names.
    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, content) in entries {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o6755);
            let data = if *kind == EntryType::Regular {
                content.as_bytes()
            } else {
                b""
            };
            if matches!(*kind, EntryType::Symlink | EntryType::Link) {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpack_bytes(target: &Path, archive: impl Read) -> anyhow::Result<SkippedEntries> {
        let target = Target::open(target, None)?;
        unpack_blocking(archive, target.into_folder()?)
    }

    fn unpack_entries(
        target: &Path,
        entries: &[(EntryType, &str, &str)],
    ) -> anyhow::Result<SkippedEntries> {
        unpack_bytes(target, &archive(entries)[..])
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
            assert_eq!(
                unpack_entries(&target, &entries).unwrap(),
                SkippedEntries::default()
            );
        }
        assert_eq!(
            std::fs::read_to_string(target.join("a/link")).unwrap(),
            "one"
        );
        let mode = std::fs::metadata(target.join("a/file"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o755, "no setuid and setgid bits");
    }

    #[test]
    fn entry_is_refused_when_it_leads_out_of_the_folder() {
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
            unpack_entries(&target, entries).unwrap_err();
        }
        // The entries in a skipped link are unpacked into a folder.
        let through = [
            (EntryType::Symlink, "a", "../outside"),
            (EntryType::Regular, "a/x", "x"),
        ];
        assert_eq!(unpack_entries(&target, &through).unwrap().count, 1);
        assert!(target.join("a/x").exists());
        // An existing link is not followed.
        symlink(&outside, target.join("there")).unwrap();
        let error = unpack_entries(&target, &[(EntryType::Regular, "there/x", "x")]).unwrap_err();
        assert!(format!("{error:#}").contains("not a folder"), "{error:#}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        // An existing link is replaced.
        std::fs::write(outside.join("kept"), "kept").unwrap();
        symlink(outside.join("kept"), target.join("file")).unwrap();
        unpack_entries(&target, &[(EntryType::Regular, "file", "x")]).unwrap();
        assert_eq!(
            std::fs::read_to_string(outside.join("kept")).unwrap(),
            "kept"
        );
    }

    #[test]
    fn archive_is_refused_when_a_name_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        let endless = std::io::Read::chain(&header.as_bytes()[..], std::io::repeat(b'a'));
        unpack_bytes(&folder.path().join("t"), endless).unwrap_err();
    }

    /// A source that ends with an error.
    struct FailingSource(Option<std::io::Error>);

    impl Read for FailingSource {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            self.0.take().map_or(Ok(0), Err)
        }
    }

    #[test]
    fn entries_that_the_sandbox_leaves_out_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let entries = [
            (EntryType::Symlink, "up", "../.."),
            (EntryType::Regular, "file", "x"),
        ];
        let archive = archive(&entries);
        let unpack = |error| {
            let source = archive.chain(FailingSource(Some(error)));
            unpack_bytes(&folder.path().join("t"), source)
        };
        let mut in_sandbox = SkippedEntries::default();
        (0..30).for_each(|_| in_sandbox.add(Path::new("secret"), "denied"));
        let incomplete = std::io::Error::other(IncompleteArchive(in_sandbox));
        let skipped = unpack(incomplete).unwrap();
        assert_eq!((skipped.count, skipped.named.len()), (31, 10));
        assert_eq!(
            skipped.named[..2],
            ["up: a link that leads out of the folder", "secret: denied"]
        );
        assert!(folder.path().join("t/file").exists());
        unpack(std::io::Error::other("lost")).unwrap_err();
    }

    #[test]
    fn archive_is_refused_when_it_is_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let whole = archive(&[(EntryType::Regular, "file", &"x".repeat(2000))]);
        unpack_bytes(&folder.path().join("t"), &whole[..1500]).unwrap_err();
    }
}
