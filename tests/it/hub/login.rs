//! Logging in with a real identity provider, over the hub's pages and API.

use linesman::hub::auth::Role;
use linesman::hub::login::pending::challenge;
use linesman::hub::oidc::Config;
use linesman::keys;
use serde_json::{Value, json};

use super::slug;
use super::support::TestHub;
use crate::provider::{Browser, Idp, Seen};

mod codes;
mod flood;
mod holders;
mod replicas;
mod sessions;
mod vouched;

const REDIRECT: &str = "http://127.0.0.1:9/done";
const VERIFIER: &str = "the-verifier-of-a-program-that-waits-for-its-browser";

struct World {
    hub: TestHub,
    idp: Idp,
}

impl World {
    async fn start(name: &str, options: Value, change: impl FnOnce(&mut Config)) -> Self {
        let mut idp = None;
        let hub = TestHub::with_oidc(name, |url| {
            let provider = Idp::start(url, options);
            let mut config = provider.config();
            change(&mut config);
            idp = Some(provider);
            config
        })
        .await;
        let idp = idp.unwrap();
        idp.account("ada", "ada", &["sre", "dev"]).await;
        Self { hub, idp }
    }

    fn browser(&self) -> Browser {
        Browser::new(&std::fs::read_to_string(self.hub.data().join("ca.crt")).unwrap())
    }

    fn login_url(&self) -> String {
        let state = keys::encode(&[3; 16]);
        let challenge = challenge(VERIFIER);
        format!(
            "{}/login?redirect={REDIRECT}&challenge={challenge}&state={state}",
            self.hub.hub.config.url
        )
    }

    async fn call(&self, path: &str, body: Value) -> (u16, Value) {
        self.hub.call_as("", ("POST", path), &[], &body).await
    }

    async fn token(&self, body: Value) -> (u16, Value) {
        self.call("/v1/login/token", body).await
    }

    /// Through the browser to a session.
    async fn log_in(&self) -> Value {
        let seen = self.browser().open(&self.login_url()).await;
        let code = seen.parameter("code").unwrap_or_else(|| panic!("{seen:?}"));
        let (status, session) = self
            .token(json!({"grant": "code", "code": code, "verifier": VERIFIER}))
            .await;
        assert_eq!(status, 200, "{session}");
        session
    }

    async fn refresh(&self, session: &Value) -> (u16, Value) {
        self.token(json!({"grant": "refresh", "refreshToken": session["refreshToken"]}))
            .await
    }

    async fn whoami(&self, session: &Value) -> (u16, Value) {
        let token = session["accessToken"].as_str().unwrap();
        self.hub
            .call_as(token, ("GET", "/v1/whoami"), &[], &Value::Null)
            .await
    }

    /// Action, verdict and reason of what is on record.
    async fn record(&self) -> Vec<(String, String, String)> {
        let rows = self.hub.hub.store.audit_tail(None, 100).await.unwrap();
        let rows = rows.into_iter();
        rows.map(|r| (r.action, r.verdict, r.reason.unwrap_or_default()))
            .collect()
    }
}

fn refused(seen: &Seen) -> (String, String) {
    let said = |name| seen.parameter(name).unwrap_or_default();
    (said("error"), said("error_description"))
}

/// H31, by browser: code, PKCE and nonce; the name, groups and roles are the provider's.
#[tokio::test]
async fn a_person_logs_in_with_a_browser() {
    let world = World::start("oidc-browser", json!({}), |config| {
        config.roles = vec![
            (Role::Operator, "sre".to_owned()),
            (Role::Admin, "nobody".to_owned()),
        ];
    })
    .await;
    let seen = world.browser().open(&world.login_url()).await;
    assert_eq!(seen.parameter("state"), Some(keys::encode(&[3; 16])));
    let code = seen.parameter("code").unwrap();
    // A code is no one's who only saw it.
    let other = world
        .browser()
        .open(&world.login_url())
        .await
        .parameter("code")
        .unwrap();
    let (status, problem) = world
        .token(json!({"grant": "code", "code": other, "verifier": "guessed"}))
        .await;
    assert_eq!((status, slug(&problem)), (400, "expired-token"));
    let redeem = json!({"grant": "code", "code": code, "verifier": VERIFIER});
    let (status, session) = world.token(redeem.clone()).await;
    assert_eq!(
        (status, &session["user"]),
        (200, &json!("ada")),
        "{session}"
    );
    assert_eq!(slug(&world.token(redeem).await.1), "expired-token");
    let (status, me) = world.whoami(&session).await;
    assert_eq!(
        (status, &me["groups"], &me["roles"]),
        (200, &json!(["dev", "sre"]), &json!(["operator"]))
    );
    assert_eq!(me["expiresAt"], session["accessExpiresAt"]);
    // Neither half of a pair is good for the other's use.
    let crossed =
        json!({"accessToken": session["refreshToken"], "refreshToken": session["accessToken"]});
    assert_eq!(
        (
            world.whoami(&crossed).await.0,
            world.refresh(&crossed).await.0
        ),
        (401, 401)
    );
    let rows = world.hub.hub.store.audit_tail(None, 100).await.unwrap();
    let login = rows.iter().find(|r| r.action == "login").unwrap();
    assert_eq!(
        (login.actor.as_str(), login.target.as_str()),
        ("user:ada", "by browser, groups [\"dev\", \"sre\"]")
    );
    let database = world.hub.stored().await;
    for secret in [&session["accessToken"], &session["refreshToken"]] {
        let text = secret
            .as_str()
            .unwrap()
            .rsplit('.')
            .next()
            .unwrap()
            .as_bytes();
        assert!(!database.windows(text.len()).any(|w| w == text));
    }
    world.hub.stop().await;
}

/// A confidential client, ES256, claims from userinfo only: as many providers have it.
#[tokio::test]
async fn a_provider_with_a_client_secret_and_userinfo_works() {
    let secret = std::env::temp_dir().join(format!("linesman-oidc-secret-{}", std::process::id()));
    std::fs::write(&secret, "s3cr:t &more\n").unwrap();
    let options = json!({"secret": "s3cr:t &more", "algorithm": "ES256", "userinfo": true});
    let world = World::start("oidc-secret", options, |config| {
        config.client_secret_file = Some(secret.clone());
        config.mapping.username_prefix = "corp:".to_owned();
        config.mapping.groups_prefix = "idp:".to_owned();
    })
    .await;
    let session = world.log_in().await;
    let (_, me) = world.whoami(&session).await;
    assert_eq!(
        (&me["user"], &me["groups"]),
        (&json!("corp:ada"), &json!(["idp:dev", "idp:sre"]))
    );
    world.idp.account("ada", "ada", &["dev"]).await;
    let (status, next) = world.refresh(&session).await;
    assert_eq!(status, 200, "{next}");
    assert_eq!(world.whoami(&next).await.1["groups"], json!(["idp:dev"]));
    // Each refresh token of the provider counts once: the next one is kept, whatever fails after it was given.
    world.idp.control("away", json!({"paths": ["/me"]})).await;
    let (status, problem) = world.refresh(&next).await;
    assert_eq!(
        (status, slug(&problem)),
        (502, "provider-unavailable"),
        "{problem}"
    );
    world.idp.control("away", json!({"paths": []})).await;
    let (status, next) = world.refresh(&next).await;
    assert_eq!(status, 200, "{next}");
    // A wrong secret is the hub's fault and ends nobody's session.
    std::fs::write(&secret, "wrong").unwrap();
    let (status, problem) = world.refresh(&next).await;
    assert_eq!(
        (status, slug(&problem)),
        (502, "provider-unavailable"),
        "{problem}"
    );
    std::fs::write(&secret, "s3cr:t &more").unwrap();
    assert_eq!(world.refresh(&next).await.0, 200);
    std::fs::remove_file(secret).unwrap();
    world.hub.stop().await;
}

/// H31, by device (RFC 8628).
#[tokio::test]
async fn a_person_logs_a_device_in() {
    let world = World::start("oidc-device", json!({}), |_| {}).await;
    let (_, device) = world.call("/v1/login/device", json!({})).await;
    assert_eq!(
        (&device["interval"], &device["expiresIn"]),
        (&json!(5), &json!(600))
    );
    let ask = json!({"grant": "device", "deviceCode": device["deviceCode"]});
    assert_eq!(
        slug(&world.token(ask.clone()).await.1),
        "authorization-pending"
    );
    assert_eq!(slug(&world.token(ask.clone()).await.1), "slow-down");
    let page = format!("{}/device", world.hub.hub.config.url);
    let mut browser = world.browser();
    let shown = browser
        .open(device["verificationUriComplete"].as_str().unwrap())
        .await;
    assert!(
        shown.body.contains(device["userCode"].as_str().unwrap()),
        "{shown:?}"
    );
    let wrong = browser.submit(&page, "code=AAAA-AAAA").await;
    assert!(
        wrong.status == 404 && wrong.body.contains("No device waits"),
        "{wrong:?}"
    );
    let typed = device["userCode"]
        .as_str()
        .unwrap()
        .to_lowercase()
        .replace('-', "+");
    let done = browser.submit(&page, &format!("code={typed}")).await;
    let goes_on = format!("goes on as ada at {}. Go back", world.hub.hub.config.url);
    assert!(
        done.status == 200 && done.body.contains(&goes_on) && done.body.contains("cluster list"),
        "{done:?}"
    );
    let (status, session) = world.token(ask.clone()).await;
    assert_eq!(
        (status, &session["user"]),
        (200, &json!("ada")),
        "{session}"
    );
    assert_eq!(slug(&world.token(ask).await.1), "expired-token");
    // A no is told to the device.
    let (_, device) = world.call("/v1/login/device", json!({})).await;
    world.idp.comes(None).await;
    let form = format!("code={}", device["userCode"].as_str().unwrap());
    let refused = world.browser().submit(&page, &form).await;
    assert!(
        refused.status == 403 && refused.body.contains("access_denied"),
        "{refused:?}"
    );
    let ask = json!({"grant": "device", "deviceCode": device["deviceCode"]});
    let (status, problem) = world.token(ask).await;
    assert_eq!((status, slug(&problem)), (400, "access-denied"));
    world.hub.stop().await;
}

#[tokio::test]
async fn who_may_not_come_in_is_told_why() {
    let world = World::start("oidc-refused", json!({}), |_| {}).await;
    let mut browser = world.browser();
    world.idp.comes(None).await;
    let seen = browser.open(&world.login_url()).await;
    let (error, why) = refused(&seen);
    assert!(
        error == "access_denied" && why.contains("the person said no"),
        "{seen:?}"
    );
    // A local user's name is not to be had by choosing it at the provider.
    world.idp.account("eve", "admin", &[]).await;
    world.idp.comes(Some("eve")).await;
    let (_, why) = refused(&world.browser().open(&world.login_url()).await);
    assert_eq!(why, "the name admin belongs to another user of this hub");
    world.idp.account("eve", "two words", &[]).await;
    let (_, why) = refused(&world.browser().open(&world.login_url()).await);
    assert!(why.contains("the name 'two words' does not fit"), "{why}");
    // Removed here: whatever the provider says, until an admin wants them back.
    world.idp.comes(Some("ada")).await;
    let session = world.log_in().await;
    assert_eq!(world.hub.delete("/v1/users/ada", Some("*")).await, 204);
    assert_eq!(
        (
            world.whoami(&session).await.0,
            world.refresh(&session).await.0
        ),
        (401, 401)
    );
    let (_, why) = refused(&world.browser().open(&world.login_url()).await);
    assert_eq!(why, "ada was removed from this hub");
    assert_eq!(
        world.hub.post("/v1/users", &json!({"name": "ada"})).await.0,
        201
    );
    assert_eq!(world.whoami(&world.log_in().await).await.0, 200);
    // A new name is the same person, with the same grants.
    let grant = json!({"subject": "user:ada", "clusters": "all", "groups": ["view"]});
    assert_eq!(world.hub.post("/v1/grants", &grant).await.0, 201);
    world.idp.account("ada", "ada.lovelace", &[]).await;
    assert_eq!(world.log_in().await["user"], "ada.lovelace");
    let (_, grants) = world.hub.get("/v1/grants").await;
    assert!(grants.to_string().contains("user:ada.lovelace"), "{grants}");
    let denied = world
        .record()
        .await
        .into_iter()
        .filter(|(a, v, _)| a == "login" && v == "deny")
        .count();
    assert_eq!(denied, 4);
    world.hub.stop().await;
}

#[tokio::test]
async fn a_forged_way_back_is_refused() {
    let world = World::start("oidc-forged", json!({}), |_| {}).await;
    let hub = world.hub.hub.config.url.clone();
    // Began in another browser: the state alone is not enough.
    let mut victim = world.browser();
    victim.until = format!("{hub}/login/callback");
    let stolen = victim.open(&world.login_url()).await;
    let seen = world.browser().open(&stolen.url).await;
    assert!(
        seen.status == 403 && seen.body.contains("is not known here"),
        "{seen:?}"
    );
    // The answer of another provider (RFC 9207).
    let other = stolen.url.replace("iss=http", "iss=https");
    victim.until = "http://127.0.0.1:9/".to_owned();
    let (error, why) = refused(&victim.open(&other).await);
    assert!(
        error == "access_denied" && why.contains("not from the identity provider"),
        "{why}"
    );
    // It was spent by that.
    assert_eq!(victim.open(&stolen.url).await.status, 403);
    for query in [
        "redirect=https://evil.example/&challenge=x&state=y",
        "redirect=http://127.0.0.1:9/",
        "",
    ] {
        assert_eq!(
            world
                .browser()
                .open(&format!("{hub}/login?{query}"))
                .await
                .status,
            400
        );
    }
    world.hub.stop().await;
}

#[tokio::test]
async fn keys_that_the_provider_changes_are_found() {
    let world = World::start("oidc-keys", json!({}), |_| {}).await;
    let session = world.log_in().await;
    world.idp.control("keys", json!({})).await;
    let (status, next) = world.refresh(&session).await;
    assert_eq!(status, 200, "{next}");
    world.idp.control("keys", json!({})).await;
    assert_eq!(world.log_in().await["user"], "ada");
    let (_, checks) = world.hub.get("/v1/hub/checks").await;
    let found = checks
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "identity provider")
        .unwrap();
    assert_eq!(found["ok"], true, "{found}");
    world.hub.stop().await;
}
