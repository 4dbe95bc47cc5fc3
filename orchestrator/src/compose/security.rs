//! Who judges actions, and which the user is asked about, as configured.

use std::sync::Arc;
use std::time::Duration;

use engine::security::{DeclaredRisk, Rules, SecurityAnalyzer};
use llm::{AnalyzerConfig, HttpAnalyzer};
use protocol::risk::{ConfirmationPolicy, SecurityRisk};

use crate::config::{Config, SecuritySettings};
use crate::exit::UsageError;

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
        Some("invariant") => {
            let text = "security.security_analyzer: V0's invariant is not here: use llm, a policy file's path, or the \
                        URL of a service that judges actions";
            return Err(UsageError(text.to_owned()).into());
        }
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            Some(Arc::new(http(url, settings)?))
        }
        Some(path) => Some(Arc::new(rules(path, settings)?)),
    })
}

fn http(url: &str, settings: &SecuritySettings) -> anyhow::Result<HttpAnalyzer> {
    let timeout = Duration::try_from_secs_f64(settings.analyzer_timeout).unwrap_or(Duration::MAX);
    let config = AnalyzerConfig { url: url.to_owned(), api_key: settings.analyzer_key.clone(), timeout };
    HttpAnalyzer::new(config)
        .map_err(|error| UsageError(format!("security.security_analyzer: {error}")).into())
}

fn rules(path: &str, settings: &SecuritySettings) -> anyhow::Result<Rules> {
    let text = match &settings.rules {
        Some(Ok(text)) => text,
        Some(Err(problem)) => return Err(UsageError(problem.clone()).into()),
        None => return Err(UsageError(format!("security.security_analyzer: {path} is no file")).into()),
    };
    Ok(Rules::from_toml(text).map_err(|error| UsageError(format!("the policy {path}, {error}")))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn of(file: &str) -> anyhow::Result<Security> {
        let named = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(named.path(), format!("[security]\n{file}")).unwrap();
        let overrides = Overrides { config_file: Some(named.path().to_owned()), ..Default::default() };
        security(&Config::load(&overrides, |name| (name == "HOME").then(|| "/nowhere".to_owned())).unwrap())
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
            ("invariant", "use llm, a policy file's path"),
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
