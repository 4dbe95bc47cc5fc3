//! The one question we have for an ELF file: does it name an interpreter, the loader that a static program lacks?
//!
//! `ldd` would run the file, and `readelf` is not everywhere; the header is forty lines to read.

use anyhow::{Context as _, Result, bail};

/// The type of the program header that names the interpreter.
const PT_INTERP: u32 = 3;

/// Whether a 64-bit little-endian ELF file asks for a dynamic loader.
pub(crate) fn has_interpreter(file: &[u8]) -> Result<bool> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        bail!("not a 64-bit little-endian ELF file");
    }
    let table = usize::try_from(u64::from_le_bytes(field(file, 0x20)?))?;
    let size = usize::from(u16::from_le_bytes(field(file, 0x36)?));
    let count = usize::from(u16::from_le_bytes(field(file, 0x38)?));
    for index in 0..count {
        let header = table.checked_add(index * size).context("program headers beyond any file")?;
        if u32::from_le_bytes(field(file, header)?) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn field<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = file.get(at..).and_then(|rest| rest.first_chunk::<N>());
    bytes.copied().with_context(|| format!("the file ends before byte {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_shell_is_dynamic() {
        assert!(has_interpreter(&std::fs::read("/bin/sh").unwrap()).unwrap());
    }

    #[test]
    fn a_file_without_program_headers_has_none() {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(!has_interpreter(&file).unwrap());
    }

    #[test]
    fn other_and_truncated_files_are_errors() {
        assert!(has_interpreter(b"#!/bin/sh").is_err());
        let shell = std::fs::read("/bin/sh").unwrap();
        assert!(has_interpreter(&shell[..0x40]).is_err());
    }
}
