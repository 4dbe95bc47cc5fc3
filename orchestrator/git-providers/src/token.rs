//! The token of a user.

use secrecy::SecretString;

/// What a user has stored for a provider, with V0's names.
#[derive(Debug, Clone)]
pub struct ProviderToken {
    /// A personal access token or an OAuth token. For Bitbucket also `name:password`.
    pub token: SecretString,
    /// The user's id at the provider. Not used for requests.
    pub user_id: Option<String>,
    /// The host, if it is not the provider's own: `gitlab.example.com`, or a URL of `https`. For
    /// Azure DevOps the organization: `acme`, `dev.azure.com/acme`, or
    /// `devops.example.com/collection`.
    pub host: Option<String>,
}
