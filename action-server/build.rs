//! Makes the linker take a function that nothing asks for by name, and compresses texts that it is
//! to hold.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::DeflateEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    // The standard library starts a child without copying the server (`posix_spawn`) when the C
    // library can also change the child's folder, and looks for that with a weak symbol: a static C
    // library hands out no function that is only asked for weakly, and every start would be a fork.
    println!("cargo::rustc-link-arg-bins=-Wl,-u,posix_spawn_file_actions_addchdir_np");
    compress("openapi.json", "openapi.deflate")?;
    compress("src/plugins/jupyter/bridge.py", "bridge.deflate")
}

/// A tenth of its length, or a third, and the server can read it anyway: files come compressed too.
fn compress(from: &str, to: &str) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={from}");
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    let mut encoder = DeflateEncoder::new(
        File::create(PathBuf::from(folder).join(to))?,
        Compression::best(),
    );
    encoder.write_all(&std::fs::read(from)?)?;
    encoder.finish()?;
    Ok(())
}
