//! Repositories at git providers, with the tokens that the user has stored. No response contains a
//! token.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use conversations::GitToken;
use engine::memory::{KnowledgeEntry, KnowledgeFile};
use git_providers::{GitProviders, MicroagentSource, ProviderToken, RepositoryQuery, SearchQuery};
use http::request::Parts;
use protocol::UserId;
use protocol::client_api::git::{
    Branch, BranchPage, GitProvider, Microagent, MicroagentContent, Repository, RepositorySort,
    SearchSort, SortOrder, SuggestedTask, User,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::{QueryParameters, RequestCaller};
use crate::state::ServerState;

/// Number of items of a page, unless the request names another.
const DEFAULT_PAGE_SIZE: u32 = 30;

/// The same for a search of repositories.
const DEFAULT_SEARCH_SIZE: u32 = 5;

/// Maximum length of a name, a search or a path, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

pub(super) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/user/installations", get(installations))
        .route("/user/repositories", get(repositories))
        .route("/user/info", get(info))
        .route("/user/search/repositories", get(search_repositories))
        .route("/user/search/branches", get(search_branches))
        .route("/user/suggested-tasks", get(suggested_tasks))
        .route("/user/repository/branches", get(branches))
        // The name of a repository contains slashes, and no route can have a parameter with slashes
        // before its end.
        .route("/user/repository/{*path}", get(below_repository))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InstallationsQuery {
    /// The provider.
    provider: GitProvider,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct RepositoriesQuery {
    /// The order.
    sort: RepositorySort,
    /// The provider. `None` for all of them.
    selected_provider: Option<GitProvider>,
    /// The number of the page, from 1.
    page: u32,
    /// Maximum number of items; 1 to 100.
    per_page: u32,
    /// One of the installations, which owns the repositories.
    installation_id: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct RepositorySearchQuery {
    /// A part of the name.
    query: String,
    /// The provider. `None` for all of them.
    selected_provider: Option<GitProvider>,
    /// Maximum number of items; 1 to 100.
    per_page: u32,
    /// The key to sort by.
    sort: SearchSort,
    /// The direction.
    order: SortOrder,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BranchesQuery {
    /// The full name of the repository.
    repository: String,
    /// The provider. `None` for all of them.
    selected_provider: Option<GitProvider>,
    #[serde(default = "first_page")]
    /// The number of the page, from 1.
    page: u32,
    #[serde(default = "default_page_size")]
    /// Maximum number of items; 1 to 100.
    per_page: u32,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BranchSearchQuery {
    /// The full name of the repository.
    repository: String,
    /// A part of the name.
    query: String,
    /// The provider. `None` for all of them.
    selected_provider: Option<GitProvider>,
    #[serde(default = "default_page_size")]
    /// Maximum number of items; 1 to 100.
    per_page: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MicroagentsQuery {
    /// The file, for its content.
    file_path: Option<String>,
    /// The provider. `None` for all of them.
    selected_provider: Option<GitProvider>,
}

/// The parameter of both routes of microagents.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its description is used")]
struct ProviderQuery {
    /// The provider. `None` to look at one after the other.
    selected_provider: Option<GitProvider>,
}

impl Default for RepositoriesQuery {
    fn default() -> Self {
        Self {
            sort: RepositorySort::default(),
            selected_provider: None,
            page: first_page(),
            per_page: DEFAULT_PAGE_SIZE,
            installation_id: None,
        }
    }
}

impl Default for RepositorySearchQuery {
    fn default() -> Self {
        Self {
            query: String::new(),
            selected_provider: None,
            per_page: DEFAULT_SEARCH_SIZE,
            sort: SearchSort::default(),
            order: SortOrder::default(),
        }
    }
}

fn first_page() -> u32 {
    1
}

fn default_page_size() -> u32 {
    DEFAULT_PAGE_SIZE
}

/// What a path below `/user/repository` names.
enum RepositoryPath {
    Microagents(String),
    MicroagentContent(String),
}

impl<S: Send + Sync> FromRequestParts<S> for RepositoryPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|error| ApiError::invalid("name", error))?;
        match (
            path.strip_suffix("/microagents/content"),
            path.strip_suffix("/microagents"),
        ) {
            (Some(name), _) => Ok(Self::MicroagentContent(name.to_owned())),
            (None, Some(name)) => Ok(Self::Microagents(name.to_owned())),
            (None, None) => Err(ApiError::NoRoute),
        }
    }
}

/// Lists what `installation_id` can name.
#[utoipa::path(get, path = "/api/user/installations",
    params(InstallationsQuery),
    responses((status = 200, description = "Ids or names", body = Vec<String>)))]
pub(super) async fn installations(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(InstallationsQuery { provider }): QueryParameters<InstallationsQuery>,
) -> Result<Json<Vec<String>>, ApiError> {
    Ok(Json(
        providers(&state, caller.user.as_ref())
            .await?
            .installations(provider)
            .await?,
    ))
}

/// Lists the repositories that the user can access.
#[utoipa::path(get, path = "/api/user/repositories",
    params(RepositoriesQuery),
    responses((status = 200, description = "The repositories", body = Vec<Repository>)))]
pub(super) async fn repositories(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<RepositoriesQuery>,
) -> Result<Json<Vec<Repository>>, ApiError> {
    let RepositoriesQuery {
        sort,
        selected_provider,
        page,
        per_page,
        installation_id,
    } = query;
    check_length(
        "installation_id",
        installation_id.as_deref().unwrap_or_default(),
    )?;
    let query = RepositoryQuery {
        provider: selected_provider,
        sort,
        page,
        per_page,
        installation_id,
    };
    Ok(Json(
        providers(&state, caller.user.as_ref())
            .await?
            .repositories(&query)
            .await?,
    ))
}

/// Returns the owner of the first token that works.
#[utoipa::path(get, path = "/api/user/info",
    responses((status = 200, description = "The user", body = User)))]
pub(super) async fn info(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<User>, ApiError> {
    Ok(Json(
        providers(&state, caller.user.as_ref())
            .await?
            .user()
            .await?,
    ))
}

/// Searches repositories by a part of the name, or by a URL.
#[utoipa::path(get, path = "/api/user/search/repositories",
    params(RepositorySearchQuery),
    responses((status = 200, description = "The repositories", body = Vec<Repository>)))]
pub(super) async fn search_repositories(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<RepositorySearchQuery>,
) -> Result<Json<Vec<Repository>>, ApiError> {
    let RepositorySearchQuery {
        query,
        selected_provider,
        per_page,
        sort,
        order,
    } = query;
    check_length("query", &query)?;
    let query = SearchQuery {
        provider: selected_provider,
        query,
        per_page,
        sort,
        order,
    };
    Ok(Json(
        providers(&state, caller.user.as_ref())
            .await?
            .search_repositories(&query)
            .await?,
    ))
}

/// Searches branches by a part of the name.
#[utoipa::path(get, path = "/api/user/search/branches",
    params(BranchSearchQuery),
    responses((status = 200, description = "The branches", body = Vec<Branch>)))]
pub(super) async fn search_branches(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<BranchSearchQuery>,
) -> Result<Json<Vec<Branch>>, ApiError> {
    let BranchSearchQuery {
        repository,
        query,
        selected_provider,
        per_page,
    } = query;
    check_length("repository", &repository)?;
    check_length("query", &query)?;
    let providers = providers(&state, caller.user.as_ref()).await?;
    Ok(Json(
        providers
            .search_branches(selected_provider, &repository, &query, per_page)
            .await?,
    ))
}

/// Lists pull requests that need work, and issues of the user.
#[utoipa::path(get, path = "/api/user/suggested-tasks",
    responses((status = 200, description = "The tasks", body = Vec<SuggestedTask>)))]
pub(super) async fn suggested_tasks(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<Vec<SuggestedTask>>, ApiError> {
    Ok(Json(
        providers(&state, caller.user.as_ref())
            .await?
            .suggested_tasks()
            .await?,
    ))
}

/// Lists the branches of a repository.
#[utoipa::path(get, path = "/api/user/repository/branches",
    params(BranchesQuery),
    responses((status = 200, description = "A page", body = BranchPage)))]
pub(super) async fn branches(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<BranchesQuery>,
) -> Result<Json<BranchPage>, ApiError> {
    let BranchesQuery {
        repository,
        selected_provider,
        page,
        per_page,
    } = query;
    check_length("repository", &repository)?;
    let providers = providers(&state, caller.user.as_ref()).await?;
    Ok(Json(
        providers
            .branches(selected_provider, &repository, page, per_page)
            .await?,
    ))
}

async fn below_repository(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    path: RepositoryPath,
    QueryParameters(query): QueryParameters<MicroagentsQuery>,
) -> Result<Response, ApiError> {
    let MicroagentsQuery {
        file_path,
        selected_provider,
    } = query;
    let providers = providers(&state, caller.user.as_ref()).await?;
    match path {
        RepositoryPath::Microagents(name) => Ok(microagents(&providers, selected_provider, &name)
            .await?
            .into_response()),
        RepositoryPath::MicroagentContent(name) => {
            let path =
                file_path.ok_or_else(|| ApiError::invalid("file_path", "must name a file"))?;
            Ok(
                microagent_content(&providers, selected_provider, &name, &path)
                    .await?
                    .into_response(),
            )
        }
    }
}

/// Lists the microagents of a repository.
#[utoipa::path(get, path = "/api/user/repository/{name}/microagents",
    params(("name" = String, Path, description = "The full name, with its slashes"), ProviderQuery),
    responses((status = 200, description = "The microagents", body = Vec<Microagent>)))]
pub(super) async fn microagents(
    providers: &GitProviders,
    provider: Option<GitProvider>,
    name: &str,
) -> Result<Json<Vec<Microagent>>, ApiError> {
    check_length("name", name)?;
    Ok(Json(providers.microagents(provider, name).await?))
}

/// Returns a microagent of a repository.
#[utoipa::path(get, path = "/api/user/repository/{name}/microagents/content",
    params(("name" = String, Path, description = "The full name, with its slashes"),
        ("file_path" = String, Query, description = "The path of its file"), ProviderQuery),
    responses((status = 200, description = "The microagent", body = MicroagentContent)))]
pub(super) async fn microagent_content(
    providers: &GitProviders,
    provider: Option<GitProvider>,
    name: &str,
    path: &str,
) -> Result<Json<MicroagentContent>, ApiError> {
    check_length("name", name)?;
    check_length("file_path", path)?;
    Ok(Json(to_content(
        providers.microagent_source(provider, name, path).await?,
    )))
}

/// Parses the file of a microagent. One that is malformed is returned as it is.
fn to_content(source: MicroagentSource) -> MicroagentContent {
    let MicroagentSource {
        path,
        text,
        git_provider,
    } = source;
    let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
    let file = KnowledgeFile {
        path: path.clone(),
        relative_path: name,
        content: text.clone().into_bytes(),
    };
    let (content, triggers) = match KnowledgeEntry::parse(file) {
        Ok(entry) => (entry.content, entry.triggers),
        Err(_) => (text, Vec::new()),
    };
    MicroagentContent {
        content,
        path,
        triggers,
        git_provider: Some(git_provider),
    }
}

/// Returns the git providers that a user has stored tokens for.
async fn providers(state: &ServerState, user: Option<&UserId>) -> Result<GitProviders, ApiError> {
    let profile = state.profiles.load(user).await?;
    Ok(with_tokens(state, profile.git_tokens))
}

/// Returns the git providers of these tokens.
pub(super) fn with_tokens(
    state: &ServerState,
    tokens: BTreeMap<GitProvider, GitToken>,
) -> GitProviders {
    let to_token = |GitToken {
                        token,
                        user_id,
                        host,
                    }| ProviderToken {
        token,
        user_id,
        host,
    };
    let tokens = tokens
        .into_iter()
        .map(|(provider, token)| (provider, to_token(token)));
    GitProviders::new(state.git.clone(), tokens.collect())
}

fn check_length(field: &'static str, text: &str) -> Result<(), ApiError> {
    match text.len() {
        0..=MAX_TEXT_BYTES => Ok(()),
        _ => Err(ApiError::invalid(
            field,
            format_args!("must have at most {MAX_TEXT_BYTES} bytes"),
        )),
    }
}
