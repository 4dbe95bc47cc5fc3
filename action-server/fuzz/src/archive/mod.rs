//! Archives: tar of the native API, zip of V0's routes.
//!
//! The first byte selects the use of the rest: a raw archive, choices for an archive with valid
//! checksums and conflicting entries, or choices for a folder that is packed and unpacked.

mod hostile_tar;
mod hostile_zip;
mod names;
mod round_trip;
mod sandbox_folder;
mod tree;

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;

use action_server::fuzzing::{TarLimits, unpack_tar, unpack_zip};

use super::choices::Choices;
use super::scratch::FuzzFolder;
use sandbox_folder::SandboxFolder;

/// Low, so that they are reached.
const LIMITS: TarLimits = TarLimits {
    entries: 12,
    bytes: 4096,
    free_bytes: 1024,
};

/// No archive creates or changes a file outside its folder, or creates a link or set-id file that
/// could be used to escape. A rejected tar leaves nothing. A packed folder is unchanged after
/// unpacking.
pub fn archive(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
        0 => SandboxFolder::create(*kind).check_tar(|target| unpack_tar(bytes, target, LIMITS)),
        1 => SandboxFolder::create(*kind).check_zip(|target, file| unzip(target, file, bytes)),
        2 => SandboxFolder::create(*kind).check_tar(|target| {
            let archive = hostile_tar::archive(&mut Choices::new(bytes), target);
            unpack_tar(&archive, target, LIMITS)
        }),
        3 => SandboxFolder::create(*kind).check_zip(|target, file| {
            unzip(
                target,
                file,
                &hostile_zip::archive(&mut Choices::new(bytes), target),
            )
        }),
        4 => round_trip::through_tar(&mut Choices::new(bytes)),
        _ => round_trip::through_zip(&mut Choices::new(bytes)),
    }
}

fn unzip(target: &Path, mut file: File, archive: &[u8]) -> bool {
    file.write_all(archive).unwrap();
    file.rewind().unwrap();
    unpack_zip(&file, target).is_ok()
}
