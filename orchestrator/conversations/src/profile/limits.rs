//! Bounds of what a user may store. No error quotes a value.

use engine::secrets::{self, Secret};
use protocol::client_api::{GitTokensRequest, UserSettings};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::error::{InvalidSetting, ProfileError};
use super::{UserProfile, mcp_config};

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Maximum length of a key, a token or a secret, in bytes. Room for a private key.
const MAX_KEY_BYTES: usize = 16 << 10;

/// Maximum size of the JSON of the tool servers, in bytes.
const MAX_MCP_CONFIG_BYTES: usize = 64 << 10;

/// Maximum length of a secret's name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Maximum number of secrets. A conversation has room for those of the operator too.
const MAX_SECRETS: usize = 128;

/// Maximum length of all secrets of a user, in bytes. Room for a hundred tokens and a few private
/// keys.
const MAX_TOTAL_BYTES: usize = 32 << 10;

/// Variables without which commands no longer run.
const RESERVED_NAMES: [&str; 7] = [
    "ENV",
    "HOME",
    "IFS",
    "PATH",
    "PROMPT_COMMAND",
    "PS1",
    "SHELL",
];

pub(super) fn check_settings(settings: &UserSettings) -> Result<(), InvalidSetting> {
    let texts = [
        ("language", &settings.language),
        ("agent", &settings.agent),
        ("security_analyzer", &settings.security_analyzer),
        ("llm_model", &settings.llm_model),
        ("llm_base_url", &settings.llm_base_url),
        (
            "sandbox_base_container_image",
            &settings.sandbox_base_container_image,
        ),
        (
            "sandbox_runtime_container_image",
            &settings.sandbox_runtime_container_image,
        ),
        ("email", &settings.email),
        ("git_user_name", &settings.git_user_name),
        ("git_user_email", &settings.git_user_email),
    ];
    texts
        .into_iter()
        .try_for_each(|(field, text)| check_text(field, text.as_deref()))?;
    let keys = [
        ("llm_api_key", &settings.llm_api_key),
        ("search_api_key", &settings.search_api_key),
        ("sandbox_api_key", &settings.sandbox_api_key),
    ];
    keys.into_iter()
        .try_for_each(|(field, key)| check_key(field, key.as_ref()))?;
    check_mcp_config(settings.mcp_config.as_ref())?;
    if settings.max_iterations == Some(0) {
        return Err(InvalidSetting::new("max_iterations", "must be at least 1"));
    }
    // 0 is V0's notation for no limit.
    check_not_negative("max_budget_per_task", settings.max_budget_per_task)?;
    check_not_negative(
        "remote_runtime_resource_factor",
        settings.remote_runtime_resource_factor,
    )
}

pub(super) fn check_git_tokens(request: &GitTokensRequest) -> Result<(), InvalidSetting> {
    check_mcp_config(request.mcp_config.as_ref())?;
    for token in request.provider_tokens.values() {
        check_key("provider_tokens", token.token.as_ref())?;
        check_text("provider_tokens", token.user_id.as_deref())?;
        check_text("provider_tokens", token.host.as_deref())?;
    }
    Ok(())
}

pub(super) fn check_secret(name: &str, secret: &Secret) -> Result<(), InvalidSetting> {
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.starts_with(|first: char| !first.is_ascii_digit())
        && name.len() <= MAX_NAME_BYTES;
    if !is_name {
        let problem = "must be the name of a variable: letters, digits and _, and no digit first";
        return Err(InvalidSetting::new("name", problem));
    }
    if RESERVED_NAMES.contains(&name) || name.starts_with("LD_") || name.starts_with("BASH_") {
        return Err(InvalidSetting::new(
            "name",
            "is a variable that shells and programs need",
        ));
    }
    if secret.description.len() > MAX_TEXT_BYTES {
        return Err(too_long("description", MAX_TEXT_BYTES));
    }
    if secret.value.expose_secret().len() > MAX_KEY_BYTES {
        return Err(too_long("value", MAX_KEY_BYTES));
    }
    secrets::check_secret(name, &secret.value)
        .map_err(|error| InvalidSetting::new("value", error.to_string()))
}

/// Checks what a user's secrets have together, because all text is searched for all their
/// spellings.
pub(super) fn check_all_secrets(profile: &UserProfile) -> Result<(), ProfileError> {
    let total_bytes: usize = profile
        .secrets
        .values()
        .map(|secret| secret.value.expose_secret().len())
        .sum();
    if profile.secrets.len() > MAX_SECRETS {
        Err(InvalidSetting::new("name", format!("there are {MAX_SECRETS} secrets already")).into())
    } else if total_bytes > MAX_TOTAL_BYTES {
        let problem = format!(
            "all secrets together have more than {} KiB",
            MAX_TOTAL_BYTES >> 10
        );
        Err(InvalidSetting::new("value", problem).into())
    } else {
        Ok(())
    }
}

fn check_text(field: &'static str, text: Option<&str>) -> Result<(), InvalidSetting> {
    match text {
        Some(text) if text.len() > MAX_TEXT_BYTES => Err(too_long(field, MAX_TEXT_BYTES)),
        Some(text) if text.chars().any(char::is_control) => Err(InvalidSetting::new(
            field,
            "must have no control characters",
        )),
        _ => Ok(()),
    }
}

/// A key is sent in a header or a URL.
fn check_key(field: &'static str, key: Option<&SecretString>) -> Result<(), InvalidSetting> {
    let Some(key) = key.map(ExposeSecret::expose_secret) else {
        return Ok(());
    };
    if key.len() > MAX_KEY_BYTES {
        return Err(too_long(field, MAX_KEY_BYTES));
    }
    match key.trim().bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(InvalidSetting::new(
            field,
            "must have visible ASCII characters only",
        )),
    }
}

fn check_mcp_config(config: Option<&Value>) -> Result<(), InvalidSetting> {
    match config {
        Some(config) if !mcp_config::is_valid(config) => {
            let problem = "must be an object of sse_servers, stdio_servers and shttp_servers, which are lists";
            Err(InvalidSetting::new("mcp_config", problem))
        }
        Some(config) if config.to_string().len() > MAX_MCP_CONFIG_BYTES => {
            Err(too_long("mcp_config", MAX_MCP_CONFIG_BYTES))
        }
        _ => Ok(()),
    }
}

fn check_not_negative(field: &'static str, number: Option<f64>) -> Result<(), InvalidSetting> {
    match number {
        Some(number) if !(0.0..=1e9).contains(&number) => Err(InvalidSetting::new(
            field,
            "must be between 0 and a billion",
        )),
        _ => Ok(()),
    }
}

fn too_long(field: &'static str, max: usize) -> InvalidSetting {
    InvalidSetting::new(field, format!("must have at most {max} bytes"))
}
