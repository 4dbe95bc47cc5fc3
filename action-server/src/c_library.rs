//! Replaces C library functions that must not run in the static binary.
//!
//! The standard library calls `getpwuid_r` for the home folder of a user without `HOME`. The C library would load modules for
//! LDAP, DNS and NIS that belong to the container's C library, which may be another version. The function would also take a
//! fiftieth of the binary. Accounts are read from `/etc/passwd` instead (module `accounts` of the library).
//!
//! The standard library calls `pthread_getattr_np` for the bounds of a thread's stack, to distinguish a stack overflow from
//! other invalid addresses. For the first thread, the C library parses `/proc/self/maps` with `sscanf`, which takes another
//! fiftieth of the binary. Without the bounds, a stack overflow still ends the process with SIGSEGV, but without a message.

// Defining a function of the C library requires `no_mangle`.
#![allow(unsafe_code)]

use std::ffi::c_char;

use nix::libc::{ENOENT, ENOSYS, c_int, passwd, pthread_attr_t, pthread_t, size_t, uid_t};

/// Reports that there is no such user.
// SAFETY: it has the signature of the C library's function, and like that leaves all arguments untouched on an error.
#[unsafe(no_mangle)]
extern "C" fn getpwuid_r(_: uid_t, _: *mut passwd, _: *mut c_char, _: size_t, _: *mut *mut passwd) -> c_int {
    ENOENT
}

/// Reports that the attributes are not available.
// SAFETY: as above. On an error the standard library does not read the attributes.
#[unsafe(no_mangle)]
extern "C" fn pthread_getattr_np(_: pthread_t, _: *mut pthread_attr_t) -> c_int {
    ENOSYS
}
