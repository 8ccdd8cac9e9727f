//! Logins that anyone can begin, in numbers.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::World;

/// More than an address may begin at once.
const MANY: usize = 100;

/// Each is a write in the database: an address has its share, whoever comes then is told when to come again, and the record says
/// so once.
#[tokio::test]
async fn logins_that_begin_are_bounded_by_address() {
    let world = World::start("oidc-flood", json!({}), |_| {}).await;
    let begin = async || {
        let none = json!({});
        let answer = world.hub.ask("POST", "/v1/login/device", None, &none);
        let answer = answer.await;
        let after = answer.headers().get("retry-after").cloned();
        let code = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        let kind = body["type"].as_str().unwrap_or_default().to_owned();
        (
            code,
            kind,
            after.map(|a| a.to_str().unwrap().parse().unwrap()),
        )
    };
    let told: Vec<(u16, String, Option<u64>)> = join_all((0..MANY).map(|_| begin())).await;
    let (good, refused): (Vec<_>, Vec<_>) = told.into_iter().partition(|t| t.0 == 200);
    // One more is earned every two seconds.
    assert!((60..MANY).contains(&good.len()), "{}", good.len());
    for (code, kind, after) in refused {
        assert_eq!((code, kind.as_str()), (429, "urn:linesman:problem:busy"));
        assert!(after.is_some_and(|s| (1..=2).contains(&s)), "{after:?}");
    }
    // A browser gets a page that says the same, at whatever page it begins.
    let url = world.login_url();
    let path = url.strip_prefix(&world.hub.hub.config.url).unwrap();
    let pages = join_all((0..5).map(|_| world.hub.raw("GET", path))).await;
    let refused = pages.iter().find(|page| page.status() == 429).unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    let rows = world.hub.hub.store.audit_tail(None, 500).await.unwrap();
    let denied: Vec<(&str, &str)> = rows
        .iter()
        .filter(|row| row.verdict == "deny")
        .map(|row| (row.target.as_str(), row.reason.as_deref().unwrap()))
        .collect();
    let why = "too many logins were begun from this address";
    assert_eq!(denied, [("by device", why), ("by browser", why)]);
    world.hub.stop().await;
}

/// Whoever asks for tokens again and again, and gets none, is told to wait before anything is looked up; whoever gets them has
/// no bound.
#[tokio::test]
async fn attempts_to_get_tokens_that_go_wrong_are_bounded_by_address() {
    let world = World::start("oidc-token-flood", json!({}), |_| {}).await;
    let mut session = world.log_in().await;
    for n in 0..MANY {
        let (code, next) = world.refresh(&session).await;
        assert_eq!(code, 200, "{n}: {next}");
        session = next;
    }
    let wrong = json!({"grant": "refresh", "refreshToken": "lmr1.none.none"});
    let ask = async || {
        let answer = world.hub.ask("POST", "/v1/login/token", None, &wrong);
        let answer = answer.await;
        let after = answer.headers().get("retry-after").cloned();
        let after = after.map(|a| a.to_str().unwrap().parse::<u64>().unwrap());
        (answer.status().as_u16(), after)
    };
    let told = join_all((0..MANY).map(|_| ask())).await;
    let (bounded, judged): (Vec<_>, Vec<_>) = told.into_iter().partition(|t| t.0 == 429);
    assert!((60..MANY).contains(&judged.len()), "{}", judged.len());
    assert!(judged.iter().all(|told| *told == (401, None)), "{judged:?}");
    let soon = |after: Option<u64>| after.is_some_and(|s| (1..=2).contains(&s));
    assert!(bounded.iter().all(|told| soon(told.1)), "{bounded:?}");
    let why = "too many attempts to get tokens from this address went wrong";
    let record = world.record().await;
    let said: Vec<_> = record.iter().filter(|(.., reason)| reason == why).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    // Other logins have a share of their own.
    let none = json!({});
    let begun = world.hub.ask("POST", "/v1/login/device", None, &none).await;
    assert_eq!(begun.status(), 200);
    world.hub.stop().await;
}

/// The same of who ends sessions by tokens that are not good; each end that is one has no bound, and neither is kept from the
/// other by what goes wrong for it.
#[tokio::test]
async fn attempts_to_end_sessions_that_go_wrong_are_bounded_by_address() {
    let world = World::start("oidc-end-flood", json!({}), |_| {}).await;
    let ask = async |path: &str, token: &Value| {
        let mut body = json!({"refreshToken": token});
        if path == "/v1/login/token" {
            body["grant"] = json!("refresh");
        }
        let answer = world.hub.ask("POST", path, None, &body).await;
        let after = answer.headers().get("retry-after").cloned();
        let after = after.map(|a| a.to_str().unwrap().parse::<u64>().unwrap());
        (answer.status().as_u16(), after)
    };
    let wrong = json!("lmr1.none.none");
    let [kept, ended] = [world.log_in().await, world.log_in().await];
    assert_eq!(
        ask("/v1/login/end", &ended["refreshToken"]).await,
        (204, None)
    );
    let told = join_all((0..MANY).map(|_| ask("/v1/login/end", &wrong))).await;
    let (bounded, judged): (Vec<_>, Vec<_>) = told.into_iter().partition(|t| t.0 == 429);
    assert!((60..MANY).contains(&judged.len()), "{}", judged.len());
    assert!(judged.iter().all(|told| *told == (204, None)), "{judged:?}");
    let soon = |after: Option<u64>| after.is_some_and(|s| (1..=2).contains(&s));
    assert!(bounded.iter().all(|told| soon(told.1)), "{bounded:?}");
    let why = "too many attempts to end sessions from this address went wrong";
    let record = world.record().await;
    let said: Vec<_> = record.iter().filter(|(.., reason)| reason == why).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    // Tokens are another matter.
    assert_eq!(ask("/v1/login/token", &kept["refreshToken"]).await.0, 200);
    world.hub.stop().await;
}
