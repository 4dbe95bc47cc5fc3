//! Detection of static ELF files: a static program names no interpreter (dynamic loader).
//!
//! `ldd` would run the file, and `readelf` is not installed everywhere.

use anyhow::{Context as _, Result, bail};

/// Type of the program header that names the interpreter.
const PT_INTERP: u32 = 3;

/// Whether a 64-bit little-endian ELF file requests a dynamic loader.
pub(crate) fn has_interpreter(file: &[u8]) -> Result<bool> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        bail!("not a 64-bit little-endian ELF file");
    }
    let table = usize::try_from(u64::from_le_bytes(field(file, 0x20)?))?;
    let size = usize::from(u16::from_le_bytes(field(file, 0x36)?));
    let count = usize::from(u16::from_le_bytes(field(file, 0x38)?));
    for index in 0..count {
        let header = table
            .checked_add(index * size)
            .context("program headers beyond any file")?;
        if u32::from_le_bytes(field(file, header)?) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn field<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = file.get(at..).and_then(|rest| rest.first_chunk::<N>());
    bytes
        .copied()
        .with_context(|| format!("the file ends before byte {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_shell_is_dynamic() {
        assert!(has_interpreter(&std::fs::read("/bin/sh").unwrap()).unwrap());
    }

    #[test]
    fn interpreter_is_absent_when_file_has_no_program_headers() {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(!has_interpreter(&file).unwrap());
    }

    #[test]
    fn error_is_returned_when_file_is_foreign_or_truncated() {
        assert!(has_interpreter(b"#!/bin/sh").is_err());
        let shell = std::fs::read("/bin/sh").unwrap();
        assert!(has_interpreter(&shell[..0x40]).is_err());
    }
}
