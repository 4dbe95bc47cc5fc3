//! What of the operator's configuration reaches the conversations of users.
//!
//! Users read the environment of their sandboxes, and act with the tools of the servers that they
//! are offered. So secrets, variables, tokens, tool servers, the operator's git user and own
//! microagents, which can name tool servers with their keys, are left out, except those whose names
//! `share_with_users` lists. Keys of models and services stay on the host.

use std::collections::BTreeSet;

use crate::config::{Config, WorkspaceSettings, token_variable};
use crate::workspace;

/// Names of single settings.
const GIT_USER_NAME: &str = "git_user_name";
const GIT_USER_EMAIL: &str = "git_user_email";
const SELECTED_REPOSITORY: &str = "selected_repo";

/// Name of the operator's folders of microagents.
const MICROAGENTS: &str = "microagents";

/// Removes what the operator does not share.
pub(super) fn remove_private(config: &mut Config) {
    visit_private(config, &mut |_| false);
}

/// Returns a sentence for the operator about names that are not shared, and one about shared names
/// that do not exist. Empty if there are none.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut private = BTreeSet::new();
    let mut known = BTreeSet::new();
    let shared = &config.shared_with_users;
    let mut visited = Config {
        shared_with_users: BTreeSet::new(),
        ..config.clone()
    };
    visit_private(&mut visited, &mut |name| {
        let names = if shared.contains(name) {
            &mut known
        } else {
            &mut private
        };
        names.insert(name.to_owned());
        true
    });
    let unknown: Vec<_> = shared.difference(&known).cloned().collect();
    let private: Vec<_> = private.into_iter().collect();
    let mut warnings = Vec::new();
    if !private.is_empty() {
        let names = private.join(", ");
        warnings.push(format!(
            "users do not get {names}: share_with_users in [core] lists what they share"
        ));
    }
    if !unknown.is_empty() {
        warnings.push(format!(
            "share_with_users lists what is not configured: {}",
            unknown.join(", ")
        ));
    }
    warnings
}

/// Removes each private part whose name is not shared, unless `is_kept` keeps it.
fn visit_private(config: &mut Config, is_kept: &mut dyn FnMut(&str) -> bool) {
    // Without `..`, so that a new field has to be decided on.
    let Config {
        workspace,
        secrets,
        mcp,
        team,
        microagent_folders,
        shared_with_users: shared,
        // What the server offers to all: agents, models, limits, sandboxes.
        agent: _,
        max_iterations: _,
        max_budget: _,
        max_concurrent_conversations: _,
        runtime: _,
        sandbox: _,
        command_timeout: _,
        enable_browser: _,
        marks_pages: _,
        llm: _,
        model_prices: _,
        secondary_llm: _,
        title_llm: _,
        draft_editor_llm: _,
        condenser: _,
        history_truncation_disabled: _,
        stuck_detection_disabled: _,
        security: _,
        // Stays on the host.
        state_dir: _,
        durability: _,
        store: _,
        save_trajectory: _,
        saves_screenshots: _,
        replay_trajectory: _,
        host: _,
        files: _,
        restricted: _,
        trust: _,
        allows_broad_folders: _,
        warnings: _,
    } = config;
    let mut is_kept = |name: &str| shared.contains(name) || is_kept(name);
    secrets.retain(|name, _| is_kept(name));
    mcp.servers.retain(|server| is_kept(&server.name));
    visit_workspace(workspace, &mut is_kept);
    let has_microagents = microagent_folders.iter().any(|folder| folder.is_dir());
    if !(has_microagents && is_kept(MICROAGENTS)) {
        microagent_folders.clear();
    }
    for member in team.values_mut() {
        visit_private(member, &mut is_kept);
    }
}

fn visit_workspace(settings: &mut WorkspaceSettings, is_kept: &mut dyn FnMut(&str) -> bool) {
    let has_credentials = workspace::selects_with_credentials(settings);
    let WorkspaceSettings {
        git_tokens,
        startup_environment,
        git_user_name,
        git_user_email,
        selected_repository,
        base: _,
        user: _,
        init_git: _,
    } = settings;
    git_tokens.retain(|host, _| is_kept(token_variable(host).unwrap_or(host)));
    startup_environment.retain(|name, _| is_kept(name));
    git_user_name.take_if(|_| !is_kept(GIT_USER_NAME));
    git_user_email.take_if(|_| !is_kept(GIT_USER_EMAIL));
    selected_repository.take_if(|_| has_credentials && !is_kept(SELECTED_REPOSITORY));
}
