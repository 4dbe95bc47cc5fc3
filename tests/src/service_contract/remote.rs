//! The service of a server, over HTTP, with connections that can be cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::RemoteConversations;
use conversations::{ConversationService, ProfileService, SandboxService, WorkspaceService};
use rustls::RootCertStore;
use secrecy::SecretString;
use serde_json::json;

use super::ServiceBackend;
use crate::glovebox::{Home, finish};
use crate::host_server::HostServer;
use crate::tcp_proxy::TcpProxy;

/// A server, and a proxy in front of it.
pub struct Remote {
    keys: BTreeMap<String, String>,
    proxy: TcpProxy,
    server: HostServer,
    _home: Home,
}

impl Remote {
    /// Starts a server without conversations, whose agent asks a question and then finishes at each
    /// message.
    pub async fn start() -> Self {
        let home = Home::new();
        let question = json!({"text": "What is your name?"});
        let responses = [vec![question], vec![finish(); 8]].concat();
        let server = HostServer::start(&home, &home.script(&json!(responses)), &[]);
        let users = ["ada", "ben"].map(|name| (name.to_owned(), home.add_user(name)));
        Self {
            keys: users.into(),
            proxy: TcpProxy::to(server.port()).await,
            server,
            _home: home,
        }
    }

    fn client(&self, user: Option<&str>) -> RemoteConversations {
        let key = user.map_or(&self.server.key, |name| &self.keys[name]);
        client_of(self.proxy.port(), key)
    }
}

#[async_trait]
impl ServiceBackend for Remote {
    fn service(&self, user: Option<&str>) -> Arc<dyn ConversationService> {
        Arc::new(self.client(user))
    }

    fn workspaces(&self, user: Option<&str>) -> Arc<dyn WorkspaceService> {
        Arc::new(self.client(user))
    }

    fn sandboxes(&self, user: Option<&str>) -> Arc<dyn SandboxService> {
        Arc::new(self.client(user))
    }

    fn profile(&self, user: Option<&str>) -> Arc<dyn ProfileService> {
        Arc::new(self.client(user))
    }

    fn disturb(&self) {
        self.proxy.cut();
    }
}

/// Returns the client of a server on this machine.
pub fn client_of(port: u16, key: &str) -> RemoteConversations {
    let url = format!("http://127.0.0.1:{port}");
    let key = SecretString::from(key);
    RemoteConversations::new(&url, &key, RootCertStore::empty()).unwrap()
}
