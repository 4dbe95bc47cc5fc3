//! Makes the linker take a function that nothing asks for by name. The standard library starts a child without copying
//! the server (`posix_spawn`) when the C library can also change the child's folder, and looks for that with a weak symbol:
//! a static C library hands out no function that is only asked for weakly, and every start would be a fork.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,-u,posix_spawn_file_actions_addchdir_np");
}
