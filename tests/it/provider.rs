//! A real identity provider in a process of its own (`tests/oidc`), and the browser of someone who logs in there.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use linesman::hub::oidc::claims::Mapping;
use linesman::hub::oidc::{Config, Lifetimes};
use serde_json::{Value, json};

/// The provider, ended when dropped; it ends with us in any case, for it reads our end of a pipe.
pub(crate) struct Idp {
    pub(crate) issuer: String,
    child: Child,
    _stdin: ChildStdin,
    /// Kept, for it ends when it cannot write its notices.
    _stdout: BufReader<ChildStdout>,
    http: reqwest::Client,
}

fn directory() -> PathBuf {
    std::path::absolute("tests/oidc").expect("the package's root")
}

/// Where its modules are, installed once.
fn modules() -> &'static str {
    static MODULES: OnceLock<String> = OnceLock::new();
    MODULES.get_or_init(|| {
        let ran = Command::new("tests/modules")
            .arg(directory())
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "install the identity provider: {why}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    })
}

impl Idp {
    /// A provider for the hub at this URL. `options`: `secret`, `algorithm`, `userinfo`, `kid`.
    pub(crate) fn start(hub: &str, mut options: Value) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        options["redirect"] = format!("{hub}/login/callback").into();
        let mut child = Command::new("node")
            .arg(directory().join("provider.mjs"))
            .args([modules(), &options.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self {
            issuer: said["issuer"].as_str().unwrap().to_owned(),
            _stdin: child.stdin.take().unwrap(),
            _stdout: out,
            child,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    /// A hub's configuration for it, as a public client.
    pub(crate) fn config(&self) -> Config {
        Config {
            issuer: self.issuer.clone(),
            client_id: "linesman".to_owned(),
            client_secret_file: None,
            scopes: Some(
                ["openid", "profile", "email", "groups", "offline_access"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            parameters: vec![],
            mapping: Mapping::default(),
            roles: vec![],
            ca: None,
            sessions: Lifetimes::default(),
            vouched_within: linesman::hub::oidc::VOUCHED_WITHIN,
            groups_within: linesman::hub::oidc::GROUPS_WITHIN,
            keys_again: Duration::ZERO,
        }
    }

    pub(crate) async fn control(&self, what: &str, body: Value) -> Value {
        let url = format!("{}/control/{what}", self.issuer);
        let sent = self
            .http
            .post(url)
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        let text = sent.text().await.unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    /// Someone who can log in from now on.
    pub(crate) async fn account(&self, id: &str, name: &str, groups: &[&str]) {
        let claims = json!({"preferred_username": name, "groups": groups});
        self.control("account", json!({"id": id, "claims": claims}))
            .await;
    }

    /// Nobody's account any more.
    pub(crate) async fn forget(&self, id: &str) {
        self.control("account", json!({"id": id})).await;
    }

    /// Who the next browser is; None says no.
    pub(crate) async fn comes(&self, id: Option<&str>) {
        self.control("login", json!({"id": id})).await;
    }

    /// How often a refresh token was redeemed.
    pub(crate) async fn refreshes(&self) -> u64 {
        let counts = self.control("counts", Value::Null).await;
        counts["refresh_token"].as_u64().unwrap_or_default()
    }
}

impl Drop for Idp {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a browser ended up with.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Seen {
    /// A parameter of the address.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let url = reqwest::Url::parse(&self.url).unwrap();
        let found = url.query_pairs().find(|(n, _)| n == name);
        found.map(|(_, value)| value.into_owned())
    }
}

/// Follows redirects and keeps cookies, each for its own host, whatever the port.
pub(crate) struct Browser {
    http: reqwest::Client,
    cookies: HashMap<String, BTreeMap<String, String>>,
    /// Where it stops, as a program's listener would take over.
    pub(crate) until: String,
    /// What it takes the pages for that it sends forms from; None = for what their address says.
    pub(crate) origin: Option<String>,
}

impl Browser {
    /// `ca` is the hub's.
    pub(crate) fn new(ca: &str) -> Self {
        let http = linesman::client::http(Some(ca)).unwrap();
        Self {
            http,
            cookies: HashMap::new(),
            until: "http://127.0.0.1:9/".to_owned(),
            origin: None,
        }
    }

    pub(crate) async fn open(&mut self, url: &str) -> Seen {
        let url = reqwest::Url::parse(url).unwrap();
        let request = self.http.get(url.clone());
        self.follow(url, request).await
    }

    /// Sends a form from the page at this address.
    pub(crate) async fn submit(&mut self, url: &str, form: &str) -> Seen {
        let url = reqwest::Url::parse(url).unwrap();
        let own = || url.origin().ascii_serialization();
        let origin = self.origin.clone().unwrap_or_else(own);
        let request = self
            .http
            .post(url.clone())
            .header("origin", origin)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.to_owned());
        self.follow(url, request).await
    }

    async fn follow(
        &mut self,
        mut url: reqwest::Url,
        mut request: reqwest::RequestBuilder,
    ) -> Seen {
        for _ in 0..20 {
            let jar = self
                .cookies
                .entry(url.host_str().unwrap().to_owned())
                .or_default();
            let cookies: Vec<String> = jar.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let answer = request
                .header("cookie", cookies.join("; "))
                .send()
                .await
                .unwrap();
            for set in answer.headers().get_all("set-cookie") {
                let (name, rest) = set.to_str().unwrap().split_once('=').unwrap();
                let value = rest.split(';').next().unwrap();
                if value.is_empty() {
                    jar.remove(name);
                } else {
                    jar.insert(name.to_owned(), value.to_owned());
                }
            }
            let next = answer
                .headers()
                .get("location")
                .map(|l| url.join(l.to_str().unwrap()).unwrap());
            let Some(next) = next else {
                return Seen {
                    url: url.to_string(),
                    status: answer.status().as_u16(),
                    body: answer.text().await.unwrap(),
                };
            };
            if next.as_str().starts_with(&self.until) {
                return Seen {
                    url: next.to_string(),
                    status: 303,
                    body: String::new(),
                };
            }
            request = self.http.get(next.clone());
            url = next;
        }
        panic!("redirected twenty times, last to {url}");
    }
}
