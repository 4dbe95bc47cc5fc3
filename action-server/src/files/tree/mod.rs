//! Transfers a folder with all its contents as a tar archive. An archive that arrives is not
//! trusted: entries that could change anything outside of its folder are rejected.

mod entry_path;
mod folder;
mod input;
mod output;
mod pack;
mod unpack;

#[cfg(test)]
mod tests;

pub(crate) use input::BodyPart;
pub(crate) use pack::{open_folder, pack};
pub(crate) use unpack::{ArchiveLimits, unpack};
