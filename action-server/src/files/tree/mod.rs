//! A folder with all that lies in it, as one tar archive, in either direction. An archive that arrives is taken from
//! nobody on trust: what could change anything outside its folder is refused before it is made.

mod entry_path;
mod folder;
mod input;
mod output;
mod pack;
mod unpack;

#[cfg(test)]
mod tests;

pub(crate) use input::Arrived;
pub(crate) use pack::{check, pack};
pub(crate) use unpack::{Limits, unpack};
