//! Every key that V0 knows, with its kind. Those that change nothing yet are known all the same: a V0 user's file is
//! read without complaint about its names, and told what has no effect.

/// What a value must be.
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
    /// What to do about a host whose key is not known.
    UnknownHosts,
    /// MCP servers.
    Servers,
    /// Which actions are asked about.
    Confirmation,
    /// Which of several models is asked.
    Router,
    /// Of texts.
    List,
    Table,
    /// A list of them.
    Tables,
    /// Whatever it is, it has no effect yet.
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
    /// Whether it changes anything in this version.
    pub has_effect: bool,
}

/// Sections that may hold named groups, which inherit from the section itself.
pub(super) const GROUPED: [&str; 2] = ["llm", "agent"];

/// The key of that name, if there is one.
pub(super) fn find(section: &str, name: &str) -> Option<Key> {
    all().find(|key| key.section == section && key.name == name)
}

/// What a user of a key needs to know that will never have an effect.
pub(super) fn instead(section: &str, name: &str) -> Option<&'static str> {
    match (section, name) {
        ("llm", "aws_access_key_id" | "aws_secret_access_key" | "aws_region_name") => {
            Some("for Bedrock give the base_url of a LiteLLM proxy")
        }
        ("llm", "modify_params") => Some("requests are always made as the provider wants them"),
        ("llm", "custom_tokenizer") => Some("tokens are estimated by what the provider counted"),
        _ => None,
    }
}

/// The name that a key has now, if it is known by an older one.
pub(super) fn renamed(section: &str, name: &str) -> Option<&'static str> {
    match (section, name) {
        ("agent", "codeact_enable_jupyter") => Some("enable_jupyter"),
        ("agent", "codeact_enable_browsing") => Some("enable_browsing"),
        ("agent", "codeact_enable_llm_editor") => Some("enable_llm_editor"),
        _ => None,
    }
}

/// The known name in `section` that is nearest to `name`, if one is near.
pub(super) fn nearest(section: &str, name: &str) -> Option<&'static str> {
    let names = all().filter(|key| key.section == section).map(|key| key.name);
    nearest_of(names, name)
}

/// The known section that is nearest to `name`, if one is near.
pub(super) fn nearest_section(name: &str) -> Option<&'static str> {
    nearest_of(all().map(|key| key.section), name)
}

/// Whether there is a section of that name.
pub(super) fn is_section(name: &str) -> bool {
    all().any(|key| key.section == name)
}

fn nearest_of(names: impl Iterator<Item = &'static str>, name: &str) -> Option<&'static str> {
    names
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

/// All keys.
pub(super) fn all() -> impl Iterator<Item = Key> {
    let effective =
        EFFECTIVE.iter().map(|(section, name, kind)| Key { section, name, kind: *kind, has_effect: true });
    let known = KNOWN.iter().flat_map(|(section, names)| {
        names.split_whitespace().map(|name| Key { section, name, kind: Kind::Any, has_effect: false })
    });
    effective.chain(known)
}

const EFFECTIVE: &[(&str, &str, Kind)] = &[
    ("core", "default_agent", Kind::Text),
    ("core", "runtime", Kind::Text),
    ("core", "file_store_path", Kind::Text),
    ("core", "sync_events", Kind::Flag),
    ("core", "enable_browser", Kind::Flag),
    ("core", "save_screenshots_in_trajectory", Kind::Flag),
    ("core", "max_iterations", Kind::Integer),
    ("core", "max_budget_per_task", Kind::Number),
    ("core", "workspace_base", Kind::Text),
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
    ("llm", "top_k", Kind::Integer),
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

const KNOWN: &[(&str, &str)] = &[
    (
        "core",
        "search_api_key \
         workspace_mount_path_in_sandbox workspace_mount_path workspace_mount_rewrite run_as_openhands \
         jwt_secret debug file_uploads_max_file_size_mb \
         file_uploads_restrict_file_types file_uploads_allowed_extensions conversation_max_age_seconds \
         max_concurrent_conversations file_store cache_dir \
         disable_color mcp_host modal_api_token_id modal_api_token_secret e2b_api_key volumes",
    ),
    ("llm", "aws_access_key_id aws_secret_access_key aws_region_name modify_params custom_tokenizer"),
    ("agent", "classpath"),
    (
        "sandbox",
        "rm_all_containers user_id enable_auto_lint runtime_binding_address initialize_plugins runtime_extra_deps \
         docker_runtime_kwargs trusted_dirs vscode_port \
         force_rebuild_runtime local_runtime_url browsergym_eval_env runtime_extra_build_args",
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
