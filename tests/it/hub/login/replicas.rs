//! H31 with two replicas behind nothing that keeps a person at one of them: whichever is asked next goes on.

use std::time::Duration;

use linesman::hub::login::pending::{WRONG, challenge};
use linesman::keys;
use serde_json::{Value, json};

use super::{REDIRECT, VERIFIER};
use crate::hub::slug;
use crate::hub::support::TestHub;
use crate::provider::{Browser, Idp};

struct Pair {
    a: TestHub,
    b: TestHub,
    idp: Idp,
}

impl Pair {
    async fn start(name: &str) -> Self {
        let mut idp = None;
        let [a, b] = TestHub::replicas_with_oidc(name, |url| {
            let provider = Idp::start(url, json!({}));
            let config = provider.config();
            idp = Some(provider);
            config
        })
        .await;
        let idp = idp.unwrap();
        idp.account("ada", "ada", &["sre"]).await;
        Self { a, b, idp }
    }

    /// Of somebody whom the balancer sends to either; forms are those of the one public address.
    fn browser(&self) -> Browser {
        let ca = std::fs::read_to_string(self.a.data().join("ca.crt")).unwrap();
        let mut browser = Browser::new(&ca);
        browser.origin = Some(self.a.hub.config.url.clone());
        browser
    }

    async fn end(self) {
        self.a.leave().await;
        self.b.stop().await;
    }
}

fn at(hub: &TestHub, path: &str) -> String {
    format!("https://localhost:{}{path}", hub.hub.config.listen.port())
}

async fn call(hub: &TestHub, path: &str, body: Value) -> (u16, Value) {
    hub.call_as("", ("POST", path), &[], &body).await
}

async fn token(hub: &TestHub, body: &Value) -> (u16, Value) {
    call(hub, "/v1/login/token", body.clone()).await
}

/// The provider sends everyone back to the hub's one address, which is the first replica here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_let_in_by_whichever_replica_is_asked() {
    let pair = Pair::start("oidc-replicas-device").await;
    let (a, b) = (&pair.a, &pair.b);
    let (_, device) = call(a, "/v1/login/device", json!({})).await;
    let ask = json!({"grant": "device", "deviceCode": device["deviceCode"]});
    for (hub, said) in [
        (b, "authorization-pending"),
        // The interval is the device's, not the replica's.
        (a, "slow-down"),
        (b, "slow-down"),
    ] {
        let (code, problem) = token(hub, &ask).await;
        assert_eq!((code, slug(&problem)), (400, said));
    }
    let form = format!("code={}", device["userCode"].as_str().unwrap());
    let done = pair.browser().submit(&at(b, "/device"), &form).await;
    assert!(
        done.status == 200 && done.body.contains("goes on as ada"),
        "{done:?}"
    );
    let (code, session) = token(b, &ask).await;
    assert_eq!((code, &session["user"]), (200, &json!("ada")), "{session}");
    assert_eq!(slug(&token(a, &ask).await.1), "expired-token");
    // Either knows the session.
    let access = session["accessToken"].as_str().unwrap();
    for hub in [a, b] {
        let me = hub.call_as(access, ("GET", "/v1/whoami"), &[], &Value::Null);
        assert_eq!(me.await.0, 200);
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_comes_back_to_another_replica_than_it_began_at() {
    let pair = Pair::start("oidc-replicas-browser").await;
    let (a, b) = (&pair.a, &pair.b);
    let (state, challenge) = (keys::encode(&[3; 16]), challenge(VERIFIER));
    let begin = at(
        b,
        &format!("/login?redirect={REDIRECT}&challenge={challenge}&state={state}"),
    );
    let seen = pair.browser().open(&begin).await;
    let code = seen.parameter("code").unwrap_or_else(|| panic!("{seen:?}"));
    let redeem = json!({"grant": "code", "code": code, "verifier": VERIFIER});
    let (status, session) = token(b, &redeem).await;
    assert_eq!(status, 200, "{session}");
    assert_eq!(slug(&token(a, &redeem).await.1), "expired-token");
    // Another browser than the one that began is refused at either.
    let mut victim = pair.browser();
    victim.until = at(a, "/login/callback");
    let stolen = victim.open(&begin).await;
    let seen = pair.browser().open(&stolen.url).await;
    assert_eq!(seen.status, 403, "{seen:?}");
    pair.end().await;
}

/// H31, H33: the provider's refresh token is shown to it once, whoever is asked at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_at_each_replica_asks_the_provider_once() {
    let pair = Pair::start("oidc-replicas-refresh").await;
    let (a, b) = (&pair.a, &pair.b);
    let (_, device) = call(a, "/v1/login/device", json!({})).await;
    let form = format!("code={}", device["userCode"].as_str().unwrap());
    pair.browser().submit(&at(b, "/device"), &form).await;
    let ask = json!({"grant": "device", "deviceCode": device["deviceCode"]});
    let (_, session) = token(a, &ask).await;
    let again = json!({"grant": "refresh", "refreshToken": session["refreshToken"]});
    let all = futures_util::future::join_all([a, b, a, b, a, b].map(|hub| token(hub, &again)));
    let all = tokio::time::timeout(Duration::from_secs(30), all).await;
    for (code, next) in all.unwrap() {
        assert_eq!(code, 200, "{next}");
        let access = next["accessToken"].as_str().unwrap();
        let me = b.call_as(access, ("GET", "/v1/whoami"), &[], &Value::Null);
        assert_eq!(me.await.0, 200);
    }
    assert_eq!(pair.idp.refreshes().await, 1);
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_codes_are_counted_over_all_replicas() {
    let pair = Pair::start("oidc-replicas-guess").await;
    let guess = async |n: i64| {
        let hub = if n % 2 == 0 { &pair.a } else { &pair.b };
        let page = at(hub, "/device");
        pair.browser().submit(&page, "code=AAAA-AAAA").await.status
    };
    for n in 0..WRONG {
        assert_eq!(guess(n).await, 404, "{n}");
    }
    assert_eq!((guess(0).await, guess(1).await), (429, 429));
    pair.end().await;
}
