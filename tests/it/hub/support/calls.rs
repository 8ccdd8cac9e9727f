//! What a test asks of a hub over HTTPS: as its admin, as somebody else, or as nobody.

use linesman::clock;
use linesman::hub::Hub;
use linesman::hub::registration::{Prefix, TokenText};
use linesman::hub::store::{ApiToken, UserRow};
use serde_json::{Value, json};

use super::{Call, TestHub};

impl TestHub {
    pub(super) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// As the admin, the answer as it is.
    pub(crate) async fn raw_as(&self, method: &str, path: &str) -> reqwest::Response {
        let method = method.parse().unwrap();
        let request = self.client.request(method, self.url(path));
        request.bearer_auth(&self.admin).send().await.unwrap()
    }

    /// Without any authentication.
    pub(crate) async fn raw(&self, method: &str, path: &str) -> reqwest::Response {
        let method = method.parse().unwrap();
        let request = self.client.request(method, self.url(path));
        request.send().await.unwrap()
    }

    /// With this token, or none; the answer as it is.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> reqwest::Response {
        let method = method.parse().unwrap();
        let mut request = self.client.request(method, self.url(path));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        request.send().await.unwrap()
    }

    /// A POST without any authentication, whose body comes as it does.
    pub(crate) async fn send(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> reqwest::Response {
        let mut request = self.client.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body).send().await.unwrap()
    }

    /// A user with a token, and what they are called by.
    pub(crate) async fn user(&self, name: &str, roles: &[&str], groups: &[&str]) -> String {
        let owned = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect();
        let user = UserRow {
            id: format!("id-{name}"),
            name: name.to_owned(),
            roles: owned(roles),
            groups: owned(groups),
            disabled: false,
            provider: None,
            rev: 1,
        };
        let user = self.hub.store.ensure_user(user).await.unwrap();
        api_token(&self.hub, user.id).await
    }

    /// As the holder of `token`, with these headers.
    pub(crate) async fn call_as(
        &self,
        token: &str,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &Value,
    ) -> (u16, Value) {
        let method = method.parse().unwrap();
        let mut request = self
            .client
            .request(method, self.url(path))
            .bearer_auth(token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        answer(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let request = self.client.get(self.url(path)).bearer_auth(&self.admin);
        answer(request.send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(self.url(path)).bearer_auth(&self.admin);
        answer(request.json(body).send().await.unwrap()).await
    }

    pub(crate) async fn delete(&self, path: &str, tag: Option<&str>) -> u16 {
        let mut request = self.client.delete(self.url(path)).bearer_auth(&self.admin);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        request.send().await.unwrap().status().as_u16()
    }

    /// Adds a cluster; gives its join token.
    pub(crate) async fn add(&self, name: &str) -> String {
        let (code, answer) = self.post("/v1/clusters", &json!({"name": name})).await;
        assert_eq!(code, 201, "{answer}");
        token_of(&answer)
    }

    pub(crate) fn call<'a>(&'a self, method: &'a str, path: &'a str, body: &'a str) -> Call<'a> {
        Call {
            hub: self,
            method,
            path,
            body,
        }
    }
}

/// A new token of this user, without end.
pub(crate) async fn api_token(hub: &Hub, user_id: String) -> String {
    let token = TokenText::new(clock::random(), clock::random());
    let record = ApiToken {
        id: token.id.clone(),
        user_id,
        hash: token.hash(),
        title: "test".to_owned(),
        scopes: Vec::new(),
        clusters: None,
        created_by: "test".to_owned(),
        created_at: clock::now(),
        expires_at: None,
        revoked_at: None,
    };
    hub.store.add_api_token(record, None).await.unwrap();
    token.text(Prefix::Api).into_inner()
}

/// The join token in an adoption answer.
pub(crate) fn token_of(answer: &Value) -> String {
    let url = answer["adoptUrl"].as_str().unwrap();
    let file = url.rsplit('/').next().unwrap();
    file.strip_suffix(".yaml").unwrap().to_owned()
}

pub(super) async fn answer(response: reqwest::Response) -> (u16, Value) {
    let code = response.status().as_u16();
    let text = response.text().await.unwrap();
    (code, serde_json::from_str(&text).unwrap_or(Value::Null))
}
