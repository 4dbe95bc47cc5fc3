//! The model that a user has chosen, within what the operator allows.
//!
//! The operator's keys are sent to the operator's address only, and with a budget for models that
//! have a price. A user who chooses a model of another provider, or another address, has to bring a
//! key. An address of the user is guarded: it must not lead into the operator's network.

use std::collections::BTreeMap;

use conversations::InvalidSetting;
use git_providers::{AddressPolicy, RefusedAddress};
use protocol::client_api::UserSettings;
use reqwest::Url;

use super::model::is_scripted_name;
use crate::config::{LlmSettings, ModelPrice};

/// A model of OpenAI's wire format, to check an address without a model.
const ANY_MODEL: &str = "model";

/// Name for users of a model whose own name is a path of this machine: a file with responses.
pub(super) const OPERATORS_MODEL: &str = "glovebox/scripted";

/// What the operator allows.
#[derive(Clone, Default)]
pub(super) struct ModelPolicy {
    /// Addresses that users may have requests sent to.
    pub addresses: AddressPolicy,
    /// Names of the configured models.
    pub configured: Vec<String>,
    /// Prices that sections of the configuration set, by model.
    pub prices: BTreeMap<String, ModelPrice>,
    /// Whether calls with the operator's keys count towards a budget of the operator.
    pub has_budget: bool,
}

/// Returns the operator's model with the user's choices. `stored` is the model of a stored
/// conversation, which the user's choice replaces.
pub(super) fn choose(
    operators: &LlmSettings,
    user: &UserSettings,
    stored: Option<&str>,
    policy: &ModelPolicy,
) -> Result<LlmSettings, InvalidSetting> {
    let own_choice = user
        .llm_model
        .as_deref()
        .map(str::trim)
        .filter(|model| !model.is_empty());
    if own_choice.is_some_and(is_scripted_name) {
        return Err(refused_script("llm_model"));
    }
    let mut chosen = operators.clone();
    let own_choice = own_choice.filter(|model| *model != OPERATORS_MODEL);
    let model = own_choice.or(stored).map(str::to_owned);
    chosen.model = model.or_else(|| operators.model.clone());
    let Some(model) = chosen
        .model
        .clone()
        .filter(|model| !is_scripted_name(model))
    else {
        // Not called, but stored for a model to come.
        choose_address(
            &mut chosen.clone(),
            operators,
            ANY_MODEL,
            user,
            &policy.addresses,
        )?;
        return Ok(chosen);
    };
    let is_unchanged = chosen.model == operators.model && user.llm_base_url.is_none();
    if is_unchanged && user.llm_api_key.is_none() {
        return Ok(chosen);
    }
    if chosen.model != operators.model {
        // The price in the section of the operator's model is not the price of this one.
        let price = policy.prices.get(&model);
        chosen.provider.input_cost_per_token = price.map(|price| price.input);
        chosen.provider.output_cost_per_token = price.map(|price| price.output);
    }
    let is_operators = choose_address(&mut chosen, operators, &model, user, &policy.addresses)?;
    match &user.llm_api_key {
        Some(key) => chosen.provider.api_key = Some(key.clone()),
        None if is_operators => check_price(&chosen, &model, policy)?,
        None => {}
    }
    chosen.mark_as_changed(user);
    Ok(chosen)
}

/// The error of a user who chooses a script in this field.
pub(super) fn refused_script(field: &'static str) -> InvalidSetting {
    let problem = format!("a script is the operator's choice: {OPERATORS_MODEL}");
    InvalidSetting::new(field, problem)
}

/// Fails if calls of this model cost the operator an unknown amount, which a budget would not
/// limit.
fn check_price(
    chosen: &LlmSettings,
    model: &str,
    policy: &ModelPolicy,
) -> Result<(), InvalidSetting> {
    let is_limited = !policy.has_budget
        || policy
            .configured
            .iter()
            .any(|configured| configured == model)
        || policy.prices.contains_key(model)
        || llm::is_price_known(&chosen.provider_config(model));
    if is_limited {
        return Ok(());
    }
    let problem = format!(
        "{model} has no known price, which this server's budget needs: choose another model or enter a key of your own in \
         your settings, or ask the operator to set input_cost_per_token and output_cost_per_token in an [llm.NAME] section \
         with this model"
    );
    Err(InvalidSetting::new("llm_model", problem))
}

/// Sets the address that the user has chosen, and removes the operator's keys if it is another
/// server's. Returns whether it is the operator's.
fn choose_address(
    chosen: &mut LlmSettings,
    operators: &LlmSettings,
    model: &str,
    user: &UserSettings,
    addresses: &AddressPolicy,
) -> Result<bool, InvalidSetting> {
    if let Some(base_url) = &user.llm_base_url {
        chosen.set_base_url(base_url.clone());
    }
    let is_operators = is_operators_address(operators, chosen, model);
    if !is_operators {
        chosen.remove_credentials(user.llm_base_url.clone());
        check_address(chosen, model, addresses)?;
        // The address of a known provider needs no guard, which would bypass the proxies of this
        // machine.
        let is_known = chosen.provider_config(model).base_url.is_none();
        chosen.provider.connection_guard = (!is_known).then(|| guard(addresses));
    }
    Ok(is_operators)
}

/// Whether requests to this model go to the server that the operator has configured, and there
/// below the configured path: behind other paths may be other services.
fn is_operators_address(operators: &LlmSettings, chosen: &LlmSettings, model: &str) -> bool {
    let own_model = match operators
        .model
        .as_deref()
        .filter(|model| !is_scripted_name(model))
    {
        Some(own_model) => own_model,
        None if operators.provider.base_url.is_some() => model,
        None => return false,
    };
    let own = llm::request_url(&operators.provider_config(own_model));
    let theirs = llm::request_url(&chosen.provider_config(model));
    let (Ok(own), Ok(theirs)) = (own, theirs) else {
        return false;
    };
    // Of the same model, since the paths below the base differ.
    let is_same =
        llm::request_url(&operators.provider_config(model)).is_ok_and(|url| url == theirs);
    own.origin() == theirs.origin() && (is_same || is_below_base(operators, &theirs))
}

/// Whether a URL is below the configured one, also for servers that decode a path before they
/// normalize it.
fn is_below_base(operators: &LlmSettings, url: &Url) -> bool {
    let Some(Ok(base)) = operators
        .provider
        .base_url
        .as_deref()
        .map(|base| base.trim().parse::<Url>())
    else {
        return false;
    };
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/-_.".contains(char);
    let below = url.path().strip_prefix(base.path().trim_end_matches('/'));
    let is_below = below.is_some_and(|below| {
        below.starts_with('/') && below.chars().all(is_plain) && !below.contains("..")
    });
    is_below && url.query() == base.query()
}

fn check_address(
    chosen: &LlmSettings,
    model: &str,
    addresses: &AddressPolicy,
) -> Result<(), InvalidSetting> {
    let invalid = |problem: String| InvalidSetting::new("llm_base_url", problem);
    let url = llm::request_url(&chosen.provider_config(model))
        .map_err(|error| invalid(error.to_string()))?;
    addresses
        .check_url(&url)
        .map_err(|error| invalid(error.to_string()))
}

fn guard(addresses: &AddressPolicy) -> llm::ConnectionGuard {
    let addresses = addresses.clone();
    let is_refusal = |error: &(dyn std::error::Error + 'static)| error.is::<RefusedAddress>();
    llm::ConnectionGuard::new(move |client| addresses.guard(client), is_refusal)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::config::{Config, Overrides};

    fn operators(model: &str, base_url: Option<&str>) -> LlmSettings {
        let base_url = base_url
            .map(|url| format!("base_url = '{url}'\n"))
            .unwrap_or_default();
        load(&format!(
            "[llm]\nmodel = '{model}'\napi_key = 'key-operator'\n{base_url}"
        ))
    }

    fn load(text: &str) -> LlmSettings {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let overrides = Overrides {
            config_file: Some(file.path().to_owned()),
            ..Default::default()
        };
        Config::load(&overrides, |name| {
            (name == "HOME").then(|| "/nowhere".to_owned())
        })
        .unwrap()
        .llm
    }

    fn user(model: Option<&str>, base_url: Option<&str>, key: Option<&str>) -> UserSettings {
        UserSettings {
            llm_model: model.map(str::to_owned),
            llm_base_url: base_url.map(str::to_owned),
            llm_api_key: key.map(Into::into),
            ..UserSettings::default()
        }
    }

    /// Returns the model, the key and whether the connections are guarded.
    fn chosen(operators: &LlmSettings, user: &UserSettings) -> (String, Option<String>, bool) {
        let chosen = choose(operators, user, None, &ModelPolicy::default()).unwrap();
        let key = chosen
            .provider
            .api_key
            .as_ref()
            .map(|key| key.expose_secret().to_owned());
        (
            chosen.model.clone().unwrap(),
            key,
            chosen.provider.connection_guard.is_some(),
        )
    }

    fn expected(
        model: &str,
        key: Option<&str>,
        is_guarded: bool,
    ) -> (String, Option<String>, bool) {
        (model.to_owned(), key.map(str::to_owned), is_guarded)
    }

    #[test]
    fn operators_key_is_sent_to_the_operators_address_only() {
        let proxy = operators("openai/a", Some("http://127.0.0.1:4000/v1"));
        let own = Some("key-operator");
        assert_eq!(
            chosen(&proxy, &user(None, None, None)),
            expected("openai/a", own, false)
        );
        assert_eq!(
            chosen(&proxy, &user(Some("openai/b"), None, None)),
            expected("openai/b", own, false)
        );
        for same in [
            "http://127.0.0.1:4000/v1",
            "http://127.0.0.1:4000/v1/",
            "http://127.0.0.1:4000/v1/beta",
        ] {
            let chosen = chosen(&proxy, &user(None, Some(same), None));
            assert_eq!(chosen, expected("openai/a", own, false), "{same}");
        }
        let other = Some("https://models.example/v1");
        assert_eq!(
            chosen(&proxy, &user(None, other, None)),
            expected("openai/a", None, true)
        );
        assert_eq!(
            chosen(&proxy, &user(None, other, Some("k"))),
            expected("openai/a", Some("k"), true)
        );

        let provider = operators("openai/a", None);
        assert_eq!(
            chosen(&provider, &user(Some("openai/b"), None, None)),
            expected("openai/b", own, false)
        );
        let other = user(Some("anthropic/c"), None, None);
        assert_eq!(
            chosen(&provider, &other),
            expected("anthropic/c", None, false)
        );
        // On the operator's own machine.
        assert_eq!(
            chosen(&provider, &user(Some("ollama/c"), None, None)),
            expected("ollama/c", None, true)
        );
    }

    #[test]
    fn address_in_the_operators_network_is_refused() {
        let operators = operators("openai/a", None);
        for base_url in [
            "http://127.0.0.1:1",
            "http://2130706433/",
            "http://[::1]/",
            "http://169.254.169.254/latest",
            "http://10.0.0.1",
            "file:///etc/passwd",
            "no URL",
            "http://user:password@models.example/",
        ] {
            let user = user(None, Some(base_url), Some("k"));
            let error = choose(&operators, &user, None, &ModelPolicy::default()).unwrap_err();
            assert_eq!(error.field, "llm_base_url", "{base_url}: {error}");
        }
        let addresses = AddressPolicy::new(["10.0.0.0/8".parse().unwrap()]);
        let allowed = ModelPolicy {
            addresses,
            ..ModelPolicy::default()
        };
        choose(
            &operators,
            &user(None, Some("http://10.0.0.1"), Some("k")),
            None,
            &allowed,
        )
        .unwrap();
    }

    #[test]
    fn operators_key_is_sent_below_the_operators_path_only() {
        let proxy = operators("openai/a", Some("http://127.0.0.1:4000/team/v1"));
        let addresses = AddressPolicy::new(["127.0.0.0/8".parse().unwrap()]);
        let policy = ModelPolicy {
            addresses,
            ..ModelPolicy::default()
        };
        for path in [
            "",
            "/other",
            "/team/v10",
            "/team/v1/../../other",
            "/team/v1/%2e%2e/x",
            "/team/v1/..%2fx",
            "/team/v1/..;/x",
            "/team/v1?to=x",
            "//team/v1",
        ] {
            let user = user(None, Some(&format!("http://127.0.0.1:4000{path}")), None);
            let chosen = choose(&proxy, &user, None, &policy).unwrap();
            assert!(chosen.provider.api_key.is_none(), "{path}");
        }
    }

    #[test]
    fn model_of_a_budget_has_a_price_or_is_configured() {
        let proxy = load(
            "[llm]\nmodel = 'openai/own'\napi_key = 'k'\ninput_cost_per_token = 1e-6\noutput_cost_per_token = 1e-6\n",
        );
        let configured = vec!["openai/own".to_owned(), "openai/other".to_owned()];
        let policy = ModelPolicy {
            configured,
            has_budget: true,
            ..ModelPolicy::default()
        };
        let choose = |model, key| choose(&proxy, &user(Some(model), None, key), None, &policy);
        for (model, used) in [
            (" openai/own\n", "openai/own"),
            ("", "openai/own"),
            ("openai/other", "openai/other"),
            ("openai/gpt-4o", "openai/gpt-4o"),
        ] {
            assert_eq!(choose(model, None).unwrap().model.as_deref(), Some(used));
        }
        let error = choose("openai/unpriced", None).unwrap_err();
        assert_eq!(error.field, "llm_model");
        assert!(choose("openai/unpriced", Some("k")).is_ok());
    }

    #[test]
    fn script_is_the_operators_choice() {
        let scripted = operators("scripted:/a", None);
        let other = user(Some("scripted:/etc/passwd"), None, None);
        assert!(choose(&scripted, &other, None, &ModelPolicy::default()).is_err());
        assert_eq!(
            chosen(&scripted, &user(None, None, Some("k"))).0,
            "scripted:/a"
        );
        // The key of a scripted model is for no provider.
        assert_eq!(
            chosen(&scripted, &user(Some("openai/a"), None, None)),
            expected("openai/a", None, false)
        );
    }

    #[test]
    fn users_model_replaces_that_of_a_stored_conversation() {
        let operators = operators("openai/a", None);
        let choose = |user| {
            choose(&operators, &user, Some("openai/b"), &ModelPolicy::default())
                .unwrap()
                .model
        };
        assert_eq!(choose(user(None, None, None)).as_deref(), Some("openai/b"));
        assert_eq!(
            choose(user(Some("openai/c"), None, None)).as_deref(),
            Some("openai/c")
        );
    }

    #[test]
    fn operators_key_does_not_follow_a_stored_model() {
        let key = |operators: &LlmSettings, stored| {
            let none = UserSettings::default();
            let chosen = choose(operators, &none, Some(stored), &ModelPolicy::default()).unwrap();
            chosen.provider.api_key.is_some()
        };
        let provider = operators("openai/a", None);
        assert!(key(&provider, "openai/b"));
        assert!(!key(&provider, "anthropic/c"));
        assert!(key(
            &operators("openai/a", Some("http://127.0.0.1:4000")),
            "anthropic/c"
        ));
    }
}
