//! What the key's user can choose, and the user's settings and secrets.

use async_trait::async_trait;
use conversations::{ProfileService, ServiceError};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::client_api::UserSettingsInfo;
use protocol::client_api::v2::profile::{
    OfferedAgents, OfferedModels, SecretEntryList, SetSecret, SettingsChange,
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::RemoteConversations;
use crate::connection::{ApiRequest, Repetition};

/// Returns a request to a route, which is safe to repeat.
fn request(method: Method, path: &str) -> ApiRequest {
    ApiRequest::new(method, path, Repetition::Safe)
}

fn secret_path(name: &str) -> String {
    format!("/secrets/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

#[async_trait]
impl ProfileService for RemoteConversations {
    async fn models(&self) -> Result<OfferedModels, ServiceError> {
        self.0.send(request(Method::GET, "/models")).await
    }

    async fn agents(&self) -> Result<OfferedAgents, ServiceError> {
        self.0.send(request(Method::GET, "/agents")).await
    }

    async fn settings(&self) -> Result<UserSettingsInfo, ServiceError> {
        self.0.send(request(Method::GET, "/settings")).await
    }

    async fn change_settings(&self, change: SettingsChange) -> Result<(), ServiceError> {
        let change = request(Method::PATCH, "/settings").with_body(&change);
        self.0.send_for_bytes(change).await.0.map(drop)
    }

    async fn secrets(&self) -> Result<SecretEntryList, ServiceError> {
        self.0.send(request(Method::GET, "/secrets")).await
    }

    async fn set_secret(&self, name: &str, secret: SetSecret) -> Result<(), ServiceError> {
        let body = json!({
            "value": secret.value.expose_secret(),
            "description": secret.description,
        });
        let set = request(Method::PUT, &secret_path(name)).with_body(&body);
        self.0.send_for_bytes(set).await.0.map(drop)
    }

    async fn remove_secret(&self, name: &str) -> Result<(), ServiceError> {
        let remove = request(Method::DELETE, &secret_path(name));
        self.0.remove(remove).await
    }
}
