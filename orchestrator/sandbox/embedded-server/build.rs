//! Builds the static action server.
//!
//! A release build embeds the small server, whose fat LTO costs minutes. A debug build uses one
//! that is compiled quickly, and four times as large. `GLOVEBOX_ACTION_SERVER_PROFILE` selects the
//! other one; `GLOVEBOX_ACTION_SERVER` names a file that is built already.
//!
//! The program of a debug build reads the server through the link `target/action-server/current`.
//! The script runs again only if the server's sources change or the link is missing, not for
//! another profile: otherwise `cargo ci`, which tests the small server, and `cargo nextest` would
//! rebuild each other's work.
//!
//! The nested build has a target directory of its own below the outer one: cargo holds a lock on
//! the outer one while this runs. `cargo build -vv` shows its progress.

#![allow(clippy::print_stdout)] // it is how a build script speaks with cargo

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Files that the server is built from, relative to the workspace's root.
const INPUTS: &[&str] = &[
    "action-server/src",
    "action-server/build.rs",
    "action-server/openapi.json",
    "action-server/Cargo.toml",
    "protocol/src",
    "protocol/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

/// Variables of the outer build, removed for the nested one: clippy, a coverage tool and a plain
/// build embed the same bytes.
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

/// Packs relocations into a fifteenth of their size and merges identical functions. A linker that
/// supports neither ignores the flags with a warning.
///
/// `opt-level = "z"` inlines with a threshold of 5. A threshold of 50 costs 120 KB and makes an
/// `echo` 3 to 8 % faster; a higher one is no faster.
const SMALL_FLAGS: [&str; 6] = [
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
            eprintln!("{error}"); // returned from `main`, it would be printed in its debug form
            ExitCode::FAILURE
        }
    }
}

fn find_or_build() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(is_embedded)");
    println!("cargo::rerun-if-env-changed=GLOVEBOX_ACTION_SERVER");
    let is_debug = env::var("PROFILE")? == "debug";
    let server = match env::var_os("GLOVEBOX_ACTION_SERVER") {
        Some(given) => PathBuf::from(given),
        None if is_debug => link(&build(QUICK_PROFILE)?)?,
        None => {
            println!("cargo::rerun-if-env-changed={PROFILE_VARIABLE}");
            build(SMALL_PROFILE)?
        }
    };
    if !server.is_file() {
        return Err(format!("the action server is not at {}", server.display()).into());
    }
    println!("cargo::rerun-if-changed={}", server.display());
    println!("cargo::rustc-env=ACTION_SERVER_FILE={}", server.display());
    if !is_debug {
        println!("cargo::rustc-cfg=is_embedded");
    }
    Ok(())
}

/// Replaces the link to the server that debug builds use, and returns its path.
fn link(server: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let link = nested_target_directory()?.join("current");
    let new = link.with_extension("new");
    let _ = std::fs::remove_file(&new); // of an interrupted build
    std::os::unix::fs::symlink(server, &new)?;
    std::fs::rename(&new, &link)?;
    Ok(link)
}

/// Cargo's profiles for the server.
const SMALL_PROFILE: &str = "action-server";
const QUICK_PROFILE: &str = "action-server-quick";

const PROFILE_VARIABLE: &str = "GLOVEBOX_ACTION_SERVER_PROFILE";

fn profile(default: &'static str) -> Result<&'static str, Box<dyn Error>> {
    match env::var_os(PROFILE_VARIABLE) {
        None => Ok(default),
        Some(name) if name == SMALL_PROFILE => Ok(SMALL_PROFILE),
        Some(name) if name == QUICK_PROFILE => Ok(QUICK_PROFILE),
        Some(other) => {
            let other = other.display();
            Err(format!(
                "{PROFILE_VARIABLE} is `{other}`: it can be `{SMALL_PROFILE}` or `{QUICK_PROFILE}`"
            )
            .into())
        }
    }
}

fn build(default_profile: &'static str) -> Result<PathBuf, Box<dyn Error>> {
    let profile = profile(default_profile)?;
    let workspace = workspace()?;
    for input in INPUTS {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(input).display()
        );
    }
    let target_directory = nested_target_directory()?;
    let target = env::var("TARGET")?;
    let is_cross = target != env::var("HOST")?;

    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&workspace).args([
        "rustc",
        "--locked",
        "--package",
        "action-server",
        "--bin",
        "action-server",
    ]);
    cargo
        .args(["--profile", profile, "--target-dir"])
        .arg(&target_directory);
    if is_cross {
        cargo.args(["--target", &target]);
    }
    // Only for the program itself: proc-macros cannot be linked statically.
    cargo.args(["--", "-C", "target-feature=+crt-static"]);
    if profile == SMALL_PROFILE {
        cargo.args(SMALL_FLAGS);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_outer_build(name)) {
        cargo.env_remove(name);
    }
    cargo.env(
        "CARGO_ENCODED_RUSTFLAGS",
        remap_registry_paths().join("\u{1f}"),
    );

    let status = cargo
        .status()
        .map_err(|error| format!("cannot run {cargo:?}: {error}"))?;
    if !status.success() {
        return Err(format!("cannot build the action server: {status}").into());
    }
    let folder = if is_cross {
        target_directory.join(target)
    } else {
        target_directory
    };
    Ok(folder.join(profile).join("action-server"))
}

/// Flags that remove the path of cargo's registry from panic messages; the crate's name and version
/// remain.
fn remap_registry_paths() -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| home.join("registry/src").read_dir().ok());
    let registries = registries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    registries
        .map(|registry| format!("--remap-path-prefix={}/=", registry.display()))
        .collect()
}

fn workspace() -> Result<PathBuf, Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = manifest
        .ancestors()
        .nth(3)
        .ok_or("the crate is not three folders below its workspace")?;
    Ok(root.to_owned())
}

/// Returns the folder `action-server` of the target folder. It is found from
/// `<profile>/build/<crate>/out`, because cargo does not pass the target folder to build scripts.
fn nested_target_directory() -> Result<PathBuf, Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let build = out
        .ancestors()
        .find(|folder| folder.file_name() == Some(OsStr::new("build")));
    let target = build.and_then(Path::parent).and_then(Path::parent);
    let target = target.ok_or_else(|| format!("no `build` folder above {}", out.display()))?;
    Ok(target.join("action-server"))
}

fn is_of_outer_build(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    OUTER_BUILD.contains(&name.as_ref())
        || OUTER_BUILD_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}
