//! The security analyzer and the confirmation policy.

use std::sync::Arc;
use std::time::Duration;

use engine::security::{DeclaredRisk, MAX_ASSESSMENT_TIME, SecurityAnalyzer, SecurityRules};
use llm::{AnalyzerConfig, ConfigError, GraySwanAnalyzer, HttpAnalyzer, InvariantAnalyzer};
use protocol::risk::{ConfirmationPolicy, SecurityRisk};

use crate::config::{AnalyzerChoice, SecuritySettings};
use crate::exit::UsageError;

/// Timeout of one assessment.
pub(crate) const ANALYZER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of one assessment by an analyzer that calls a model or scans code.
pub(crate) const MODEL_ANALYZER_TIMEOUT: Duration = Duration::from_secs(25);

/// The configured policy. V0's switch asks about every action without an analyzer, and with one
/// about actions of high or unknown risk.
pub(crate) fn confirmation_policy(settings: &SecuritySettings) -> ConfirmationPolicy {
    match settings.policy {
        Some(policy) => policy,
        None if !settings.confirmation_mode => ConfirmationPolicy::Never,
        None if settings.analyzer.is_none() => ConfirmationPolicy::Always,
        None => ConfirmationPolicy::Risky {
            from: SecurityRisk::High,
        },
    }
}

/// The configured analyzer. Opens no connection. `None` if actions are not assessed.
pub(crate) fn security_analyzer(
    settings: &SecuritySettings,
) -> anyhow::Result<Option<Arc<dyn SecurityAnalyzer>>> {
    let Some(analyzer) = &settings.analyzer else {
        return Ok(None);
    };
    Ok(Some(match analyzer {
        AnalyzerChoice::DeclaredRisk => Arc::new(DeclaredRisk),
        AnalyzerChoice::Invariant => Arc::new(invariant(settings)?),
        AnalyzerChoice::GraySwan => Arc::new(grayswan(settings)?),
        AnalyzerChoice::Http(url) => Arc::new(http(url, settings)?),
        AnalyzerChoice::Policy { path, file } => {
            let file = file
                .as_ref()
                .map_err(|problem| UsageError(problem.clone()))?;
            let rules = SecurityRules::from_toml(&file.text);
            Arc::new(rules.map_err(|error| UsageError(format!("the policy {path}, {error}")))?)
        }
    }))
}

fn http(url: &str, settings: &SecuritySettings) -> anyhow::Result<HttpAnalyzer> {
    let timeout = timeout(settings, ANALYZER_TIMEOUT)?;
    let config = AnalyzerConfig {
        url: url.to_owned(),
        api_key: settings.analyzer_key.clone(),
        timeout,
    };
    HttpAnalyzer::new(config).map_err(|error| unusable(&error))
}

fn invariant(settings: &SecuritySettings) -> anyhow::Result<InvariantAnalyzer> {
    let Some(url) = &settings.analyzer_url else {
        let text = "security.security_analyzer: invariant needs security.security_analyzer_url, the address of an \
                    Invariant server (V0's image is invariantlabs-ai/server:openhands, port 8000)";
        return Err(UsageError(text.to_owned()).into());
    };
    InvariantAnalyzer::new(url, timeout(settings, MODEL_ANALYZER_TIMEOUT)?)
        .map_err(|error| unusable(&error))
}

fn grayswan(settings: &SecuritySettings) -> anyhow::Result<GraySwanAnalyzer> {
    let Some(key) = &settings.analyzer_key else {
        let text = "security.security_analyzer: grayswan needs a key: set GRAYSWAN_API_KEY";
        return Err(UsageError(text.to_owned()).into());
    };
    let url = settings
        .analyzer_url
        .as_deref()
        .unwrap_or(GraySwanAnalyzer::URL);
    let policy = settings
        .grayswan_policy
        .as_deref()
        .unwrap_or(GraySwanAnalyzer::CODING_AGENT_POLICY);
    GraySwanAnalyzer::new(
        url,
        key.clone(),
        policy.to_owned(),
        timeout(settings, MODEL_ANALYZER_TIMEOUT)?,
    )
    .map_err(|error| unusable(&error))
}

fn timeout(settings: &SecuritySettings, default: Duration) -> anyhow::Result<Duration> {
    let Some(seconds) = settings.analyzer_timeout else {
        return Ok(default);
    };
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::{Config, Overrides};

    type Security = (ConfirmationPolicy, Option<Arc<dyn SecurityAnalyzer>>);

    fn compose(file: &str) -> anyhow::Result<Security> {
        compose_with_variables(file, &[])
    }

    fn compose_with_variables(file: &str, variables: &[(&str, &str)]) -> anyhow::Result<Security> {
        let named = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(named.path(), format!("[security]\n{file}")).unwrap();
        let overrides = Overrides {
            config_file: Some(named.path().to_owned()),
            ..Default::default()
        };
        let variables: HashMap<_, _> = [("HOME", "/nowhere")]
            .iter()
            .chain(variables)
            .copied()
            .collect();
        let environment = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let settings = Config::load(&overrides, environment).unwrap().security;
        Ok((
            confirmation_policy(&settings),
            security_analyzer(&settings)?,
        ))
    }

    #[test]
    fn analyzer_of_v0_is_built_from_an_address_and_a_key() {
        let url = "security_analyzer_url = 'http://127.0.0.1:1'";
        assert!(
            compose(&format!("security_analyzer = 'invariant'\n{url}"))
                .unwrap()
                .1
                .is_some()
        );
        let key = [("GRAYSWAN_API_KEY", "key")];
        assert!(
            compose_with_variables("security_analyzer = 'grayswan'", &key)
                .unwrap()
                .1
                .is_some()
        );
        let own = "security_analyzer = 'grayswan'\nsecurity_analyzer_key = 'key'";
        assert!(compose(own).unwrap().1.is_some());
        let wrong = compose("security_analyzer = 'invariant'\nsecurity_analyzer_url = 'localhost'")
            .map(drop);
        assert!(
            wrong
                .unwrap_err()
                .to_string()
                .starts_with("security.security_analyzer: ")
        );
    }

    #[test]
    fn analyzer_timeout_is_refused_when_it_exceeds_its_bounds() {
        let with = |seconds| {
            let file = format!(
                "security_analyzer = 'http://127.0.0.1:1/'\nsecurity_analyzer_timeout = {seconds}"
            );
            compose(&file).map(drop).map_err(|error| error.to_string())
        };
        for seconds in ["0.5", "30"] {
            assert_eq!(with(seconds), Ok(()));
        }
        for seconds in ["0", "30.5", "1e300"] {
            assert!(
                with(seconds).unwrap_err().contains("at most 30 seconds"),
                "{seconds}"
            );
        }
    }

    #[test]
    fn confirmation_policy_follows_v0s_switch_and_the_policy_key() {
        let high = ConfirmationPolicy::Risky {
            from: SecurityRisk::High,
        };
        for (file, policy, has_analyzer) in [
            ("", ConfirmationPolicy::Never, false),
            (
                "confirmation_mode = true",
                ConfirmationPolicy::Always,
                false,
            ),
            (
                "confirmation_mode = true\nsecurity_analyzer = 'llm'",
                high,
                true,
            ),
            (
                "confirmation_policy = 'high'\nsecurity_analyzer = 'http://127.0.0.1:1/'",
                high,
                true,
            ),
            (
                "confirmation_mode = true\nconfirmation_policy = 'never'",
                ConfirmationPolicy::Never,
                false,
            ),
        ] {
            let found = compose(file).unwrap();
            assert_eq!(
                (found.0, found.1.is_some()),
                (policy, has_analyzer),
                "{file}"
            );
        }
    }

    #[test]
    fn analyzer_is_refused_in_one_line_when_it_is_unusable() {
        let policy = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(policy.path(), "[[rule]]\nrisk = 1\n").unwrap();
        for (analyzer, part) in [
            (
                "invariant",
                "invariant needs security.security_analyzer_url",
            ),
            ("grayswan", "grayswan needs a key: set GRAYSWAN_API_KEY"),
            (
                "/nowhere/policy.toml",
                "cannot read the policy /nowhere/policy.toml: No such file",
            ),
            ("http://", "security.security_analyzer: "),
            (policy.path().to_str().unwrap(), ", line 2: rule[0].risk: "),
        ] {
            let error = compose(&format!("security_analyzer = '{analyzer}'"))
                .map(drop)
                .unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(part) && !text.contains('\n'), "{text}");
            assert_eq!(crate::exit::of_error(&error), crate::exit::Exit::Usage);
        }
    }
}
