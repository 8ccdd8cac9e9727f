//! One call to the provider: what is asked, as which client, and how much of an answer is read.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::discovery::ClientAuth;
use super::{OidcError, Provider};
use crate::secret::Secret;

/// Of one call, and of the wait for its place.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: usize = 256 << 10;

impl Provider {
    pub(super) async fn userinfo(&self, url: &str, access: &str) -> Result<Value, OidcError> {
        let text = self.get(url, Some(access), MAX_ANSWER).await?;
        serde_json::from_slice(&text).map_err(|_| OidcError::Answer {
            url: url.to_owned(),
            status: 200,
            said: "userinfo that is not JSON".to_owned(),
        })
    }

    pub(super) async fn token(&self, form: &[(&str, &str)]) -> Result<TokenAnswer, OidcError> {
        let url = self.discovery().await?.token;
        let (status, text) = self.post(&url, form).await?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&text).map_err(|_| OidcError::Answer {
                url,
                status,
                said: "something that is not a token answer".to_owned(),
            });
        }
        let error: TokenRefusal = serde_json::from_slice(&text).unwrap_or_default();
        let said = error.words();
        // Only this one is about the person; all others are about the hub or about the moment (RFC 6749 §5.2).
        if error.error == "invalid_grant" {
            return Err(OidcError::Refused(said));
        }
        Err(OidcError::Answer { url, status, said })
    }

    /// Posts a form as the client that the hub is.
    pub(super) async fn post(
        &self,
        url: &str,
        form: &[(&str, &str)],
    ) -> Result<(u16, Vec<u8>), OidcError> {
        let secret = self.secret().await?;
        let mut form = form.to_vec();
        let mut request = self.http()?.post(url).header("accept", "application/json");
        match (&secret, self.discovery().await?.client_auth) {
            (None, _) => form.push(("client_id", &self.config.client_id)),
            (Some(secret), ClientAuth::Post) => {
                form.push(("client_id", &self.config.client_id));
                form.push(("client_secret", secret.expose()));
            }
            (Some(secret), ClientAuth::Basic) => {
                // RFC 6749 §2.3.1: both are form-encoded before they are put together.
                let pair = format!(
                    "{}:{}",
                    encoded(&self.config.client_id),
                    encoded(secret.expose())
                );
                request =
                    request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
            }
        }
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(query(&form));
        self.send(request, url, MAX_ANSWER).await
    }

    pub(super) async fn get(
        &self,
        url: &str,
        bearer: Option<&str>,
        most: usize,
    ) -> Result<Vec<u8>, OidcError> {
        let mut request = self.http()?.get(url).header("accept", "application/json");
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        let (status, text) = self.send(request, url, most).await?;
        if status == 200 {
            return Ok(text);
        }
        Err(OidcError::Answer {
            url: url.to_owned(),
            status,
            said: "instead of the document".to_owned(),
        })
    }

    /// No redirects are followed: a token or a secret must not go where nobody sent it.
    fn http(&self) -> Result<reqwest::Client, OidcError> {
        crate::client::http(self.config.ca.as_deref()).map_err(OidcError::Setup)
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        most: usize,
    ) -> Result<(u16, Vec<u8>), OidcError> {
        let unreachable = |source: reqwest::Error| OidcError::Unreachable {
            url: url.to_owned(),
            // Its text would show the URL once more.
            source: source.without_url(),
        };
        let _place = place(&self.calls).await?;
        let mut response = request.timeout(TIMEOUT).send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if text.len() + chunk.len() > most {
                return Err(OidcError::Answer {
                    url: url.to_owned(),
                    status,
                    said: format!("more than {most} bytes"),
                });
            }
            text.extend_from_slice(&chunk);
        }
        Ok((status, text))
    }

    async fn secret(&self) -> Result<Option<Secret<String>>, OidcError> {
        let Some(path) = &self.config.client_secret_file else {
            return Ok(None);
        };
        let text = tokio::fs::read_to_string(path).await;
        let text = text.map_err(|source| OidcError::Secret {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Some(Secret::new(text.trim().to_owned())))
    }
}

#[derive(Deserialize)]
#[expect(
    clippy::struct_field_names,
    reason = "the fields of RFC 6749 and OpenID Connect"
)]
pub(super) struct TokenAnswer {
    pub(super) access_token: Option<String>,
    pub(super) id_token: Option<String>,
    pub(super) refresh_token: Option<String>,
}

#[derive(Default, Deserialize)]
struct TokenRefusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl TokenRefusal {
    fn words(&self) -> String {
        if self.error.is_empty() {
            return "no reason".to_owned();
        }
        plain(&format!("{} {}", self.error, self.error_description))
    }
}

/// A place among the callers. A provider that stalls does not make a queue behind it that only grows.
pub(super) async fn place(of: &Semaphore) -> Result<SemaphorePermit<'_>, OidcError> {
    let place = tokio::time::timeout(TIMEOUT, of.acquire()).await;
    place.ok().and_then(Result::ok).ok_or(OidcError::Busy)
}

/// A foreign text as it may stand in a message: short, on one line.
pub fn plain(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(200).collect::<String>().trim().to_owned()
}

/// A URL with these parameters behind those that it has.
pub fn with_query(url: &str, pairs: &[(&str, &str)]) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{}", query(pairs))
}

fn query(pairs: &[(&str, &str)]) -> String {
    let mut url = Url::parse("x:/").expect("a constant URL");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

fn encoded(text: &str) -> String {
    query(&[("", text)]).trim_start_matches('=').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_once() {
        assert_eq!(
            with_query(
                "https://id/a?x=1",
                &[("scope", "openid a&b"), ("state", "ü=")]
            ),
            "https://id/a?x=1&scope=openid+a%26b&state=%C3%BC%3D"
        );
        assert_eq!(
            with_query("https://id/a", &[("a", "b")]),
            "https://id/a?a=b"
        );
        assert_eq!(encoded("a:b c"), "a%3Ab+c");
    }

    /// Who comes behind a provider that stalls is told so, in time.
    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_place_ends() {
        let places = Semaphore::new(1);
        let began = tokio::time::Instant::now();
        let first = place(&places).await.unwrap();
        assert!(matches!(place(&places).await, Err(OidcError::Busy)));
        assert_eq!(began.elapsed().as_secs(), TIMEOUT.as_secs());
        drop(first);
        assert!(place(&places).await.is_ok());
    }

    #[test]
    fn foreign_words_are_short_and_on_one_line() {
        assert_eq!(plain(" a\r\nb\u{1b}[1m "), "a  b [1m");
        assert_eq!(plain(&"x".repeat(900)).len(), 200);
    }
}
