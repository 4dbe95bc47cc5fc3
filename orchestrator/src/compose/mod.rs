//! The composition root: the only place that knows every concrete type.

mod accounts;
mod agent;
pub(crate) mod clone_url;
mod condenser;
mod conversations;
mod hosted;
mod key_file;
mod model;
mod parts;
mod profiles;
mod sandboxes;
mod secrets;
mod security;
mod server_key;
mod shared_redactors;
mod state_dir;
mod stores;
mod tool_servers;
mod unusable_files;
mod user_config;
mod user_model;

pub(crate) use agent::agent;
use agent::memory;
use condenser::condenser;
pub(crate) use conversations::{host_error, restore_settings};
pub(crate) use hosted::ConfiguredFactory;
pub(crate) use key_file::key_from_variable;
pub(crate) use model::{
    CallMode, Models, call_models, check_key, check_models, provider_models, reach_provider,
    stored_model_name,
};
use parts::agents;
pub(crate) use parts::{conversation_spec, parts, started};
pub(crate) use sandboxes::{
    check_docker, choose_runtime, describe_image, has_image, is_warm_in_use, isolation, network,
    provider, provider_for_clients, spec, sweep, sweep_later,
};
use secrets::browsing_provider;
pub(crate) use secrets::{guarded_provider, redactor, registry};
#[cfg(test)]
pub(crate) use security::{ANALYZER_TIMEOUT, MODEL_ANALYZER_TIMEOUT};
pub(crate) use security::{confirmation_policy, security_analyzer};
pub(crate) use server_key::{KeySource, ServerKey};
pub(crate) use state_dir::{Lock, ServedStore, StateDir};
pub(crate) use stores::Stores;
use tool_servers::tool_servers;
pub(crate) use user_config::{UserConfigs, check_model, sharing_warnings};
