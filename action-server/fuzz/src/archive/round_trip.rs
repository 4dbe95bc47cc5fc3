//! A folder is unchanged after packing and unpacking.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use action_server::fuzzing::{TarLimits, pack_tar, pack_zip, unpack_tar, unpack_zip};

use super::tree::{self, EntryContent, Tree, TreeEntry};
use super::{Choices, FuzzFolder};

const MAX_DEPTH: u8 = 3;

/// Ordinary, hidden, with a blank, with a line end, and too long for the name field of a tar
/// header.
const NAMES: [&str; 7] = ["a", ".b", "c d", "\u{e9}", "l\nf", "..c", LONG_NAME];
const LONG_NAME: &str = "a-name-that-is-longer-than-the-one-hundred-bytes-that-were-thought-to-be-enough-for-any-name\
                         -when-tar-was-made-and-then-some";

const MODES: [u32; 5] = [0o644, 0o755, 0o600, 0o777, 0o700];

pub(super) fn through_tar(choices: &mut Choices<'_>) {
    let scratch = FuzzFolder::create();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    create(choices, &from, 0, true);
    let limits = TarLimits {
        entries: 10_000,
        bytes: 16 << 20,
        free_bytes: 16 << 20,
    };
    unpack_tar(&pack_tar(&from).unwrap(), &to, limits).unwrap();
    assert_eq!(tree::read(&to), tree::read(&from));
}

/// As V0's clients use it: only files, with permissions reduced by the umask.
pub(super) fn through_zip(choices: &mut Choices<'_>) {
    let scratch = FuzzFolder::create();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    create(choices, &from, 0, false);
    let archive = scratch.path().join("archive");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&archive)
        .unwrap();
    pack_zip(&from, &mut file).unwrap();
    unpack_zip(&File::open(&archive).unwrap(), &to).unwrap();
    let files = |tree: Tree| -> Tree {
        let files = tree
            .into_iter()
            .filter(|(_, entry)| matches!(entry.content, EntryContent::File(_)));
        files
            .map(|(path, entry)| {
                (
                    path,
                    TreeEntry {
                        mode: entry.mode & 0o700,
                        ..entry
                    },
                )
            })
            .collect()
    };
    assert_eq!(files(tree::read(&to)), files(tree::read(&from)));
}

fn create(choices: &mut Choices<'_>, folder: &Path, depth: u8, has_links: bool) {
    fs::create_dir(folder).unwrap();
    for _ in 0..choices.byte() % 5 {
        let path = folder.join(choices.one_of(&NAMES));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match choices.byte() % 4 {
            0 if depth < MAX_DEPTH => create(choices, &path, depth + 1, has_links),
            1 if has_links => symlink(choices.one_of(&NAMES), &path).unwrap(),
            _ => {
                fs::write(&path, choices.content()).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(choices.one_of(&MODES))).unwrap();
            }
        }
    }
    fs::set_permissions(
        folder,
        Permissions::from_mode(choices.one_of(&MODES) | 0o700),
    )
    .unwrap();
}
