//! The binary. All code is in the library, so that fuzz targets can use its modules.

#[cfg(target_feature = "crt-static")]
mod c_library;

fn main() -> std::process::ExitCode {
    action_server::main()
}
