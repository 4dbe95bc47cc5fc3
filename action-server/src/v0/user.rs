//! The user that V0's clients ask for: a name and a number, whether the image knows it or not. The whole server becomes
//! this user, for good. Never through the C library's names, which a static program cannot use.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

use crate::config::LaunchConfig;

/// Who the server becomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    name: Option<String>,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// Nothing if the server stays what it is.
pub(super) fn wanted(config: &LaunchConfig) -> anyhow::Result<Option<User>> {
    let accounts = fs::read("/etc/passwd").unwrap_or_default();
    let user = find(config.username.as_deref(), config.user_id, &String::from_utf8_lossy(&accounts))?;
    let Some(user) = user.filter(|user| user.uid != geteuid().as_raw()) else { return Ok(None) };
    if geteuid().is_root() {
        return Ok(Some(user));
    }
    eprintln!("action-server: not started as root, so it runs as user {} and not {}", geteuid(), user.uid);
    Ok(None)
}

/// The number decides; a name alone has to be known.
fn find(name: Option<&str>, id: Option<u32>, accounts: &str) -> anyhow::Result<Option<User>> {
    let known = accounts.lines().filter_map(account).find(|user| match id {
        Some(id) => user.uid == id,
        None => name.is_some_and(|name| user.name.as_deref() == Some(name)),
    });
    match (known, id, name) {
        (Some(user), _, _) => Ok(Some(user)),
        (None, None, None) => Ok(None),
        (None, None, Some(name)) => {
            bail!("there is no user {name} here; give its number too, with --user-id")
        }
        (None, Some(id), name) => {
            let name = name.filter(|name| is_name(name)).map(str::to_owned);
            let home = name.as_ref().map_or("/".into(), |name| Path::new("/home").join(name));
            Ok(Some(User { name, uid: id, gid: id, home }))
        }
    }
}

/// `name:password:uid:gid:comment:home:shell`.
fn account(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(User { name: Some(name), uid, gid, home: fields.nth(1)?.into() })
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Makes what only root can make: the working directory and a home that belong to the user. What is there already keeps
/// its owner, but for the working directory, which is what the user is here for.
pub(super) fn prepare(user: &User, working_dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(working_dir)
        .with_context(|| format!("making the working directory {}", working_dir.display()))?;
    give(working_dir, user)?;
    if !user.home.exists() && fs::create_dir_all(&user.home).is_ok() {
        give(&user.home, user)?;
    }
    Ok(())
}

fn give(folder: &Path, user: &User) -> anyhow::Result<()> {
    chown(folder, Some(user.uid), Some(user.gid))
        .with_context(|| format!("giving {} to user {}", folder.display(), user.uid))
}

/// There is no way back.
pub(super) fn become_user(user: &User) -> anyhow::Result<()> {
    setgroups(&[Gid::from_raw(user.gid)]).context("leaving root's groups")?;
    setgid(Gid::from_raw(user.gid)).with_context(|| format!("becoming group {}", user.gid))?;
    setuid(Uid::from_raw(user.uid)).with_context(|| format!("becoming user {}", user.uid))
}

impl User {
    /// What programs look at to know whose they are.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![("HOME", self.home.clone().into())];
        if let Some(name) = &self.name {
            environment.extend([("USER", name.into()), ("LOGNAME", name.into())]);
        }
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nagent:x:1000:100::/home/a:/bin/bash\n";

    fn user(name: &str, uid: u32, gid: u32, home: &str) -> Option<User> {
        Some(User { name: Some(name.into()), uid, gid, home: home.into() })
    }

    #[test]
    fn the_number_decides() {
        let found = |name, id| find(name, id, ACCOUNTS).ok().flatten();
        assert_eq!(found(Some("openhands"), Some(1000)), user("agent", 1000, 100, "/home/a"));
        assert_eq!(found(Some("agent"), None), user("agent", 1000, 100, "/home/a"));
        assert_eq!(found(Some("openhands"), Some(77)), user("openhands", 77, 77, "/home/openhands"));
        assert_eq!(found(Some("../x"), Some(77)).unwrap().home, Path::new("/"));
        assert_eq!(found(None, None), None);
        assert!(find(Some("nobody-knows"), None, ACCOUNTS).is_err());
    }
}
