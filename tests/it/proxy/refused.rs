//! Refusals of the API server and of the agent: whose each is, and what is tried again.

use ::http::Request;
use bytes::Bytes;

use super::apiserver::{self, ApiServer};
use super::pair::Pair;
use super::world::{get, post};
use super::{status, text};

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_a_request_without_body() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.accept_only("Bearer line-token-2");
    let get = || get("/api/v1/pods");
    let response = pair.send(get()).await.unwrap();
    assert_eq!(response.status(), 200);
    // Between the two the line asks whose refusal it was.
    assert_eq!((server.asked("/api/v1/pods"), server.seen().len()), (2, 3));
    server.accept_only("Bearer another");
    let response = pair.send(get()).await.unwrap();
    assert_eq!(response.status(), 502);
    let body = status(response).await;
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("check Secret linesman-line-bind"),
        "{body}"
    );
    assert_eq!(body["details"]["causes"][0]["field"], "api server");
}

#[tokio::test]
async fn an_unseen_role_is_waited_for_and_a_write_is_not_repeated() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.refuse_impersonation(2);
    let response = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!(response.status(), 200);
    server.refuse_impersonation(1);
    let post = || post("/api/v1/namespaces/a/echo", "x");
    let before = server.seen().len();
    let response = pair.send(post()).await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(server.seen().len(), before + 1);
    assert_eq!(pair.send(post()).await.unwrap().status(), 201);
}

/// L11: a Pod that says what the API server says of the line's rights is asked once, and its words are the user's.
#[tokio::test]
async fn what_is_behind_the_api_server_does_not_say_whom_the_line_may_act_as() {
    const LYING: &str = "/api/v1/namespaces/a/pods/p/proxy/lying";
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for (n, asked) in [get(LYING), post(LYING, "x")].into_iter().enumerate() {
        let response = pair.send(asked).await.unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(text(response).await, apiserver::NOT_ACTING);
        assert_eq!(server.asked("/lying"), n + 1);
    }
    // The API server itself is taken at its word there, too.
    server.refuse_impersonation(2);
    let response = pair
        .send(get("/api/v1/namespaces/a/pods/p/proxy/fine"))
        .await;
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(server.asked("/fine"), 2);
}

/// L11: the API server quotes what was asked for, whatever it is called; the role is not written anew for that, and nothing is asked
/// twice.
#[tokio::test]
async fn a_name_in_the_path_does_not_pass_for_a_refusal_of_the_lines_account() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for name in [
        "cannot impersonate resource system:serviceaccount:",
        "\" is forbidden: User \"system:serviceaccount:linesman:linesman-line\" cannot impersonate resource \"users",
    ] {
        let escaped = name.replace(' ', "%20").replace('"', "%22");
        let path = format!("{}{escaped}", apiserver::CLOSED);
        for (n, asked) in [get(&path), post(&path, "x")].into_iter().enumerate() {
            let response = pair.send(asked).await.unwrap();
            assert_eq!(response.status(), 403);
            assert_eq!(text(response).await, apiserver::not_read(name));
            assert_eq!(server.asked(&path), n + 1);
        }
    }
    assert_eq!(pair.anew(), 0);
    server.refuse_impersonation(1);
    let response = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!((response.status().as_u16(), pair.anew()), (200, 1));
}

#[tokio::test]
async fn the_users_own_403_passes_unchanged() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let response = pair.send(get("/api/v1/forbidden")).await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(text(response).await, apiserver::FORBIDDEN);
}

#[tokio::test]
async fn an_api_server_that_is_down_is_named() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.stop().await;
    let response = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!(response.status(), 502);
    assert!(!response.headers().contains_key("retry-after"));
    let body = status(response).await;
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .starts_with("api server: the agent cannot connect"),
        "{body}"
    );
}

#[tokio::test]
async fn the_agent_refuses_an_assertion_for_another_request() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let meta = pair.meta("GET", "/api/v1/pods");
    let delete = Request::delete("/api/v1/pods").body(Bytes::new()).unwrap();
    let response = pair.send_with(delete, meta).await.unwrap();
    assert_eq!(response.status(), 403);
    let body = status(response).await;
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .starts_with("agent: the assertion is for another request"),
        "{body}"
    );
    assert_eq!(server.seen().len(), 0);
}

/// L17: an end that was suspended has another time than its line. Nothing is sent on, and another line is asked for.
#[tokio::test]
async fn a_line_whose_ends_do_not_agree_on_the_time_is_replaced() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for (apart, code, renewals) in [(0, 200, 0), (9, 200, 0), (-30, 503, 1), (90, 503, 2)] {
        pair.set_apart(apart);
        let response = pair.send(get("/api/v1/pods")).await.unwrap();
        let retry = response.headers().get("retry-after").cloned();
        let told = (response.status().as_u16(), pair.set_apart(0));
        assert_eq!(told, (code, renewals), "{apart} s apart");
        assert_eq!(retry.is_some(), code == 503, "{apart} s apart");
    }
    assert_eq!(server.seen().len(), 2);
}

/// H36: what the hub lets through, the owner of the cluster may still refuse.
#[tokio::test]
async fn the_owners_policy_holds_at_the_next_request() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let get = || get("/api/v1/pods");
    assert_eq!(pair.send(get()).await.unwrap().status(), 200);
    pair.policy("line", "off");
    let response = pair.send(get()).await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(
        status(response).await["message"]
            .as_str()
            .unwrap()
            .contains("'line' in ConfigMap linesman-policy")
    );
    pair.policy("readOnly", "true");
    assert_eq!(pair.send(get()).await.unwrap().status(), 200);
    let delete = Request::delete("/clusters/eu1/api/v1/pods")
        .body(Bytes::new())
        .unwrap();
    assert_eq!(pair.send(delete).await.unwrap().status(), 403);
}
