//! Users and groups from `/etc/passwd` and `/etc/group`.
//!
//! Does not use the C library's name services: a static glibc aborts in images whose shared modules
//! have another version. Accounts that only a directory service knows are not found by name, but
//! their numbers work.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use nix::unistd::{Gid, Uid};

/// A user account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
    pub(crate) home: Option<OsString>,
}

/// User and groups that a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
    /// The supplementary groups.
    pub(crate) groups: Vec<Gid>,
    /// `None` for a number without an account.
    pub(crate) account: Option<Account>,
}

/// Reason why a user or group cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccountError {
    #[error("there is no user `{0}`")]
    NoUser(String),
    #[error("there is no group `{0}`")]
    NoGroup(String),
    #[error("no account has the number {0}, so its group must be given, as in `{0}:{0}`")]
    NeedsGroup(u32),
}

/// The contents of both files.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Not text, because a comment may have any encoding.
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Accounts {
    pub(crate) fn read() -> Self {
        let read = |path| fs::read(path).unwrap_or_default();
        Self {
            passwd: read("/etc/passwd"),
            group: read("/etc/group"),
        }
    }

    pub(crate) fn find_by_uid(&self, uid: Uid) -> Option<Account> {
        self.accounts().find(|account| account.uid == uid)
    }

    /// Resolves `user` or `user:group`, each a name or a number. A number that is also a name is
    /// resolved as the name.
    pub(crate) fn resolve(&self, text: &str) -> Result<Identity, AccountError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let named = self.accounts().find(|account| account.name == user);
        let numbered = number(user.as_bytes()).map(Uid::from_raw);
        let account = named.or_else(|| self.find_by_uid(numbered?));
        let uid = account.as_ref().map(|account| account.uid).or(numbered);
        let uid = uid.ok_or_else(|| AccountError::NoUser(user.to_owned()))?;
        let gid = match (group, &account) {
            (Some(group), _) => self
                .group(group)
                .ok_or_else(|| AccountError::NoGroup(group.to_owned()))?,
            (None, Some(account)) => account.gid,
            (None, None) => return Err(AccountError::NeedsGroup(uid.as_raw())),
        };
        let groups = account
            .as_ref()
            .map_or_else(Vec::new, |account| self.groups_with(&account.name, gid));
        Ok(Identity {
            uid,
            gid,
            groups,
            account,
        })
    }

    fn accounts(&self) -> impl Iterator<Item = Account> {
        lines(&self.passwd).filter_map(|mut fields| {
            // name:password:uid:gid:comment:home:shell
            let name = fields.next().filter(|name| !name.is_empty())?;
            let uid = number(fields.nth(1)?)?;
            let gid = number(fields.next()?)?;
            let home = fields.nth(1).filter(|home| !home.is_empty());
            Some(Account {
                name: String::from_utf8_lossy(name).into_owned(),
                uid: Uid::from_raw(uid),
                gid: Gid::from_raw(gid),
                home: home.map(|home| OsString::from_vec(home.to_vec())),
            })
        })
    }

    /// Parses lines of the form `name:password:gid:member,member`.
    fn group(&self, text: &str) -> Option<Gid> {
        let named = lines(&self.group).find_map(|mut fields| {
            (fields.next()? == text.as_bytes())
                .then(|| number(fields.nth(1)?))
                .flatten()
        });
        named.or_else(|| number(text.as_bytes())).map(Gid::from_raw)
    }

    /// Returns `own` and the groups that list `name` as a member.
    fn groups_with(&self, name: &str, own: Gid) -> Vec<Gid> {
        let mut groups = vec![own];
        for mut fields in lines(&self.group) {
            let Some(gid) = fields.nth(2).and_then(number).map(Gid::from_raw) else {
                continue;
            };
            let mut members = fields
                .next()
                .unwrap_or_default()
                .split(|&byte| byte == b',');
            if members.any(|member| member == name.as_bytes()) && !groups.contains(&gid) {
                groups.push(gid);
            }
        }
        groups
    }
}

fn lines(file: &[u8]) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
    file.split(|&byte| byte == b'\n')
        .map(|line| line.split(|&byte| byte == b':'))
}

/// Parses the number of a user or group. Rejects the highest one, which system calls interpret as
/// "unchanged".
fn number(text: &[u8]) -> Option<u32> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text)
        .ok()
        .filter(|_| is_plain)?
        .parse()
        .ok()?;
    (number != u32::MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: b"root:x:0:0:root:/root:/bin/sh\n+::::::\nbroken\n\nagent:x:1000:1001:\xff,b:/home/agent:\n7:x:70:70:::\n"
                .to_vec(),
            group: b"root:x:0:\nwheel:x:10:root,agent\nagents:x:1001:agent\nvideo:x:44:someagent,agent\n+:::\n".to_vec(),
        }
    }

    fn ids(text: &str) -> (u32, u32, Vec<u32>) {
        let identity = accounts().resolve(text).unwrap();
        let groups = identity.groups.iter().map(|gid| gid.as_raw()).collect();
        (identity.uid.as_raw(), identity.gid.as_raw(), groups)
    }

    #[test]
    fn identity_has_all_groups_when_given_by_name_or_number() {
        assert_eq!(ids("agent"), (1000, 1001, vec![1001, 10, 44]));
        assert_eq!(ids("1000"), (1000, 1001, vec![1001, 10, 44]));
        assert_eq!(ids("agent:wheel"), (1000, 10, vec![10, 1001, 44]));
        assert_eq!(ids("agent:5"), (1000, 5, vec![5, 10, 1001, 44]));
        assert_eq!(ids("7"), (70, 70, vec![70]));
        assert_eq!(ids("2147483648:3"), (2_147_483_648, 3, vec![]));
        assert_eq!(
            accounts().find_by_uid(Uid::from_raw(1000)).unwrap().home,
            Some("/home/agent".into())
        );
        assert_eq!(
            accounts().find_by_uid(Uid::from_raw(70)).unwrap().home,
            None
        );
        assert_eq!(accounts().find_by_uid(Uid::from_raw(8)), None);
    }

    #[test]
    fn resolve_fails_when_the_user_or_group_is_unknown() {
        let error = |text: &str| accounts().resolve(text).unwrap_err();
        assert_eq!(error("5000"), AccountError::NeedsGroup(5000));
        assert_eq!(error("nobody"), AccountError::NoUser("nobody".into()));
        assert_eq!(error("agent:none"), AccountError::NoGroup("none".into()));
        assert_eq!(error("agent:"), AccountError::NoGroup(String::new()));
        for text in [
            "",
            ":",
            "-1",
            "+1",
            "4294967295:0",
            "4294967296:0",
            "broken",
            "+",
        ] {
            let Err(AccountError::NoUser(user)) = accounts().resolve(text) else {
                panic!("{text} is resolved")
            };
            assert!(text.starts_with(&user));
        }
    }
}
