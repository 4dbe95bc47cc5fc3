//! Who judges actions, and which the user is asked about, as configured.

use std::sync::Arc;
use std::time::Duration;

use engine::security::{DeclaredRisk, MAX_ASSESSMENT_TIME, SecurityAnalyzer, SecurityRules};
use llm::{AnalyzerConfig, ConfigError, GraySwanAnalyzer, HttpAnalyzer, InvariantAnalyzer};
use protocol::risk::{ConfirmationPolicy, SecurityRisk};

use crate::config::{Config, SecuritySettings};
use crate::exit::UsageError;

/// How long an analyzer may take for one action, and one that asks a model of its own or scans code.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MODEL_TIMEOUT: Duration = Duration::from_secs(25);

/// Which actions are asked about, and who judges them; nobody: all are of unknown risk.
type Security = (ConfirmationPolicy, Option<Arc<dyn SecurityAnalyzer>>);

/// What is configured. Reads the policy file, if there is one; opens no connection.
pub(crate) fn security(config: &Config) -> anyhow::Result<Security> {
    let analyzer = analyzer(config)?;
    let policy = policy(&config.security, analyzer.is_some());
    Ok((policy, analyzer))
}

/// V0's switch asks about everything where nobody judges, else about what is of high or unknown risk.
fn policy(settings: &SecuritySettings, is_judged: bool) -> ConfirmationPolicy {
    match settings.policy.as_deref() {
        Some("always") => ConfirmationPolicy::Always,
        Some("low") => ConfirmationPolicy::Risky { from: SecurityRisk::Low },
        Some("medium") => ConfirmationPolicy::Risky { from: SecurityRisk::Medium },
        Some("high") => ConfirmationPolicy::Risky { from: SecurityRisk::High },
        None if settings.confirmation_mode && is_judged => {
            ConfirmationPolicy::Risky { from: SecurityRisk::High }
        }
        None if settings.confirmation_mode => ConfirmationPolicy::Always,
        _ => ConfirmationPolicy::Never,
    }
}

fn analyzer(config: &Config) -> anyhow::Result<Option<Arc<dyn SecurityAnalyzer>>> {
    let settings = &config.security;
    Ok(match settings.analyzer.as_deref() {
        None | Some("none") => None,
        Some("llm") => Some(Arc::new(DeclaredRisk)),
        Some("invariant") => Some(Arc::new(invariant(settings)?)),
        Some("grayswan") => Some(Arc::new(grayswan(settings)?)),
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            Some(Arc::new(http(url, settings)?))
        }
        Some(path) => Some(Arc::new(rules(path, settings)?)),
    })
}

fn http(url: &str, settings: &SecuritySettings) -> anyhow::Result<HttpAnalyzer> {
    let timeout = timeout(settings, DEFAULT_TIMEOUT)?;
    let config = AnalyzerConfig { url: url.to_owned(), api_key: settings.analyzer_key.clone(), timeout };
    HttpAnalyzer::new(config).map_err(|error| unusable(&error))
}

fn invariant(settings: &SecuritySettings) -> anyhow::Result<InvariantAnalyzer> {
    let Some(url) = &settings.analyzer_url else {
        let text = "security.security_analyzer: invariant needs security.security_analyzer_url, the address of an \
                    Invariant server (V0's image is invariantlabs-ai/server:openhands, port 8000)";
        return Err(UsageError(text.to_owned()).into());
    };
    InvariantAnalyzer::new(url, timeout(settings, MODEL_TIMEOUT)?).map_err(|error| unusable(&error))
}

fn grayswan(settings: &SecuritySettings) -> anyhow::Result<GraySwanAnalyzer> {
    let Some(key) = &settings.analyzer_key else {
        let text = "security.security_analyzer: grayswan needs a key: set GRAYSWAN_API_KEY";
        return Err(UsageError(text.to_owned()).into());
    };
    let url = settings.analyzer_url.as_deref().unwrap_or(GraySwanAnalyzer::URL);
    let policy = settings.grayswan_policy.as_deref().unwrap_or(GraySwanAnalyzer::CODING_AGENT_POLICY);
    GraySwanAnalyzer::new(url, key.clone(), policy.to_owned(), timeout(settings, MODEL_TIMEOUT)?)
        .map_err(|error| unusable(&error))
}

fn timeout(settings: &SecuritySettings, default: Duration) -> anyhow::Result<Duration> {
    let Some(seconds) = settings.analyzer_timeout else { return Ok(default) };
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    timeout.filter(|timeout| !timeout.is_zero() && *timeout <= MAX_ASSESSMENT_TIME).ok_or_else(|| {
        let most = MAX_ASSESSMENT_TIME.as_secs();
        let text = format!(
            "security.security_analyzer_timeout must be more than 0 and at most {most} seconds, not {seconds}"
        );
        UsageError(text).into()
    })
}

fn unusable(error: &ConfigError) -> anyhow::Error {
    UsageError(format!("security.security_analyzer: {error}")).into()
}

fn rules(path: &str, settings: &SecuritySettings) -> anyhow::Result<SecurityRules> {
    let text = match &settings.rules {
        Some(Ok(text)) => text,
        Some(Err(problem)) => return Err(UsageError(problem.clone()).into()),
        None => return Err(UsageError(format!("security.security_analyzer: {path} is no file")).into()),
    };
    Ok(SecurityRules::from_toml(text).map_err(|error| UsageError(format!("the policy {path}, {error}")))?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::Overrides;

    fn of(file: &str) -> anyhow::Result<Security> {
        of_environment(file, &[])
    }

    fn of_environment(file: &str, variables: &[(&str, &str)]) -> anyhow::Result<Security> {
        let named = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(named.path(), format!("[security]\n{file}")).unwrap();
        let overrides = Overrides { config_file: Some(named.path().to_owned()), ..Default::default() };
        let variables: HashMap<_, _> = [("HOME", "/nowhere")].iter().chain(variables).copied().collect();
        let environment = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        security(&Config::load(&overrides, environment).unwrap())
    }

    #[test]
    fn v0s_analyzers_are_made_from_an_address_and_a_key() {
        let url = "security_analyzer_url = 'http://127.0.0.1:1'";
        assert!(of(&format!("security_analyzer = 'invariant'\n{url}")).unwrap().1.is_some());
        let key = [("GRAYSWAN_API_KEY", "key")];
        assert!(of_environment("security_analyzer = 'grayswan'", &key).unwrap().1.is_some());
        let own = "security_analyzer = 'grayswan'\nsecurity_analyzer_key = 'key'";
        assert!(of(own).unwrap().1.is_some());
        let wrong = of("security_analyzer = 'invariant'\nsecurity_analyzer_url = 'localhost'").map(drop);
        assert!(wrong.unwrap_err().to_string().starts_with("security.security_analyzer: "));
    }

    #[test]
    fn timeout_of_an_analyzer_is_refused_beyond_its_bounds() {
        let with = |seconds| {
            let file =
                format!("security_analyzer = 'http://127.0.0.1:1/'\nsecurity_analyzer_timeout = {seconds}");
            of(&file).map(drop).map_err(|error| error.to_string())
        };
        for seconds in ["0.5", "30"] {
            assert_eq!(with(seconds), Ok(()));
        }
        for seconds in ["0", "30.5", "1e300"] {
            assert!(with(seconds).unwrap_err().contains("at most 30 seconds"), "{seconds}");
        }
    }

    #[test]
    fn v0s_switch_and_our_policy_say_who_is_asked() {
        let high = ConfirmationPolicy::Risky { from: SecurityRisk::High };
        for (file, policy, is_judged) in [
            ("", ConfirmationPolicy::Never, false),
            ("confirmation_mode = true", ConfirmationPolicy::Always, false),
            ("confirmation_mode = true\nsecurity_analyzer = 'llm'", high, true),
            ("confirmation_policy = 'high'\nsecurity_analyzer = 'http://127.0.0.1:1/'", high, true),
            ("confirmation_mode = true\nconfirmation_policy = 'never'", ConfirmationPolicy::Never, false),
        ] {
            let found = of(file).unwrap();
            assert_eq!((found.0, found.1.is_some()), (policy, is_judged), "{file}");
        }
    }

    #[test]
    fn an_analyzer_that_is_none_is_refused_in_one_line() {
        let policy = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(policy.path(), "[[rule]]\nrisk = 1\n").unwrap();
        for (analyzer, part) in [
            ("invariant", "invariant needs security.security_analyzer_url"),
            ("grayswan", "grayswan needs a key: set GRAYSWAN_API_KEY"),
            ("/nowhere/policy.toml", "cannot read the policy /nowhere/policy.toml: No such file"),
            ("http://", "security.security_analyzer: "),
            (policy.path().to_str().unwrap(), ", line 2: rule[0].risk: "),
        ] {
            let error = of(&format!("security_analyzer = '{analyzer}'")).map(drop).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(part) && !text.contains('\n'), "{text}");
            assert_eq!(crate::exit::of_error(&error), crate::exit::Exit::Usage);
        }
    }
}
