//! The configuration files: the user's own, overlaid with that of the current folder as far as the
//! user trusts it.
//!
//! `--config-file` replaces both. The user's own file is `~/.glovebox/config.toml`, else V0's
//! `~/.openhands/config.toml`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Overrides;
use super::environment;
use super::file::{self, ConfigFile};
use super::host::{expand_home, home};
use super::settings::ConfigError;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};
use crate::trust::{Fingerprint, TrustReason, TrustStore, UndecidedFile, Verdict};

/// Candidates for the user's own file, relative to home. The first that exists is read.
const OWN_FILES: [&str; 2] = [".glovebox/config.toml", ".openhands/config.toml"];

/// The file of the current folder.
const FOLDER_FILE: &str = "config.toml";

/// The merged files, and the trust in each.
pub(super) struct Layers {
    pub(super) file: ConfigFile,
    pub(super) warnings: Vec<String>,
    /// The files that take full effect.
    pub(super) files: Vec<Fingerprint>,
    /// The names of the sections `[agent.NAME]` in the user's own file.
    pub(super) own_agents: BTreeSet<String>,
    /// The current folder, if its file is not trusted.
    pub(super) untrusted_folder: Option<PathBuf>,
    pub(super) restricted: Option<RestrictedFile>,
    pub(super) trust: TrustStore,
}

/// A file of which some keys have no effect, because they need the user's trust.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RestrictedFile {
    /// The user has not decided.
    Undecided(UndecidedFile),
    /// The user has denied trust. Holds the keys without effect.
    Denied(Fingerprint, Vec<String>),
}

impl RestrictedFile {
    /// A file without the user's trust, and its keys that need it. `None` if there are no such
    /// keys.
    pub(super) fn new(
        file: Fingerprint,
        keys: Vec<String>,
        verdict: Option<Verdict>,
    ) -> Option<Self> {
        match verdict {
            _ if keys.is_empty() => None,
            Some(Verdict::Denied) => Some(Self::Denied(file, keys)),
            _ => Some(Self::Undecided(UndecidedFile {
                file,
                reason: TrustReason::Keys(keys),
            })),
        }
    }

    /// `None` if the user has decided about the file.
    pub(crate) fn undecided(&self) -> Option<&UndecidedFile> {
        match self {
            Self::Undecided(file) => Some(file),
            Self::Denied(..) => None,
        }
    }
}

impl Layers {
    /// Reads all files.
    pub(super) fn read(
        overrides: &Overrides,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let named = overrides.config_file.as_deref();
        let own = match (named, home(variable)) {
            (Some(path), _) => Some(path.to_owned()),
            (None, Ok(home)) => OWN_FILES
                .iter()
                .map(|file| home.join(file))
                .find(|path| path.exists()),
            (None, Err(_)) => None,
        };
        let (mut file, warnings, files) = match &own {
            Some(path) => {
                let content = input_file::read_named(path, MAX_SETTINGS_LENGTH);
                let (file, warnings, fingerprint) = parse(path, content)?;
                (file, warnings, vec![fingerprint])
            }
            None => Default::default(),
        };
        if let Some(folder) = own.as_deref().and_then(Path::parent) {
            file.resolve_prompts(folder);
        }
        let trust = open_trust(&file, variable)?;
        let own_agents = file.groups.keys().filter(|(section, _)| section == "agent");
        let own_agents = own_agents.map(|(_, name)| name.clone()).collect();
        let mut layers = Self {
            file,
            warnings,
            files,
            own_agents,
            untrusted_folder: None,
            restricted: None,
            trust,
        };
        if named.is_none() && !overrides.without_folder_file {
            layers.read_folder_file(variable)?;
        }
        Ok(layers)
    }

    fn read_folder_file(
        &mut self,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        let path = Path::new(FOLDER_FILE);
        // A link out of the folder is refused: it would inherit the trust in its target.
        let content = match input_file::read_beneath(Path::new("."), path, MAX_SETTINGS_LENGTH) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // The folder is another user's, as after `sudo -u` in root's.
            Err(error)
                if error.kind() == std::io::ErrorKind::PermissionDenied
                    && path.symlink_metadata().is_err() =>
            {
                return Ok(());
            }
            content => content,
        };
        let parsed = parse(path, content);
        let (mut file, warnings, fingerprint) =
            parsed.map_err(|error| ConfigError::FolderFile(Box::new(error)))?;
        // The current folder is that of the user's own file.
        if self.files.iter().any(|own| *own.path == *fingerprint.path) {
            return Ok(());
        }
        self.warnings.extend(warnings);
        let folder = Path::new(".")
            .canonicalize()
            .map_err(|source| unreadable(path, source))?;
        let verdict = self.trust.verdict(&fingerprint);
        if verdict == Some(Verdict::Trusted) {
            file.resolve_prompts(&folder);
            self.files.push(fingerprint);
        } else {
            let mut own = self.file.clone();
            own.base.overlay(environment::read(variable)?);
            let keys = file.retain_untrusted(&own);
            file.resolve_prompts(&folder);
            self.untrusted_folder = Some(folder);
            self.restricted = RestrictedFile::new(fingerprint, keys, verdict);
        }
        self.file.overlay(file);
        Ok(())
    }
}

fn parse(
    path: &Path,
    content: std::io::Result<Vec<u8>>,
) -> Result<(ConfigFile, Vec<String>, Fingerprint), ConfigError> {
    let content = content.map_err(|source| unreadable(path, source))?;
    let fingerprint =
        Fingerprint::new(path, &content).map_err(|source| unreadable(path, source))?;
    let (file, warnings) = file::parse(path, content)?;
    Ok((file, warnings, fingerprint))
}

/// Opens the trust store in the state folder of the user's own configuration. No other file can
/// move it.
fn open_trust(
    file: &ConfigFile,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<TrustStore, ConfigError> {
    let mut settings = file.base.clone();
    settings.overlay(environment::read(variable)?);
    let state_dir = state_dir(&settings, variable)?;
    TrustStore::open(&state_dir).map_err(|source| unreadable(&state_dir.join("trust.json"), source))
}

/// The folder of everything that outlives a run.
pub(super) fn state_dir(
    settings: &super::Settings,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, ConfigError> {
    match settings.path("core", "file_store_path") {
        Some(path) => expand_home(path, variable),
        None => Ok(home(variable)?.join(".glovebox")),
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> ConfigError {
    ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    }
}
