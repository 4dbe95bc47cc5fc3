//! The composition root: the only place that knows every concrete type.

mod agent;
mod condenser;
mod model;
mod sandboxes;
mod state_dir;
mod tool_servers;

pub(crate) use agent::{agent, memory};
pub(crate) use condenser::condenser;
pub(crate) use model::{lasting_model_name, llm, scripted_llm};
pub(crate) use sandboxes::{
    Sweep, choose_runtime, is_spare_in_use, isolation, provider, provider_with_spares, spec,
};
pub(crate) use state_dir::{Lock, StateDir};
pub(crate) use tool_servers::tool_servers;
