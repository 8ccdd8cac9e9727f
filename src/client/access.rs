//! The hub's routes about who may do what.

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue, IF_MATCH};

use super::{Call, Client, Error, TIMEOUT};
use crate::wire::api::{
    ApiTokenAnswer, ApiTokenView, GrantCheck, GrantView, LoginCode, NewApiToken, NewGrant, NewUser,
    SshKeyView, UserChange, UserView,
};
use crate::wire::id::ClusterName;

/// Which grants; what is None does not narrow.
#[derive(Debug, Clone, Default)]
pub struct GrantFilter {
    /// Of this user, and of the groups that they are in.
    pub user: Option<String>,
    /// Those that take in this cluster.
    pub cluster: Option<ClusterName>,
}

impl Client {
    /// Those that are not revoked; they may have ended.
    pub async fn grants(&self, filter: &GrantFilter) -> Result<Vec<GrantView>, Error> {
        self.grants_that(filter, None).await
    }

    /// Those that have ended, and those that were revoked, as far as the hub keeps them.
    pub async fn ended_grants(&self, filter: &GrantFilter) -> Result<Vec<GrantView>, Error> {
        self.grants_that(filter, Some("true")).await
    }

    async fn grants_that(
        &self,
        filter: &GrantFilter,
        over: Option<&str>,
    ) -> Result<Vec<GrantView>, Error> {
        let user = filter.user.clone().map(|name| ("user", name));
        let cluster = filter.cluster.as_ref().map(ToString::to_string);
        let query: Vec<_> = user
            .into_iter()
            .chain(cluster.map(|name| ("cluster", name)))
            .chain(over.map(|over| ("over", over.to_owned())))
            .collect();
        self.list("list grants", &["v1", "grants"], &query, usize::MAX)
            .await
    }

    pub async fn grant(&self, id: &str) -> Result<GrantView, Error> {
        self.get(&format!("show grant {id}"), &["v1", "grants", id], &[])
            .await
    }

    pub async fn add_grant(&self, new: &NewGrant) -> Result<GrantView, Error> {
        let operation = format!("give {} access", new.subject);
        self.write(&operation, &["v1", "grants"], new).await
    }

    pub async fn revoke_grant(&self, id: &str, rev: i64) -> Result<(), Error> {
        self.delete(
            &format!("revoke grant {id}"),
            &["v1", "grants", id],
            Some(rev),
        )
        .await
    }

    /// `request` is a method and a path: whether that very request would pass; `act_as` whom it would go as.
    pub async fn check_grant(
        &self,
        user: &str,
        cluster: &ClusterName,
        request: Option<(&str, &str)>,
        act_as: Option<String>,
    ) -> Result<GrantCheck, Error> {
        let operation = format!("ask whether {user} reaches cluster {cluster}");
        let mut query = vec![("user", user.to_owned()), ("cluster", cluster.to_string())];
        if let Some((method, path)) = request {
            query.push(("method", method.to_owned()));
            query.push(("path", path.to_owned()));
        }
        query.extend(act_as.map(|names| ("actAs", names)));
        self.get(&operation, &["v1", "grants", "check"], &query)
            .await
    }

    pub async fn users(&self) -> Result<Vec<UserView>, Error> {
        self.list("list users", &["v1", "users"], &[], usize::MAX)
            .await
    }

    pub async fn add_user(&self, new: &NewUser) -> Result<UserView, Error> {
        self.write(&format!("add user {}", new.name), &["v1", "users"], new)
            .await
    }

    pub async fn user(&self, name: &str) -> Result<UserView, Error> {
        self.get(&format!("show user {name}"), &["v1", "users", name], &[])
            .await
    }

    /// `rev` is the revision that the caller saw; another one in the store is a conflict.
    pub async fn set_user(
        &self,
        name: &str,
        rev: i64,
        change: &UserChange,
    ) -> Result<UserView, Error> {
        let operation = format!("change user {name}");
        let body =
            serde_json::to_vec(change).map_err(|e| self.unexpected(&operation, e.to_string()))?;
        let mut headers = super::json_headers();
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{rev}\"")) {
            headers.insert(IF_MATCH, tag);
        }
        let call = Call {
            operation: &operation,
            method: Method::PATCH,
            url: self.url(&["v1", "users", name], &[]),
            headers,
            body: Some(body),
            timeout: TIMEOUT,
            repeatable: false,
        };
        self.answer(&operation, &self.send(call).await?)
    }

    /// `rev` is the revision that the caller saw; None = whatever is there.
    pub async fn remove_user(&self, name: &str, rev: Option<i64>) -> Result<(), Error> {
        self.delete(&format!("remove user {name}"), &["v1", "users", name], rev)
            .await
    }

    /// A way in for a local user, once.
    pub async fn make_login_code(&self, name: &str) -> Result<LoginCode, Error> {
        let operation = format!("make a login code for {name}");
        let path = ["v1", "users", name, "login-codes"];
        self.write(&operation, &path, &serde_json::Map::new()).await
    }

    /// All sessions of a user: the caller's own, anyone's for admins.
    pub async fn end_sessions(&self, name: &str) -> Result<(), Error> {
        let operation = format!("end the sessions of {name}");
        let call = Call {
            operation: &operation,
            method: Method::POST,
            url: self.url(&["v1", "users", name, "sessions", "end"], &[]),
            headers: super::json_headers(),
            body: Some(b"{}".to_vec()),
            timeout: TIMEOUT,
            repeatable: true,
        };
        self.send(call).await.map(drop)
    }

    /// Of one user, of all (`*`), or the caller's own.
    pub async fn tokens(&self, user: Option<&str>) -> Result<Vec<ApiTokenView>, Error> {
        let path = ["v1", "api-tokens"];
        self.list("list tokens", &path, &of_user(user), usize::MAX)
            .await
    }

    /// The same of the SSH keys for the catalog.
    pub async fn ssh_keys(&self, user: Option<&str>) -> Result<Vec<SshKeyView>, Error> {
        let path = ["v1", "catalog", "ssh-keys"];
        self.list("list SSH keys", &path, &of_user(user), usize::MAX)
            .await
    }

    /// By its id. The caller's own, anyone's for admins.
    pub async fn remove_ssh_key(&self, id: &str) -> Result<(), Error> {
        let path = ["v1", "catalog", "ssh-keys", id];
        self.delete("take the SSH key away", &path, None).await
    }

    /// One in force, the caller's own; anyone's for admins.
    pub async fn token(&self, id: &str) -> Result<ApiTokenView, Error> {
        self.get(&format!("show token {id}"), &["v1", "api-tokens", id], &[])
            .await
    }

    pub async fn create_token(&self, new: &NewApiToken) -> Result<ApiTokenAnswer, Error> {
        self.write("make a token", &["v1", "api-tokens"], new).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.delete(
            &format!("revoke token {id}"),
            &["v1", "api-tokens", id],
            None,
        )
        .await
    }

    /// `rev` is the revision that the caller saw; another one in the store is a conflict. None = whatever is there.
    pub(super) async fn delete(
        &self,
        operation: &str,
        path: &[&str],
        rev: Option<i64>,
    ) -> Result<(), Error> {
        let mut headers = super::whatever(HeaderMap::new());
        let tag = rev.map(|rev| HeaderValue::from_str(&format!("\"{rev}\"")));
        if let Some(Ok(tag)) = tag {
            headers.insert(IF_MATCH, tag);
        }
        let call = Call {
            operation,
            method: Method::DELETE,
            url: self.url(path, &[]),
            headers,
            body: None,
            timeout: TIMEOUT,
            repeatable: false,
        };
        self.send(call).await.map(drop)
    }
}

fn of_user(user: Option<&str>) -> Vec<(&'static str, String)> {
    user.map(|name| ("user", name.to_owned()))
        .into_iter()
        .collect()
}
