//! What the C library does not get to do in the static file.
//!
//! The standard library asks it for the home folder of a user without `HOME`. There it would look for the user as the machine
//! it runs on is configured: through modules for LDAP, DNS and NIS that lie in a container whose C library is another, and with
//! a fiftieth of this file. Whoever needs an account here reads `/etc/passwd` (the library's `accounts`).

// To give a C function another body is to promise the linker that it is one.
#![allow(unsafe_code)]

use std::ffi::c_char;

use nix::libc::{ENOENT, c_int, passwd, size_t, uid_t};

/// Knows nobody.
// SAFETY: it has the type of the C library's function of this name, and leaves all that it is given alone, as that does on an
// error.
#[unsafe(no_mangle)]
extern "C" fn getpwuid_r(_: uid_t, _: *mut passwd, _: *mut c_char, _: size_t, _: *mut *mut passwd) -> c_int {
    ENOENT
}
