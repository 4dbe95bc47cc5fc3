//! The user that V0's clients request by name and number, whether the image has an account for it
//! or not. The whole server changes to this user permanently. Does not use the name services of the
//! C library, which a static binary cannot use.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

use crate::config::LaunchConfig;

/// The user to change to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LaunchUser {
    name: Option<String>,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// Returns the requested user. `None` if no change is requested or possible.
pub(super) fn requested(config: &LaunchConfig) -> anyhow::Result<Option<LaunchUser>> {
    let accounts = fs::read("/etc/passwd").unwrap_or_default();
    let user = find(
        config.username.as_deref(),
        config.user_id,
        &String::from_utf8_lossy(&accounts),
    )?;
    let Some(user) = user.filter(|user| user.uid != geteuid().as_raw()) else {
        return Ok(None);
    };
    if geteuid().is_root() {
        return Ok(Some(user));
    }
    eprintln!(
        "action-server: not started as root, so it runs as user {} and not {}",
        geteuid(),
        user.uid
    );
    Ok(None)
}

/// Finds a user. The number takes precedence; a name without a number must have an account.
fn find(name: Option<&str>, id: Option<u32>, accounts: &str) -> anyhow::Result<Option<LaunchUser>> {
    let known = accounts.lines().filter_map(account).find(|user| match id {
        Some(id) => user.uid == id,
        None => name.is_some_and(|name| user.name.as_deref() == Some(name)),
    });
    match (known, id, name) {
        (Some(user), _, _) => Ok(Some(user)),
        (None, None, None) => Ok(None),
        (None, None, Some(name)) => {
            bail!("unknown user {name}; specify its number with --user-id")
        }
        (None, Some(id), name) => {
            let name = name.filter(|name| is_name(name)).map(str::to_owned);
            let home = name
                .as_ref()
                .map_or("/".into(), |name| Path::new("/home").join(name));
            Ok(Some(LaunchUser {
                name,
                uid: id,
                gid: id,
                home,
            }))
        }
    }
}

/// Parses `name:password:uid:gid:comment:home:shell`.
fn account(line: &str) -> Option<LaunchUser> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(LaunchUser {
        name: Some(name),
        uid,
        gid,
        home: fields.nth(1)?.into(),
    })
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Creates the working directory and the home folder, which requires root. The working directory is
/// given to the user even if it exists, but not an existing home folder.
pub(super) fn prepare(user: &LaunchUser, working_dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(working_dir).with_context(|| {
        format!(
            "cannot create the working directory {}",
            working_dir.display()
        )
    })?;
    change_owner(working_dir, user)?;
    if !user.home.exists() && fs::create_dir_all(&user.home).is_ok() {
        change_owner(&user.home, user)?;
    }
    Ok(())
}

fn change_owner(folder: &Path, user: &LaunchUser) -> anyhow::Result<()> {
    chown(folder, Some(user.uid), Some(user.gid)).with_context(|| {
        format!(
            "cannot change the owner of {} to user {}",
            folder.display(),
            user.uid
        )
    })
}

/// Changes the user of this process. This cannot be undone.
pub(super) fn become_user(user: &LaunchUser) -> anyhow::Result<()> {
    setgroups(&[Gid::from_raw(user.gid)]).context("cannot leave the groups of root")?;
    setgid(Gid::from_raw(user.gid))
        .with_context(|| format!("cannot change to group {}", user.gid))?;
    setuid(Uid::from_raw(user.uid)).with_context(|| format!("cannot change to user {}", user.uid))
}

impl LaunchUser {
    /// Variables that identify the user.
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

    const ACCOUNTS: &str =
        "root:x:0:0:root:/root:/bin/sh\nbroken\nagent:x:1000:100::/home/a:/bin/bash\n";

    fn user(name: &str, uid: u32, gid: u32, home: &str) -> Option<LaunchUser> {
        Some(LaunchUser {
            name: Some(name.into()),
            uid,
            gid,
            home: home.into(),
        })
    }

    #[test]
    fn number_takes_precedence_over_the_name() {
        let found = |name, id| find(name, id, ACCOUNTS).ok().flatten();
        assert_eq!(
            found(Some("openhands"), Some(1000)),
            user("agent", 1000, 100, "/home/a")
        );
        assert_eq!(
            found(Some("agent"), None),
            user("agent", 1000, 100, "/home/a")
        );
        assert_eq!(
            found(Some("openhands"), Some(77)),
            user("openhands", 77, 77, "/home/openhands")
        );
        assert_eq!(found(Some("../x"), Some(77)).unwrap().home, Path::new("/"));
        assert_eq!(found(None, None), None);
        assert!(find(Some("nobody-knows"), None, ACCOUNTS).is_err());
    }
}
