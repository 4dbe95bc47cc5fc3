use super::*;
use crate::config::Overrides;
use crate::workspace;

fn configs(file: &str) -> UserConfigs {
    configs_with(file, |_| None)
}

fn configs_with(file: &str, environment: fn(&str) -> Option<&'static str>) -> UserConfigs {
    let named = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(
        named.path(),
        format!("{file}\n[llm]\nmodel = 'openai/a'\napi_key = 'key-operator'\n"),
    )
    .unwrap();
    let load = |agent: Option<&str>| {
        let overrides = Overrides {
            config_file: Some(named.path().to_owned()),
            agent: agent.map(str::to_owned),
            ..Default::default()
        };
        let variable = |name: &str| {
            if name == "HOME" {
                Some("/nowhere")
            } else {
                environment(name)
            }
        };
        Config::load(&overrides, |name| variable(name).map(str::to_owned)).unwrap()
    };
    UserConfigs::new(
        load(None),
        vec![load(Some("ReadOnlyAgent")), load(Some("Missing"))],
        AddressPolicy::default(),
    )
}

fn profile(settings: UserSettings) -> UserProfile {
    UserProfile {
        settings: Some(settings),
        ..UserProfile::default()
    }
}

fn compose(file: &str, settings: UserSettings) -> Config {
    configs(file)
        .for_new(None, &profile(settings), None, None)
        .unwrap()
}

#[test]
fn limits_of_the_user_only_lower_those_of_the_operator() {
    let settings = |iterations, budget| UserSettings {
        max_iterations: Some(iterations),
        max_budget_per_task: Some(budget),
        ..UserSettings::default()
    };
    let limits = |file, settings| {
        let config = compose(file, settings);
        (config.max_iterations, config.max_budget)
    };
    let operators = "[core]\nmax_iterations = 50\nmax_budget_per_task = 2.0";
    assert_eq!(limits(operators, settings(10, 1.0)), (10, Some(1.0)));
    assert_eq!(limits(operators, settings(100, 3.0)), (50, Some(2.0)));
    assert_eq!(limits(operators, settings(100, 0.0)), (50, Some(2.0)));
    assert_eq!(limits("", settings(100, 3.0)), (100, Some(3.0)));
}

#[test]
fn confirmation_of_the_operator_is_never_reduced() {
    let policy = |file, mode, analyzer: Option<&str>| {
        let settings = UserSettings {
            confirmation_mode: mode,
            security_analyzer: analyzer.map(str::to_owned),
            ..UserSettings::default()
        };
        let config = compose(file, settings);
        (
            confirmation_policy(&config.security),
            config.security.analyzer.is_some(),
        )
    };
    let high = ConfirmationPolicy::Risky {
        from: protocol::risk::SecurityRisk::High,
    };
    let (always, never) = (ConfirmationPolicy::Always, ConfirmationPolicy::Never);
    assert_eq!(policy("", None, None), (never, false));
    assert_eq!(policy("", Some(true), None), (always, false));
    assert_eq!(policy("", Some(true), Some("llm")), (high, true));
    assert_eq!(policy("", Some(true), Some("/etc/passwd")), (always, false));
    let operators = "[security]\nconfirmation_mode = true";
    assert_eq!(policy(operators, Some(false), Some("llm")), (always, false));
    assert_eq!(
        policy(
            "[security]\nconfirmation_policy = 'high'",
            Some(false),
            Some("llm")
        ),
        (high, false)
    );
    assert_eq!(
        policy(
            "[security]\nconfirmation_policy = 'never'",
            Some(true),
            None
        ),
        (always, false)
    );
}

#[test]
fn agent_is_one_of_those_that_can_be_used() {
    let agent = |name: &str| UserSettings {
        agent: Some(name.to_owned()),
        ..UserSettings::default()
    };
    assert_eq!(configs("").agents(), ["CodeActAgent", "ReadOnlyAgent"]);
    for (name, expected) in [
        ("ReadOnlyAgent", "ReadOnlyAgent"),
        ("CodeActAgent", "CodeActAgent"),
        ("", "CodeActAgent"),
    ] {
        assert_eq!(compose("", agent(name)).agent.stored_name, expected);
        configs("").check(&agent(name)).unwrap();
    }
    assert_eq!(
        configs("").check(&agent("/etc/passwd")).unwrap_err().field,
        "agent"
    );
    assert!(
        configs("")
            .for_new(None, &profile(agent("Missing")), None, None)
            .is_err()
    );
    // The agent of a request precedes that of the settings.
    let of_request =
        |name| configs("").for_new(None, &profile(agent("CodeActAgent")), Some(name), None);
    assert_eq!(
        of_request("ReadOnlyAgent").unwrap().agent.stored_name,
        "ReadOnlyAgent"
    );
    assert!(of_request("Missing").is_err());
}

#[test]
fn token_is_for_its_host_and_a_secret_of_commands() {
    let token = |host: Option<&str>| GitToken {
        token: "token-of-user".into(),
        user_id: None,
        host: host.map(str::to_owned),
    };
    for (provider, host, expected, credentials, variable) in [
        (
            GitProvider::GitHub,
            None,
            "github.com",
            "token-of-user",
            "GITHUB_TOKEN",
        ),
        (
            GitProvider::GitHub,
            Some("https://github.com/"),
            "github.com",
            "token-of-user",
            "GITHUB_TOKEN",
        ),
        (
            GitProvider::GitLab,
            Some("git.example:8443"),
            "git.example:8443",
            "oauth2:token-of-user",
            "GITLAB_TOKEN",
        ),
        (
            GitProvider::AzureDevOps,
            Some("dev.azure.com/acme"),
            "dev.azure.com",
            "token-of-user",
            "AZURE_DEVOPS_TOKEN",
        ),
    ] {
        let git_tokens = BTreeMap::from([(provider, token(host))]);
        let config = configs("")
            .for_new(
                None,
                &UserProfile {
                    git_tokens,
                    ..UserProfile::default()
                },
                None,
                None,
            )
            .unwrap();
        assert_eq!(
            config.workspace.git_tokens[expected].expose_secret(),
            credentials
        );
        assert_eq!(
            config.secrets[variable].value.expose_secret(),
            "token-of-user"
        );
    }
}

#[test]
fn users_model_is_shared_with_agents_of_the_same_model() {
    let settings = UserSettings {
        llm_model: Some("openai/b".to_owned()),
        llm_api_key: Some("key-user".into()),
        ..UserSettings::default()
    };
    let file = "[agent]\ndelegates = ['ReadOnlyAgent', 'BrowsingAgent']\n[agent.BrowsingAgent]\nllm_config = 'own'\n\
                [llm.own]\nmodel = 'openai/own'";
    let config = compose(file, settings);
    let model = |name: &str| config.team[name].llm.model.clone().unwrap();
    assert_eq!(
        (model("ReadOnlyAgent"), model("BrowsingAgent")),
        ("openai/b".into(), "openai/own".into())
    );
    assert!(config.is_routed_like(&config.team["ReadOnlyAgent"]));
    assert!(!config.is_routed_like(&config.team["BrowsingAgent"]));
}

#[test]
fn operators_model_is_used_when_the_users_lacks_a_key() {
    let model = |name: &str| UserSettings {
        llm_model: Some(name.to_owned()),
        ..UserSettings::default()
    };
    assert_eq!(
        compose("", model("anthropic/c")).llm.model.as_deref(),
        Some("openai/a")
    );
    assert_eq!(
        compose("", model("openai/b")).llm.model.as_deref(),
        Some("openai/b")
    );
    let stored = configs("")
        .for_stored(
            None,
            &profile(model("anthropic/c")),
            "CodeActAgent",
            ("openai/s", None),
        )
        .unwrap();
    assert_eq!(stored.llm.model.as_deref(), Some("openai/s"));
}

/// The operator has changed the model of the configuration, and has a budget.
#[test]
fn stored_model_of_the_configuration_follows_it() {
    let owner = "ada".parse().unwrap();
    let resumed = |file: &str, settings, source| {
        let stored = ("openai/old", source);
        configs(file)
            .for_stored(Some(&owner), &profile(settings), "CodeActAgent", stored)
            .map(|config| config.llm)
    };
    let budget = "[core]\nmax_budget_per_task = 1.0\n";
    let (configuration, user) = (Some(ModelSource::Configuration), Some(ModelSource::User));
    let none = UserSettings::default;
    let followed = resumed(budget, none(), configuration).unwrap();
    assert_eq!(followed.model.as_deref(), Some("openai/a"));
    let own = UserSettings {
        llm_model: Some("openai/gpt-4o".to_owned()),
        ..none()
    };
    let chosen = resumed(budget, own, configuration).unwrap();
    assert_eq!(chosen.model.as_deref(), Some("openai/gpt-4o"));
    // A model that the user chose is kept, and has the price of any section that names it.
    for source in [user, None] {
        let error = resumed(budget, none(), source).unwrap_err().to_string();
        for step in ["openai/old", "in your settings", "[llm.NAME]"] {
            assert!(error.contains(step), "{error}");
        }
        let section = "[llm.old]\nmodel = 'openai/old'\ninput_cost_per_token = 1e-6\noutput_cost_per_token = 2e-6\n";
        let kept = resumed(&format!("{budget}{section}"), none(), source).unwrap();
        assert_eq!(kept.model.as_deref(), Some("openai/old"));
        assert_eq!(kept.provider.input_cost_per_token, Some(1e-6));
        assert_eq!(kept.provider.output_cost_per_token, Some(2e-6));
    }
}

#[test]
fn model_of_a_conversation_replaces_the_users() {
    let own = UserSettings {
        llm_model: Some("openai/own".to_owned()),
        llm_api_key: Some("key-user".into()),
        ..UserSettings::default()
    };
    let resumed = |model, source| {
        configs("")
            .for_stored(None, &profile(own.clone()), "CodeActAgent", (model, source))
            .map(|config| config.llm.model.unwrap())
    };
    let (conversation, user) = (Some(ModelSource::Conversation), Some(ModelSource::User));
    assert_eq!(resumed("openai/b", conversation).unwrap(), "openai/b");
    assert_eq!(resumed("openai/b", user).unwrap(), "openai/own");
    // A script of the command line.
    let script = "scripted:/a.json";
    assert_eq!(resumed(script, conversation).unwrap(), "openai/own");
    for refused in [script, "anthropic/c"] {
        let none = UserProfile::default();
        let chosen = configs("").for_new(None, &none, None, Some(refused));
        assert!(chosen.is_err(), "{refused}");
    }
}

#[test]
fn source_of_a_model_is_recorded() {
    let source = |model: Option<&str>| {
        let settings = UserSettings {
            llm_model: model.map(str::to_owned),
            ..UserSettings::default()
        };
        configs("").model_source(&compose("", settings))
    };
    assert_eq!(source(None), ModelSource::Configuration);
    assert_eq!(source(Some("openai/b")), ModelSource::User);
    // Without a key of the user, the configuration's model is used instead.
    assert_eq!(source(Some("anthropic/c")), ModelSource::Configuration);
}

/// Everything that is private to the operator, in the main agent and in one that tasks are
/// delegated to.
const PRIVATE: &str = "[core]\nshare_with_users = [SHARED]\ngit_user_name = 'canary-name'\ngit_user_email = 'canary-mail'\n\
    search_api_key = 'tvly-canary'\n[agent]\ndelegates = ['ReadOnlyAgent']\n\
    [secrets]\nDEPLOY_KEY = 'canary-secret'\n\
    [sandbox]\nselected_repo = 'https://canary-user:canary-password@git.example/a/b'\n\
    runtime_startup_env_vars = { START = 'canary-variable' }\n\
    [mcp]\nstdio_servers = [{ name = 'tickets', command = 'tickets', env = { KEY = 'canary-env' } }]\n";

/// Returns what reaches the conversations of a user, by name.
fn reaching(shared: &str, owner: Option<&UserId>) -> Vec<String> {
    let environment = |name: &str| (name == "GITHUB_TOKEN").then_some("canary-token");
    let configs = configs_with(&PRIVATE.replace("SHARED", shared), environment);
    let config = configs
        .for_new(owner, &UserProfile::default(), None, None)
        .unwrap();
    let url = "https://git.example/a/b".to_owned();
    let repository = protocol::record::WorkspaceSetup::Repository { url, branch: None };
    let of_agent = |config: &Config| {
        let variables = workspace::environment(&config.workspace, Some(&repository)).into_keys();
        let tokens = config.workspace.git_tokens.keys().cloned();
        let servers = config.mcp.servers.iter().map(|server| server.name.clone());
        let names: Vec<String> = variables
            .chain(tokens)
            .chain(servers)
            .chain(config.secrets.keys().cloned())
            .collect();
        names
    };
    let names: BTreeSet<_> = config.agents().flat_map(of_agent).collect();
    names.into_iter().collect()
}

#[test]
fn nothing_private_to_the_operator_reaches_users() {
    let ada: UserId = "ada".parse().unwrap();
    assert_eq!(reaching("", Some(&ada)), Vec::<String>::new());
    assert_eq!(
        reaching("'DEPLOY_KEY', 'START'", Some(&ada)),
        ["DEPLOY_KEY", "START"]
    );
    assert_eq!(
        reaching("'tickets', 'GITHUB_TOKEN'", Some(&ada)),
        ["github.com", "tickets"]
    );
    let git = ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"];
    assert_eq!(reaching("'selected_repo'", Some(&ada)), git);
    let author = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"];
    assert_eq!(reaching("'git_user_name'", Some(&ada)), author);
    let own = reaching("", None);
    for name in
        git.iter()
            .chain(&author)
            .chain(&["DEPLOY_KEY", "START", "github.com", "tavily", "tickets"])
    {
        assert!(own.iter().any(|own| own == name), "{name}: {own:?}");
    }
}

#[test]
fn microagents_of_the_operator_reach_users_if_they_are_shared() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("microagents");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("own.md"), "canary-text").unwrap();
    let ada: UserId = "ada".parse().unwrap();
    for (shared, owner, reaches) in [
        ("", Some(&ada), false),
        ("'microagents'", Some(&ada), true),
        ("", None, true),
    ] {
        let file = format!(
            "[core]\nfile_store_path = '{}'\nshare_with_users = [{shared}]\n",
            home.path().display()
        );
        let configs = configs_with(&file, |_| None);
        let config = configs
            .for_new(owner, &UserProfile::default(), None, None)
            .unwrap();
        for config in config.agents() {
            let memory = format!("{:?}", crate::compose::memory(config));
            assert_eq!(
                memory.contains("canary-text"),
                reaches,
                "{shared}: {owner:?}"
            );
        }
        let warned = sharing_warnings(configs.operators()).concat();
        assert_eq!(warned.contains("do not get microagents"), shared.is_empty());
    }
}

#[test]
fn operator_is_warned_of_names_that_are_not_shared() {
    let environment = |name: &str| (name == "GITHUB_TOKEN").then_some("canary-token");
    let configs = configs_with(
        &PRIVATE.replace("SHARED", "'START', 'STRAT', 'selected_repo'"),
        environment,
    );
    assert_eq!(
        sharing_warnings(configs.operators()),
        [
            "users do not get DEPLOY_KEY, GITHUB_TOKEN, git_user_email, git_user_name, tavily, tickets: \
             share_with_users in [core] lists what they share",
            "share_with_users lists what is not configured: STRAT",
        ]
    );
    assert_eq!(
        sharing_warnings(configs_with("", |_| None).operators()),
        [""; 0]
    );
}

/// Keys of what a server offers to its users: agents, models, limits, sandboxes.
const OFFERED: &[(&str, &str)] = &[
    (
        "core",
        "default_agent runtime enable_browser max_iterations max_budget_per_task max_concurrent_conversations \
         enable_default_condenser init_git_in_empty_workspace title_llm_config workspace_base workspace_mount_path",
    ),
    (
        "llm",
        "model custom_llm_provider base_url api_version reasoning_effort num_retries max_input_tokens max_output_tokens \
         seed max_message_chars retry_multiplier retry_min_wait retry_max_wait timeout temperature top_p top_k \
         input_cost_per_token output_cost_per_token native_tool_calling disable_stop_word drop_params disable_vision \
         caching_prompt for_routing completion_kwargs ollama_base_url safety_settings",
    ),
    ("model_routing", "router_name"),
    (
        "agent",
        "enable_history_truncation enable_stuck_detection enable_cmd enable_jupyter enable_editor enable_browsing \
         enable_llm_editor codeact_enable_jupyter codeact_enable_browsing codeact_enable_llm_editor enable_think \
         enable_finish enable_plan_mode enable_condensation_request enable_prompt_extensions enable_mcp \
         enable_som_visual_browsing llm_config system_prompt_filename description model_routing condenser \
         disabled_microagents delegates",
    ),
    (
        "condenser",
        "type llm_config attention_window keep_first max_events max_size max_event_length condensers",
    ),
    (
        "security",
        "confirmation_mode confirmation_policy security_analyzer security_analyzer_timeout",
    ),
    (
        "sandbox",
        "base_container_image runtime_container_image network platform cuda_visible_devices ssh_host \
         remote_runtime_class timeout cpus remote_runtime_init_timeout remote_runtime_api_timeout \
         remote_runtime_resource_factor close_delay volumes use_host_network enable_gpu unsafe_local \
         remote_runtime_enable_retries keep_runtime_alive pause_closed_runtimes additional_networks memory_limit \
         disk_limit pids_limit warm_pool ssh_unknown_hosts",
    ),
    ("mcp", "max_listed_tools max_listed_tool_tokens"),
];

/// Keys of what users get only if its name is shared.
const NAMED: &[(&str, &str)] = &[
    ("core", "search_api_key git_user_name git_user_email"),
    ("sandbox", "selected_repo runtime_startup_env_vars"),
    ("mcp", "stdio_servers shttp_servers sse_servers"),
];

/// Keys that stay on the host.
const ON_HOST: &[(&str, &str)] = &[
    (
        "core",
        "file_store_path sync_events save_trajectory_path save_screenshots_in_trajectory replay_trajectory_path \
         share_with_users",
    ),
    ("llm", "api_key log_completions log_completions_folder"),
    ("store", "url blobs lease_duration"),
    ("security", "security_analyzer_url security_analyzer_key"),
    (
        "sandbox",
        "remote_server_url remote_runtime_api_url remote_server_key remote_ca_file api_key",
    ),
];

/// A new key is in one of the lists, so that it cannot reach users by default.
#[test]
fn each_key_is_offered_named_or_stays_on_the_host() {
    let lists = [OFFERED, NAMED, ON_HOST].concat();
    let mut listed: Vec<_> = lists
        .iter()
        .flat_map(|(section, names)| names.split_whitespace().map(move |name| (*section, name)))
        .collect();
    listed.sort_unstable();
    let mut keys: Vec<_> = crate::config::effective_keys().collect();
    keys.sort_unstable();
    let unlisted: Vec<_> = keys.iter().filter(|key| !listed.contains(key)).collect();
    assert_eq!(listed, keys, "not listed: {unlisted:?}");
}
