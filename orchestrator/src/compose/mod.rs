//! The composition root: the only place that knows every concrete type.

mod agent;
mod model;
mod sandboxes;
mod state_dir;

pub(crate) use agent::{agent, memory};
pub(crate) use model::{lasting_model_name, llm, scripted_llm};
pub(crate) use sandboxes::{
    Sweep, choose_runtime, is_spare_in_use, isolation, provider, provider_with_spares, spec,
};
pub(crate) use state_dir::{Lock, StateDir};
