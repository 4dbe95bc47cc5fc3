//! Every key of V0 and of Glovebox, with the kind of its value. Keys of V0 without effect are listed too, so that a V0
//! user's file gives one warning about them instead of an error.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Type of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Not negative.
    Integer,
    /// Not negative.
    Number,
    Flag,
    /// A text such as `512m`.
    Size,
    /// A text such as `/a:/b,/c:/d:ro`.
    Volumes,
    /// `http://` or `https://`.
    Url,
    /// Name of a [`super::Runtime`].
    Runtime,
    /// Name of a [`super::UnknownHostPolicy`].
    UnknownHosts,
    /// MCP servers.
    Servers,
    /// Name of a confirmation policy.
    Confirmation,
    /// Name of a model router.
    Router,
    /// A list of strings.
    List,
    Table,
    /// A list of tables.
    Tables,
    /// Any value, for a key without effect.
    Any,
}

impl Kind {
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Integer => "a whole number, 0 or more",
            Self::Number => "a number, 0 or more",
            Self::Flag => "true or false",
            Self::Size => "a size such as 512m or 4g",
            Self::Volumes => "HOST:CONTAINER[:ro], with commas between them",
            Self::Url => "an address such as https://host:3000",
            Self::Confirmation => "never, low, medium, high or always",
            Self::Router => "noop_router or multimodal_router",
            Self::Runtime => "auto, docker, local, ssh or remote",
            Self::UnknownHosts => "refuse, accept-new or ask",
            Self::Servers => "a list of servers",
            Self::List => "a list of strings",
            Self::Table => "a table",
            Self::Tables => "a list of tables",
            Self::Any => "a value",
        }
    }
}

/// One key of one section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    /// Whether this version reads it.
    pub has_effect: bool,
}

/// Values that a file without the user's trust may set. A key without a rule needs that trust.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum UntrustedRule {
    /// Any value: none of them grants anything.
    Any,
    /// The switch of a harmless tool. The file cannot turn it on where the user turned it off.
    StaysOff,
    /// Only this value, which is the more restrictive one.
    Only(bool),
    /// Only this text, which is the most restrictive one.
    OnlyText(&'static str),
    /// A number that does not exceed the user's own. Holds the default of the user's own.
    Lowers(f64),
    /// A built-in agent without tools that the user turned off, if the user's own configuration names no agent.
    BuiltInAgent,
    /// A file in the same folder, or a V0 prompt name, if the user's own configuration names no prompt.
    FileInFolder,
}

/// The rule of a key for files that are not trusted. `None` if its value needs trust.
pub(super) fn untrusted_rule(section: &str, name: &str) -> Option<UntrustedRule> {
    let found = UNTRUSTED
        .iter()
        .find(|(rule_section, names, _)| *rule_section == section && names.split(' ').any(|one| one == name));
    found.map(|(_, _, rule)| *rule)
}

/// Sections with named groups such as `[llm.fast]`, which inherit from the section.
pub(super) const GROUPED: [&str; 2] = ["llm", "agent"];

/// The key of this name. `None` if it is unknown.
pub(super) fn find(section: &str, name: &str) -> Option<Key> {
    static BY_NAME: LazyLock<BTreeMap<(&str, &str), Key>> =
        LazyLock::new(|| all().map(|key| ((key.section, key.name), key)).collect());
    BY_NAME.get(&(section, name)).copied()
}

/// Replacement for a key that will never have an effect. `None` if there is none.
pub(super) fn replacement_hint(section: &str, name: &str) -> Option<&'static str> {
    match (section, name) {
        ("llm", "aws_access_key_id" | "aws_secret_access_key" | "aws_region_name") => {
            Some("for Bedrock give the base_url of a LiteLLM proxy")
        }
        ("llm", "modify_params") => Some("requests are always made as the provider wants them"),
        ("llm", "custom_tokenizer") => Some("tokens are estimated by what the provider counted"),
        ("core", "run_as_openhands") | ("sandbox", "user_id") => {
            Some("commands run as the image's user, or as the owner of the workspace")
        }
        ("core", "workspace_mount_path_in_sandbox") => Some("a container has the workspace at /workspace"),
        ("core", "workspace_mount_rewrite") => Some("workspace_mount_path is the path as the engine sees it"),
        ("sandbox", "runtime_extra_deps" | "runtime_extra_build_args" | "force_rebuild_runtime") => {
            Some("no image is built: name one that has them, or install them in .glovebox/setup.sh")
        }
        ("sandbox", "docker_runtime_kwargs") => {
            Some("there are memory_limit, cpus, pids_limit, disk_limit, network, platform and enable_gpu")
        }
        ("sandbox", "initialize_plugins") => Some("a plugin starts at its first use"),
        _ => None,
    }
}

/// Keys that V0 renamed: section, old name, current name. An old name only sets a key that its current name does not set.
const ALIASES: [(&str, &str, &str); 3] = [
    ("agent", "codeact_enable_jupyter", "enable_jupyter"),
    ("agent", "codeact_enable_browsing", "enable_browsing"),
    ("agent", "codeact_enable_llm_editor", "enable_llm_editor"),
];

/// The current name of a renamed key. `None` if the name is the current one.
pub(super) fn current_name(section: &str, name: &str) -> Option<&'static str> {
    ALIASES.iter().find(|(of, old, _)| (*of, *old) == (section, name)).map(|(.., current)| *current)
}

/// The key of `section` with the most similar name. `None` if no name is similar.
pub(super) fn nearest(section: &str, name: &str) -> Option<&'static str> {
    let names = all().filter(|key| key.section == section).map(|key| key.name);
    most_similar(names, name)
}

/// The section with the most similar name. `None` if no name is similar.
pub(super) fn nearest_section(name: &str) -> Option<&'static str> {
    most_similar(all().map(|key| key.section), name)
}

/// Whether there is a section of that name.
pub(super) fn is_section(name: &str) -> bool {
    all().any(|key| key.section == name)
}

/// The most similar name, within one edit per four characters.
fn most_similar(names: impl Iterator<Item = &'static str>, name: &str) -> Option<&'static str> {
    let max_distance = (name.len() / 4).max(1);
    names
        .filter(|known| known.len().abs_diff(name.len()) <= max_distance)
        .map(|known| (strsim::osa_distance(known, name), known))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// All keys.
pub(super) fn all() -> impl Iterator<Item = Key> {
    let effective =
        EFFECTIVE.iter().map(|(section, name, kind)| Key { section, name, kind: *kind, has_effect: true });
    let known = WITHOUT_EFFECT.iter().flat_map(|(section, names)| {
        names.split_whitespace().map(|name| Key { section, name, kind: Kind::Any, has_effect: false })
    });
    effective.chain(known)
}

/// Allow list for files without the user's trust: section, names, rule. Models, API keys, addresses, programs, paths, mounts
/// and isolation are not on it. A new key needs trust until it is added here.
pub(super) const UNTRUSTED: &[(&str, &str, UntrustedRule)] = &[
    ("core", "default_agent", UntrustedRule::BuiltInAgent),
    ("core", "max_iterations", UntrustedRule::Lowers(500.0)),
    ("core", "max_budget_per_task", UntrustedRule::Lowers(f64::INFINITY)),
    ("core", "enable_browser", UntrustedRule::Only(false)),
    ("core", "enable_default_condenser", UntrustedRule::Any),
    (
        "condenser",
        "type attention_window keep_first max_events max_size max_event_length",
        UntrustedRule::Any,
    ),
    (
        "agent",
        "enable_think enable_finish enable_plan_mode enable_condensation_request",
        UntrustedRule::StaysOff,
    ),
    ("agent", "description enable_history_truncation", UntrustedRule::Any),
    (
        "agent",
        "enable_cmd enable_jupyter enable_editor enable_browsing enable_llm_editor enable_prompt_extensions enable_mcp",
        UntrustedRule::Only(false),
    ),
    ("agent", "enable_stuck_detection", UntrustedRule::Only(true)),
    ("agent", "system_prompt_filename", UntrustedRule::FileInFolder),
    ("sandbox", "use_host_network enable_gpu unsafe_local keep_runtime_alive", UntrustedRule::Only(false)),
    ("sandbox", "network", UntrustedRule::OnlyText("none")),
    ("security", "confirmation_mode", UntrustedRule::Only(true)),
    ("security", "confirmation_policy", UntrustedRule::OnlyText("always")),
];

/// Keys that this version reads.
const EFFECTIVE: &[(&str, &str, Kind)] = &[
    ("core", "default_agent", Kind::Text),
    ("core", "runtime", Kind::Runtime),
    ("core", "file_store_path", Kind::Text),
    ("core", "sync_events", Kind::Flag),
    ("core", "enable_browser", Kind::Flag),
    ("core", "save_screenshots_in_trajectory", Kind::Flag),
    ("core", "max_iterations", Kind::Integer),
    ("core", "max_budget_per_task", Kind::Number),
    ("core", "workspace_base", Kind::Text),
    ("core", "workspace_mount_path", Kind::Text),
    ("core", "search_api_key", Kind::Text),
    ("core", "save_trajectory_path", Kind::Text),
    ("core", "init_git_in_empty_workspace", Kind::Flag),
    ("core", "enable_default_condenser", Kind::Flag),
    ("core", "git_user_name", Kind::Text),
    ("core", "git_user_email", Kind::Text),
    ("core", "title_llm_config", Kind::Text),
    ("core", "replay_trajectory_path", Kind::Text),
    ("security", "confirmation_mode", Kind::Flag),
    ("llm", "model", Kind::Text),
    ("llm", "api_key", Kind::Text),
    ("llm", "custom_llm_provider", Kind::Text),
    ("llm", "base_url", Kind::Text),
    ("llm", "api_version", Kind::Text),
    ("llm", "num_retries", Kind::Integer),
    ("llm", "retry_multiplier", Kind::Number),
    ("llm", "retry_min_wait", Kind::Number),
    ("llm", "retry_max_wait", Kind::Number),
    ("llm", "timeout", Kind::Number),
    ("llm", "temperature", Kind::Number),
    ("llm", "top_p", Kind::Number),
    ("llm", "top_k", Kind::Number),
    ("llm", "max_input_tokens", Kind::Integer),
    ("llm", "max_output_tokens", Kind::Integer),
    ("llm", "native_tool_calling", Kind::Flag),
    ("llm", "disable_stop_word", Kind::Flag),
    ("llm", "drop_params", Kind::Flag),
    ("llm", "disable_vision", Kind::Flag),
    ("llm", "caching_prompt", Kind::Flag),
    ("llm", "input_cost_per_token", Kind::Number),
    ("llm", "output_cost_per_token", Kind::Number),
    ("llm", "completion_kwargs", Kind::Table),
    ("llm", "reasoning_effort", Kind::Text),
    ("llm", "seed", Kind::Integer),
    ("llm", "max_message_chars", Kind::Integer),
    ("llm", "ollama_base_url", Kind::Url),
    ("llm", "log_completions", Kind::Flag),
    ("llm", "log_completions_folder", Kind::Text),
    ("llm", "safety_settings", Kind::Tables),
    ("llm", "for_routing", Kind::Flag),
    ("model_routing", "router_name", Kind::Router),
    ("agent", "enable_history_truncation", Kind::Flag),
    ("agent", "enable_stuck_detection", Kind::Flag),
    ("condenser", "type", Kind::Text),
    ("condenser", "attention_window", Kind::Integer),
    ("condenser", "keep_first", Kind::Integer),
    ("condenser", "max_events", Kind::Integer),
    ("condenser", "max_size", Kind::Integer),
    ("condenser", "llm_config", Kind::Text),
    ("condenser", "max_event_length", Kind::Integer),
    ("condenser", "condensers", Kind::Tables),
    ("agent", "llm_config", Kind::Text),
    ("agent", "model_routing", Kind::Table),
    ("agent", "condenser", Kind::Table),
    ("agent", "system_prompt_filename", Kind::Text),
    ("agent", "enable_cmd", Kind::Flag),
    ("agent", "enable_jupyter", Kind::Flag),
    ("agent", "enable_editor", Kind::Flag),
    ("agent", "enable_browsing", Kind::Flag),
    ("agent", "enable_llm_editor", Kind::Flag),
    ("agent", "codeact_enable_jupyter", Kind::Flag),
    ("agent", "codeact_enable_browsing", Kind::Flag),
    ("agent", "codeact_enable_llm_editor", Kind::Flag),
    ("agent", "enable_think", Kind::Flag),
    ("agent", "enable_finish", Kind::Flag),
    ("agent", "enable_plan_mode", Kind::Flag),
    ("agent", "enable_condensation_request", Kind::Flag),
    ("agent", "enable_prompt_extensions", Kind::Flag),
    ("agent", "disabled_microagents", Kind::List),
    ("agent", "description", Kind::Text),
    ("agent", "delegates", Kind::List),
    ("sandbox", "base_container_image", Kind::Text),
    ("sandbox", "runtime_container_image", Kind::Text),
    ("sandbox", "timeout", Kind::Number),
    ("sandbox", "volumes", Kind::Volumes),
    ("sandbox", "use_host_network", Kind::Flag),
    ("sandbox", "network", Kind::Text),
    ("sandbox", "additional_networks", Kind::List),
    ("sandbox", "platform", Kind::Text),
    ("sandbox", "enable_gpu", Kind::Flag),
    ("sandbox", "cuda_visible_devices", Kind::Text),
    ("sandbox", "memory_limit", Kind::Size),
    ("sandbox", "disk_limit", Kind::Size),
    ("sandbox", "cpus", Kind::Number),
    ("sandbox", "pids_limit", Kind::Integer),
    ("sandbox", "unsafe_local", Kind::Flag),
    ("sandbox", "warm_pool", Kind::Integer),
    ("sandbox", "ssh_host", Kind::Text),
    ("sandbox", "ssh_unknown_hosts", Kind::UnknownHosts),
    ("sandbox", "remote_server_url", Kind::Url),
    ("sandbox", "remote_server_key", Kind::Text),
    ("sandbox", "remote_ca_file", Kind::Text),
    ("sandbox", "remote_runtime_api_url", Kind::Url),
    ("sandbox", "remote_runtime_init_timeout", Kind::Number),
    ("sandbox", "remote_runtime_api_timeout", Kind::Number),
    ("sandbox", "remote_runtime_enable_retries", Kind::Flag),
    ("sandbox", "remote_runtime_class", Kind::Text),
    ("sandbox", "remote_runtime_resource_factor", Kind::Number),
    ("sandbox", "api_key", Kind::Text),
    ("sandbox", "keep_runtime_alive", Kind::Flag),
    ("sandbox", "pause_closed_runtimes", Kind::Flag),
    ("sandbox", "close_delay", Kind::Number),
    ("sandbox", "selected_repo", Kind::Text),
    ("sandbox", "runtime_startup_env_vars", Kind::Table),
    ("agent", "enable_mcp", Kind::Flag),
    ("agent", "enable_som_visual_browsing", Kind::Flag),
    ("mcp", "stdio_servers", Kind::Servers),
    ("mcp", "shttp_servers", Kind::Servers),
    ("mcp", "sse_servers", Kind::Servers),
    ("security", "confirmation_policy", Kind::Confirmation),
    ("security", "security_analyzer", Kind::Text),
    ("security", "security_analyzer_url", Kind::Text),
    ("security", "security_analyzer_key", Kind::Text),
    ("security", "security_analyzer_timeout", Kind::Number),
];

/// V0's keys without effect, by section.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    (
        "core",
        "workspace_mount_path_in_sandbox workspace_mount_rewrite run_as_openhands \
         jwt_secret debug file_uploads_max_file_size_mb \
         file_uploads_restrict_file_types file_uploads_allowed_extensions conversation_max_age_seconds \
         max_concurrent_conversations file_store cache_dir \
         file_store_web_hook_url file_store_web_hook_headers file_store_web_hook_batch \
         cli_multiline_input client_wait_timeout enable_cli_session \
         disable_color mcp_host modal_api_token_id modal_api_token_secret e2b_api_key volumes",
    ),
    (
        "llm",
        "aws_access_key_id aws_secret_access_key aws_region_name modify_params custom_tokenizer correct_num \
         openrouter_site_url openrouter_app_name embedding_base_url embedding_deployment_name embedding_model",
    ),
    (
        "agent",
        "classpath cli_mode runtime memory_enabled memory_max_threads micro_agent_name \
         use_microagents",
    ),
    (
        "sandbox",
        "rm_all_containers user_id enable_auto_lint runtime_binding_address initialize_plugins runtime_extra_deps \
         docker_runtime_kwargs trusted_dirs vscode_port \
         force_rebuild_runtime gpu_base_container_image local_runtime_url browsergym_eval_env runtime_extra_build_args",
    ),
    ("security", "enable_security_analyzer"),
    (
        "kubernetes",
        "namespace ingress_domain pvc_storage_size pvc_storage_class resource_cpu_request resource_memory_request \
         resource_memory_limit image_pull_secret ingress_tls_secret node_selector_key node_selector_val \
         tolerations_yaml privileged",
    ),
    ("cli", "vi_mode"),
];
