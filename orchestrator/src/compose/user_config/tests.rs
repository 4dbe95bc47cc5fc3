use super::*;
use crate::config::Overrides;

fn configs(file: &str) -> UserConfigs {
    let named = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(named.path(), format!("{file}\n[llm]\nmodel = 'openai/a'\napi_key = 'key-operator'\n"))
        .unwrap();
    let load = |agent: Option<&str>| {
        let overrides = Overrides {
            config_file: Some(named.path().to_owned()),
            agent: agent.map(str::to_owned),
            ..Default::default()
        };
        Config::load(&overrides, |name| (name == "HOME").then(|| "/nowhere".to_owned())).unwrap()
    };
    UserConfigs::new(
        load(None),
        vec![load(Some("ReadOnlyAgent")), load(Some("Missing"))],
        AddressPolicy::default(),
    )
}

fn profile(settings: UserSettings) -> UserProfile {
    UserProfile { settings: Some(settings), ..UserProfile::default() }
}

fn compose(file: &str, settings: UserSettings) -> Config {
    configs(file).for_new(&profile(settings), None).unwrap()
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
        (confirmation_policy(&config.security), config.security.analyzer.is_some())
    };
    let high = ConfirmationPolicy::Risky { from: protocol::risk::SecurityRisk::High };
    let (always, never) = (ConfirmationPolicy::Always, ConfirmationPolicy::Never);
    assert_eq!(policy("", None, None), (never, false));
    assert_eq!(policy("", Some(true), None), (always, false));
    assert_eq!(policy("", Some(true), Some("llm")), (high, true));
    assert_eq!(policy("", Some(true), Some("/etc/passwd")), (always, false));
    let operators = "[security]\nconfirmation_mode = true";
    assert_eq!(policy(operators, Some(false), Some("llm")), (always, false));
    assert_eq!(policy("[security]\nconfirmation_policy = 'high'", Some(false), Some("llm")), (high, false));
    assert_eq!(policy("[security]\nconfirmation_policy = 'never'", Some(true), None), (always, false));
}

#[test]
fn agent_is_one_of_those_that_can_be_used() {
    let agent = |name: &str| UserSettings { agent: Some(name.to_owned()), ..UserSettings::default() };
    assert_eq!(configs("").agents(), ["CodeActAgent", "ReadOnlyAgent"]);
    for (name, expected) in
        [("ReadOnlyAgent", "ReadOnlyAgent"), ("CodeActAgent", "CodeActAgent"), ("", "CodeActAgent")]
    {
        assert_eq!(compose("", agent(name)).agent.stored_name, expected);
        configs("").check(&agent(name)).unwrap();
    }
    assert_eq!(configs("").check(&agent("/etc/passwd")).unwrap_err().field, "agent");
    assert!(configs("").for_new(&profile(agent("Missing")), None).is_err());
    // The agent of a request precedes that of the settings.
    let of_request = |name| configs("").for_new(&profile(agent("CodeActAgent")), Some(name));
    assert_eq!(of_request("ReadOnlyAgent").unwrap().agent.stored_name, "ReadOnlyAgent");
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
        (GitProvider::GitHub, None, "github.com", "token-of-user", "GITHUB_TOKEN"),
        (GitProvider::GitHub, Some("https://github.com/"), "github.com", "token-of-user", "GITHUB_TOKEN"),
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
        let config =
            configs("").for_new(&UserProfile { git_tokens, ..UserProfile::default() }, None).unwrap();
        assert_eq!(config.workspace.git_tokens[expected].expose_secret(), credentials);
        assert_eq!(config.secrets[variable].value.expose_secret(), "token-of-user");
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
    assert_eq!((model("ReadOnlyAgent"), model("BrowsingAgent")), ("openai/b".into(), "openai/own".into()));
    assert!(config.is_routed_like(&config.team["ReadOnlyAgent"]));
    assert!(!config.is_routed_like(&config.team["BrowsingAgent"]));
}

#[test]
fn operators_model_is_used_when_the_users_lacks_a_key() {
    let model = |name: &str| UserSettings { llm_model: Some(name.to_owned()), ..UserSettings::default() };
    assert_eq!(compose("", model("anthropic/c")).llm.model.as_deref(), Some("openai/a"));
    assert_eq!(compose("", model("openai/b")).llm.model.as_deref(), Some("openai/b"));
    let stored = configs("").for_stored(&profile(model("anthropic/c")), "CodeActAgent", "openai/s").unwrap();
    assert_eq!(stored.llm.model.as_deref(), Some("openai/s"));
}
