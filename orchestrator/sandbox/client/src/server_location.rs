//! How to reach an action server, independent of the client that does.

use protocol::SandboxId;
use secrecy::SecretString;

use crate::action_client::Address;
use crate::connect::Connector;

/// How to reach the action server of a sandbox and authenticate to it.
pub struct ServerLocation {
    /// Sent with each request.
    pub key: SecretString,
    /// Opens the streams to the server.
    pub connector: Box<dyn Connector>,
}

impl ServerLocation {
    pub(crate) fn into_address(self, runtime: &'static str, sandbox: &SandboxId) -> Address {
        Address {
            runtime,
            sandbox: sandbox.clone(),
            key: self.key,
            connector: self.connector,
        }
    }
}
