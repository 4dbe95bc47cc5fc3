//! Replaces a C library function that must not run in the static binary.
//!
//! The standard library calls `getpwuid_r` for the home folder of a user without `HOME`. The C
//! library would load modules for LDAP, DNS and NIS that belong to the container's C library, which
//! may be another version. The function would also take a fiftieth of the binary. Accounts are read
//! from `/etc/passwd` instead (module `accounts` of the library).

// Defining a function of the C library requires `no_mangle`.
#![allow(unsafe_code)]

use std::ffi::c_char;

use nix::libc::{ENOENT, c_int, passwd, size_t, uid_t};

/// Reports that there is no such user.
// SAFETY: it has the signature of the C library's function, and like that leaves all arguments
// untouched on an error.
#[unsafe(no_mangle)]
extern "C" fn getpwuid_r(
    _: uid_t,
    _: *mut passwd,
    _: *mut c_char,
    _: size_t,
    _: *mut *mut passwd,
) -> c_int {
    ENOENT
}
