//! The archives of V0's routes, for fuzz targets.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::transfer_error::TransferError;
use super::{download, upload};

/// As an upload is unpacked.
pub(crate) fn unpack(archive: &File, destination: &Path) -> Result<(), TransferError> {
    upload::unpack::unpack(archive, destination)
}

/// As a download is packed.
pub(crate) fn pack(folder: &Path, output: impl Write) -> io::Result<()> {
    let found = download::pack::find(folder).map_err(io::Error::other)?;
    download::pack::write(&found, output)
}
