//! Builds the static action server, so that a host program carries the one file that it places everywhere.
//!
//! The nested build has a target directory of its own below the outer one: cargo holds a lock on the outer one while
//! this runs. A packager who built the server already names it in `GLOVEBOX_ACTION_SERVER`.

#![allow(clippy::print_stdout)] // it is how a build script speaks with cargo

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What decides the server's bytes, from the workspace's root.
const INPUTS: &[&str] = &[
    "action-server/src",
    "action-server/Cargo.toml",
    "protocol/src",
    "protocol/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

/// What the outer build says about itself. The server is the same bytes whether clippy, a coverage tool or a plain
/// build asked for it.
const OUTER_BUILD: &[&str] = &[
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_LINKER",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "TARGET",
    "HOST",
    "PROFILE",
    "OPT_LEVEL",
    "DEBUG",
    "OUT_DIR",
];
const OUTER_BUILD_PREFIXES: &[&str] = &[
    "CARGO_PKG_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_ENCODED_",
    "CARGO_PROFILE_",
    "CARGO_BUILD_",
    "CARGO_TARGET_",
];

/// The relocations of the static file in a fifteenth of the room, and functions of the same code once; a linker that cannot
/// do it says so and goes on.
///
/// Small functions are taken into their callers a little further than the smallest file wants (a threshold of 5; `s` has 50 too,
/// and three times the rest of it): 120 KB, and an `echo` takes 3 to 8 % less. More brings no more.
const SMALL: [&str; 6] = [
    "-C",
    "link-arg=-Wl,-z,pack-relative-relocs",
    "-C",
    "link-arg=-Wl,--icf=all",
    "-C",
    "llvm-args=-inline-threshold=50",
];

fn main() -> ExitCode {
    match find_or_build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}"); // by hand: main's own way would quote the compiler's lines into one
            ExitCode::FAILURE
        }
    }
}

fn find_or_build() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=GLOVEBOX_ACTION_SERVER");
    let server = match env::var_os("GLOVEBOX_ACTION_SERVER") {
        Some(given) => PathBuf::from(given),
        None => build()?,
    };
    if !server.is_file() {
        return Err(format!("the action server is not at {}", server.display()).into());
    }
    println!("cargo::rerun-if-changed={}", server.display());
    println!("cargo::rustc-env=ACTION_SERVER_FILE={}", server.display());
    Ok(())
}

fn build() -> Result<PathBuf, Box<dyn Error>> {
    let workspace = workspace()?;
    for input in INPUTS {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    let target_directory = outer_target_directory()?.join("action-server");
    let target = env::var("TARGET")?;
    let is_cross = target != env::var("HOST")?;

    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&workspace).args(["rustc", "--quiet", "--locked", "--package", "action-server"]);
    cargo
        .args(["--bin", "action-server", "--profile", "action-server", "--target-dir"])
        .arg(&target_directory);
    if is_cross {
        cargo.args(["--target", &target]);
    }
    // Only for the program itself: proc-macros cannot be linked statically.
    cargo.args(["--", "-C", "target-feature=+crt-static"]).args(SMALL);
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_outer_build(name)) {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", without_paths_of_this_machine().join("\u{1f}"));

    let output = cargo.output().map_err(|error| format!("running {cargo:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("building the action server: {}\n{said}", output.status).into());
    }
    let folder = if is_cross { target_directory.join(target) } else { target_directory };
    Ok(folder.join("action-server").join("action-server"))
}

/// Where a panic comes from is told with the crate's name and version, and not with where cargo keeps it here.
fn without_paths_of_this_machine() -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| home.join("registry/src").read_dir().ok());
    let registries = registries.into_iter().flatten().flatten().map(|entry| entry.path());
    registries.map(|registry| format!("--remap-path-prefix={}/=", registry.display())).collect()
}

fn workspace() -> Result<PathBuf, Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = manifest.ancestors().nth(2).ok_or("the crate is not two folders below its workspace")?;
    Ok(root.to_owned())
}

/// The folder above `<profile>/build/<crate>/out`: cargo tells a build script nothing nearer.
fn outer_target_directory() -> Result<PathBuf, Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let build = out.ancestors().find(|folder| folder.file_name() == Some(OsStr::new("build")));
    let target = build.and_then(Path::parent).and_then(Path::parent);
    Ok(target.ok_or_else(|| format!("no `build` folder above {}", out.display()))?.to_owned())
}

fn is_of_outer_build(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    OUTER_BUILD.contains(&name.as_ref()) || OUTER_BUILD_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
