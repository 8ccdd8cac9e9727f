//! The hub's calls for logging in with an identity provider; they need no token.

use reqwest::Method;

use super::{Call, Client, Error, TIMEOUT, json_headers};
use crate::wire::api::{DeviceLogin, EndSession, SessionAnswer, TokenRequest};

impl Client {
    /// Where a browser begins a login whose outcome comes to `redirect`.
    pub fn login_url(&self, redirect: &str, challenge: &str, state: &str) -> String {
        let query = [
            ("redirect", redirect.to_owned()),
            ("challenge", challenge.to_owned()),
            ("state", state.to_owned()),
        ];
        self.url(&["login"], &query).into()
    }

    pub async fn device_login(&self) -> Result<DeviceLogin, Error> {
        let path = ["v1", "login", "device"];
        let body = serde_json::Map::new();
        self.write("begin to log in", &path, &body).await
    }

    pub async fn session_token(
        &self,
        operation: &str,
        asked: &TokenRequest,
    ) -> Result<SessionAnswer, Error> {
        self.write(operation, &["v1", "login", "token"], asked)
            .await
    }

    pub async fn end_session(&self, end: &EndSession) -> Result<(), Error> {
        let operation = "end the session";
        let body =
            serde_json::to_vec(end).map_err(|e| self.unexpected(operation, e.to_string()))?;
        let call = Call {
            operation,
            method: Method::POST,
            url: self.url(&["v1", "login", "end"], &[]),
            headers: json_headers(),
            body: Some(body),
            timeout: TIMEOUT,
            repeatable: true,
        };
        self.send(call).await.map(drop)
    }
}
