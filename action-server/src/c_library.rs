//! What the C library does not get to do in the static file.
//!
//! The standard library asks it for the home folder of a user without `HOME`. There it would look for the user as the machine
//! it runs on is configured: through modules for LDAP, DNS and NIS that lie in a container whose C library is another, and with
//! a fiftieth of this file. Whoever needs an account here reads `/etc/passwd` (the library's `accounts`).
//!
//! It also asks where a thread's stack ends, to tell a stack that overflowed from other bad addresses. The library answers that
//! for the first thread out of `/proc/self/maps`, with a formatted read, which is another fiftieth. Without an answer the process
//! ends as it would, by SIGSEGV, but for the words on standard error.

// To give a C function another body is to promise the linker that it is one.
#![allow(unsafe_code)]

use std::ffi::c_char;

use nix::libc::{ENOENT, ENOSYS, c_int, passwd, pthread_attr_t, pthread_t, size_t, uid_t};

/// Knows nobody.
// SAFETY: it has the type of the C library's function of this name, and leaves all that it is given alone, as that does on an
// error.
#[unsafe(no_mangle)]
extern "C" fn getpwuid_r(_: uid_t, _: *mut passwd, _: *mut c_char, _: size_t, _: *mut *mut passwd) -> c_int {
    ENOENT
}

/// Knows no thread's stack.
// SAFETY: as above; the standard library takes an error for an answer, and never looks at the attributes then.
#[unsafe(no_mangle)]
extern "C" fn pthread_getattr_np(_: pthread_t, _: *mut pthread_attr_t) -> c_int {
    ENOSYS
}
