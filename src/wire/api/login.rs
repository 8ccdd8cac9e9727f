//! Bodies about logging in: with an identity provider, or with a code that an admin gave.

use serde::{Deserialize, Serialize};

/// `POST /v1/login/device`: a program without a browser asks for a code that its person types elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLogin {
    /// What the program shows when it asks again.
    pub device_code: String,
    /// What the person types, `BCDF-GHJK`.
    pub user_code: String,
    pub verification_uri: String,
    /// The same with the code in it.
    pub verification_uri_complete: String,
    /// Seconds.
    pub expires_in: u32,
    /// Seconds between two questions at least.
    pub interval: u32,
}

/// `POST /v1/login/token`: something for a session's tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "grant", deny_unknown_fields)]
pub enum TokenRequest {
    /// The one-time code that came to the loopback listener, and what its challenge was made of (RFC 7636).
    #[serde(rename_all = "camelCase")]
    Code { code: String, verifier: String },
    #[serde(rename_all = "camelCase")]
    Device { device_code: String },
    #[serde(rename_all = "camelCase")]
    Refresh { refresh_token: String },
    /// The code of a local user, `lml1.…`, that an admin made.
    #[serde(rename_all = "camelCase")]
    LoginCode { login_code: String },
}

/// `POST /v1/users/{name}/login-codes`: the only time that the code is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginCode {
    pub user: String,
    /// Good once.
    pub code: String,
    /// RFC 3339.
    pub expires_at: String,
}

/// The answer, and the only time that these tokens are shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionAnswer {
    pub user: String,
    pub access_token: String,
    /// RFC 3339.
    pub access_expires_at: String,
    /// Good once: the next answer holds the next one.
    pub refresh_token: String,
    /// RFC 3339; when one has to log in again at the latest.
    pub expires_at: String,
}

/// `POST /v1/login/end`: ends the session of a refresh token, used or not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndSession {
    pub refresh_token: String,
}
