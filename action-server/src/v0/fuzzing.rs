//! Entry points of fuzz targets for the archives of V0's routes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::transfer_error::TransferError;
use super::{download, upload};

/// Unpacks an upload.
pub(crate) fn unpack(archive: &File, destination: &Path) -> Result<(), TransferError> {
    upload::unpack::unpack(archive, destination)
}

/// Packs a download.
pub(crate) fn pack(folder: &Path, output: impl Write) -> io::Result<()> {
    let found = download::pack::find(folder).map_err(io::Error::other)?;
    download::pack::write(&found, output)
}
