//! See the library, which is this program; it stands apart so that fuzz targets can reach its parts.

#[cfg(target_feature = "crt-static")]
mod c_library;

fn main() -> std::process::ExitCode {
    action_server::main()
}
