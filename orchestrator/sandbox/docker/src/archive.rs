//! Tar archives for the engine's upload route, which unpacks them as root before the container
//! starts.

use std::io;

use tar::{Builder, EntryType, Header};

/// Builds an archive of a folder with an executable file.
pub(super) fn with_program(folder: &str, name: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::with_capacity(bytes.len() + 4096));
    append(&mut archive, EntryType::Directory, folder, 0o755, &[])?;
    append(
        &mut archive,
        EntryType::Regular,
        &format!("{folder}/{name}"),
        0o755,
        bytes,
    )?;
    archive.into_inner()
}

/// Builds an archive of folders with these modes.
pub(super) fn with_folders(folders: &[(&str, u32)]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (folder, mode) in folders {
        append(&mut archive, EntryType::Directory, folder, *mode, &[])?;
    }
    archive.into_inner()
}

fn append(
    archive: &mut Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_ustar(); // owner and group are root, the time is 1970: the same bytes every time
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, path, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::with_program;

    #[test]
    fn archive_contains_the_complete_executable() {
        let archive = with_program(".glovebox", "action-server", &[7; 1000]).unwrap();
        let mut archive = tar::Archive::new(&archive[..]);
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                let path = entry.path().unwrap().display().to_string();
                (path, entry.header().mode().unwrap(), bytes.len())
            })
            .collect();
        assert_eq!(
            entries,
            [
                (".glovebox".to_owned(), 0o755, 0),
                (".glovebox/action-server".to_owned(), 0o755, 1000)
            ]
        );
    }
}
