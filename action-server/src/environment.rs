//! What commands get as their environment: the server's own, without what is ours, with what every command needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::unistd::{Uid, geteuid};

/// The usual one, for containers that set none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// V0's variables that its clients set for its server; the first is a key.
const NOT_FOR_COMMANDS: [&str; 2] = ["SESSION_API_KEY", "NO_CHANGE_TIMEOUT_SECONDS"];

/// The environment of shells.
pub(crate) fn for_commands() -> Vec<(OsString, OsString)> {
    // Read by hand: the C library's way loads plugins, and a static program aborts when they do not fit the image.
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    complete(std::env::vars_os(), &passwd, geteuid())
}

fn complete(
    own: impl Iterator<Item = (OsString, OsString)>,
    passwd: &[u8],
    user: Uid,
) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> =
        own.filter(|(name, _)| !NOT_FOR_COMMANDS.iter().any(|not| name == OsStr::new(not))).collect();
    let mut default = |name: &str, value: OsString| {
        if !environment.iter().any(|(present, value)| present == OsStr::new(name) && !value.is_empty()) {
            environment.retain(|(present, _)| present != OsStr::new(name));
            environment.push((name.into(), value));
        }
    };
    default("PATH", DEFAULT_PATH.into());
    default("HOME", home(passwd, user).unwrap_or_else(|| "/".into()));
    environment
}

/// From `name:password:uid:gid:comment:home:shell`.
fn home(passwd: &[u8], user: Uid) -> Option<OsString> {
    let user = user.to_string();
    let mut users = passwd.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':'));
    let home = users.find_map(|mut fields| {
        let is_user = fields.nth(2)? == OsStr::new(&user).as_bytes();
        if is_user { fields.nth(2) } else { None }
    })?;
    (!home.is_empty()).then(|| OsString::from_vec(home.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] =
        b"root:x:0:0:root:/root:/bin/sh\nbroken\n\nagent:x:1000:1000:a,b:/home/agent:/bin/bash\n";

    fn completed(own: &[(&str, &str)], uid: u32) -> Vec<(String, String)> {
        let own = own.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let environment = complete(own, PASSWD, Uid::from_raw(uid)).into_iter();
        environment.map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap())).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn what_is_missing_is_added() {
        assert_eq!(completed(&[], 1000), [pair("PATH", DEFAULT_PATH), pair("HOME", "/home/agent")]);
        assert_eq!(completed(&[("HOME", "")], 7), [pair("PATH", DEFAULT_PATH), pair("HOME", "/")]);
    }

    #[test]
    fn what_is_there_stays_except_keys() {
        let own = [("PATH", "/opt"), ("HOME", "/h"), ("LANG", "C"), ("SESSION_API_KEY", "secret")];
        assert_eq!(completed(&own, 0), [pair("PATH", "/opt"), pair("HOME", "/h"), pair("LANG", "C")]);
    }
}
