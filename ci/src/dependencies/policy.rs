//! Banned packages, minimum versions and allowed licences, with reasons. `.deny.toml` lists the
//! same bans and licences.

use anyhow::{Result, anyhow};
use semver::Version;
use spdx::{Expression, ParseMode};

/// Packages that must not be used, not even as transitive dependencies.
pub(super) const BANS: &[(&str, &str)] = &[
    (
        "aws-lc-sys",
        "one TLS stack, rustls on ring; this one also needs cmake to build",
    ),
    ("aws-lc-rs", "one TLS stack, rustls on ring"),
    (
        "openssl-sys",
        "one TLS stack; a static program cannot use the system's OpenSSL",
    ),
    ("native-tls", "one TLS stack; this one is OpenSSL on Linux"),
    (
        "tokio-tar",
        "unmaintained, and lets an archive smuggle entries past the reader; use tar or astral-tokio-tar",
    ),
];

/// Minimum version of a package whose older versions have a known defect.
pub(super) struct MinimumVersion {
    pub(super) package: &'static str,
    pub(super) at_least: Version,
    pub(super) reason: &'static str,
}

pub(super) const FLOORS: &[MinimumVersion] = &[
    MinimumVersion {
        package: "russh",
        at_least: Version::new(0, 65, 0),
        reason: "older versions have advisories",
    },
    MinimumVersion {
        package: "rmcp",
        at_least: Version::new(1, 4, 0),
        reason: "older versions have advisories",
    },
    MinimumVersion {
        package: "libsqlite3-sys",
        at_least: Version::new(0, 37, 0),
        reason: "the first to bundle SQLite 3.51.3; older SQLite can corrupt a WAL that is reset while written",
    },
];

impl MinimumVersion {
    pub(super) fn allows(&self, version: &Version) -> bool {
        *version >= self.at_least
    }
}

/// Licences whose only obligation for an MIT program is to distribute their text with it.
pub(super) const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception", // the exception only grants more rights
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be satisfied by allowed licences only.
pub(super) fn allows_licence(expression: &str) -> Result<bool> {
    // Lax, because older manifests write `MIT/Apache-2.0` instead of OR.
    let expression = Expression::parse_mode(expression, ParseMode::LAX)
        .map_err(|error| anyhow!("{}", error.reason))?;
    Ok(expression.evaluate(|requirement| LICENCES.contains(&requirement.to_string().as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(expression: &str) -> bool {
        allows_licence(expression).unwrap()
    }

    #[test]
    fn expression_passes_when_one_choice_is_allowed() {
        assert!(allowed("MIT"));
        assert!(allowed("GPL-3.0-only OR MIT"));
        assert!(allowed("MIT/Apache-2.0"));
        assert!(allowed("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only"));
    }

    #[test]
    fn conjunction_passes_only_when_all_are_allowed() {
        assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!allowed("MIT AND GPL-3.0-only"));
    }

    #[test]
    fn unknown_exceptions_and_invalid_expressions_fail() {
        assert!(!allowed("Apache-2.0 WITH Classpath-exception-2.0"));
        assert!(!allowed("LicenseRef-Mine"));
        assert!(allows_licence("whatever you like").is_err());
    }

    #[test]
    fn minimum_version_is_inclusive() {
        let floor = &FLOORS[0];
        assert!(floor.allows(&Version::new(0, 65, 0)));
        assert!(!floor.allows(&Version::new(0, 64, 9)));
    }
}
