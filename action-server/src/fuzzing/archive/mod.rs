//! Archives: tar as the native API takes them, zip as V0's routes do.
//!
//! The first byte says what the rest is: an archive as it is, what an archive is made of (so that its checksums are
//! right and its entries meet), or a folder that goes through an archive and back.

mod hostile_tar;
mod hostile_zip;
mod journey;
mod names;
mod place;
mod tree;

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc::channel;

use super::choices::Choices;
use crate::files::{ArchiveLimits, BodyPart, FileError, Files, unpack};
use crate::v0;
use place::Place;

/// Few, so that they are reached.
const LIMITS: ArchiveLimits = ArchiveLimits { entries: 12, bytes: 4096, free_bytes: 1024 };

/// Whatever an archive holds, nothing is made or changed outside its folder, and nothing in it that could be used to get
/// out or to become another user. A tar that is refused leaves nothing. What was packed is the same when it is unpacked.
pub fn archive(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 6 {
        0 => Place::make(*kind).check_tar(|target| untar(target, bytes, LIMITS)),
        1 => Place::make(*kind).check_zip(|target, file| unzip(target, file, bytes)),
        2 => Place::make(*kind).check_tar(|target| {
            untar(target, &hostile_tar::archive(&mut Choices::of(bytes), target), LIMITS)
        }),
        3 => Place::make(*kind).check_zip(|target, file| {
            unzip(target, file, &hostile_zip::archive(&mut Choices::of(bytes), target))
        }),
        4 => journey::through_tar(&mut Choices::of(bytes)),
        _ => journey::through_zip(&mut Choices::of(bytes)),
    }
}

fn untar(target: &Path, archive: &[u8], limits: ArchiveLimits) -> Result<(), FileError> {
    let (parts, arriving) = channel(2);
    parts.try_send(BodyPart::Part(Bytes::copy_from_slice(archive))).unwrap();
    parts.try_send(BodyPart::End).unwrap();
    unpack(&Files::unconfined(), target, arriving, limits)
}

fn unzip(target: &Path, mut file: File, archive: &[u8]) -> bool {
    file.write_all(archive).unwrap();
    file.rewind().unwrap();
    v0::fuzzing::unpack(&file, target).is_ok()
}
