//! Choices, settings and secrets of users.

use conversations::ServiceErrorKind::{Invalid, NotFound};
use conversations::{ProfileService, ServiceError};
use protocol::client_api::v2::profile::{SetSecret, SettingsChange};
use serde_json::{Value, json};

use super::{ServiceBackend, kind};

async fn change(profile: &dyn ProfileService, settings: Value) -> Result<(), ServiceError> {
    let Value::Object(fields) = settings else {
        panic!("{settings} is not an object");
    };
    profile.change_settings(SettingsChange(fields)).await
}

fn secret(value: &str, description: &str) -> SetSecret {
    SetSecret {
        value: value.into(),
        description: description.to_owned(),
    }
}

/// Each user has own settings. What is not given keeps its value, and no key is returned.
pub async fn settings_are_changed_one_by_one(backend: &dyn ServiceBackend) {
    let (ada, ben) = (backend.profile(Some("ada")), backend.profile(Some("ben")));
    let agents = ada.agents().await.unwrap().agents;
    assert!(
        agents.iter().any(|agent| agent == "CodeActAgent"),
        "{agents:?}"
    );
    assert_eq!(ada.models().await.unwrap(), ben.models().await.unwrap());
    assert_eq!(kind(ada.settings().await), NotFound);
    let first = json!({"language": "de", "max_iterations": 7, "search_api_key": "hunter2-key"});
    change(ada.as_ref(), first).await.unwrap();
    let second = json!({"max_iterations": null, "agent": "CodeActAgent", "search_api_key": null});
    change(ada.as_ref(), second).await.unwrap();
    let info = ada.settings().await.unwrap();
    let settings = &info.settings;
    assert_eq!(settings.language.as_deref(), Some("de"));
    assert_eq!(settings.agent.as_deref(), Some("CodeActAgent"));
    assert_eq!(
        (settings.max_iterations, info.search_api_key_set),
        (None, true)
    );
    assert!(settings.search_api_key.is_none());
    for invalid in [
        json!({"agent": "NoSuchAgent"}),
        json!({"language": 1}),
        json!({"languages": "en"}),
        json!({"search_api_key": "two\nlines"}),
    ] {
        assert_eq!(
            kind(change(ada.as_ref(), invalid.clone()).await),
            Invalid,
            "{invalid}"
        );
    }
    assert_eq!(kind(ben.settings().await), NotFound);
    assert_eq!(kind(backend.profile(None).settings().await), NotFound);
}

/// Secrets are stored, replaced and removed by their name; only their owner sees that.
pub async fn secrets_are_stored_by_name(backend: &dyn ServiceBackend) {
    let (ada, ben) = (backend.profile(Some("ada")), backend.profile(Some("ben")));
    for (name, description) in [("TOKEN", "first"), ("OTHER", ""), ("TOKEN", "second")] {
        let value = format!("the value of {name}");
        ada.set_secret(name, secret(&value, description))
            .await
            .unwrap();
    }
    let listed = ada.secrets().await.unwrap();
    let listed = listed.secrets.iter();
    let listed: Vec<_> = listed
        .map(|it| (it.name.as_str(), it.description.as_str()))
        .collect();
    assert_eq!(listed, [("OTHER", ""), ("TOKEN", "second")]);
    assert_eq!(ben.secrets().await.unwrap().secrets, []);
    assert_eq!(kind(ben.remove_secret("TOKEN").await), NotFound);
    for (name, value) in [
        ("no name", "a long value"),
        ("a/b", "a long value"),
        ("EMPTY", ""),
    ] {
        let refused = ada.set_secret(name, secret(value, "")).await;
        assert_eq!(kind(refused), Invalid, "{name}");
    }
    ada.remove_secret("TOKEN").await.unwrap();
    assert_eq!(kind(ada.remove_secret("TOKEN").await), NotFound);
    assert_eq!(ada.secrets().await.unwrap().secrets.len(), 1);
}
