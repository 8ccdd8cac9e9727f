//! The hub's own API while the records are silent: every call has its answer in time, and that of a change says what
//! became of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::BodyExt as _;
use linesman::clock;
use linesman::hub::api::openapi::{Caller, operations};
use linesman::hub::registration::{Prefix, TokenText};
use linesman::keys;
use linesman::wire::api::{SIGNATURE_HEADER, signing_input};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::cutoff::{Site, Way};
use super::world::{PATIENCE, World, identity};

/// 5 s, and what handshakes of a hundred callers take beside other tests.
const ANSWERED: Duration = Duration::from_secs(9);

/// By then nobody is known any more from the first call: the hub asks the records who it is.
const FORGOTTEN: Duration = Duration::from_secs(3);

/// Status, `Retry-After`, the problem, and how long that took.
async fn ask(world: &World, request: Request<Bytes>) -> (u16, Option<String>, Value, Duration) {
    let began = Instant::now();
    let answer = world.send(request).await;
    let after = answer.headers().get(header::RETRY_AFTER);
    let after = after.map(|after| after.to_str().unwrap().to_owned());
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    (code, after, body, began.elapsed())
}

fn call(world: &World, caller: Caller, method: &str, path: &str) -> Request<Bytes> {
    let path = path
        .replace("{name}", "eu1")
        .replace("{id}", "0197")
        .replace("{digest}", &format!("sha256:{}", "0".repeat(64)));
    let request = Request::builder().method(method).uri(&path);
    let request = match caller {
        Caller::Agent => {
            let (key, time) = (identity(), clock::now().unix_timestamp());
            let sum = keys::sha256_hex(b"");
            let input = signing_input(&world.hub.id, method, &path, time, &sum);
            let signature = keys::encode(&key.sign(input.as_bytes()));
            let key = key.public().fingerprint();
            let signed = format!("v1;key={key};t={time};sig={signature}");
            request.header(SIGNATURE_HEADER, signed)
        }
        Caller::User => request.header(header::AUTHORIZATION, format!("Bearer {}", world.admin())),
        Caller::Anyone => request,
    };
    request.body(Bytes::new()).unwrap()
}

/// Beside the proxy's requests: each call of the API, by people and by agents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_its_answer_in_time_while_the_records_are_silent() {
    let site = Site::new().await;
    let world = &site.a;
    // One that waits for something else is not cut.
    let after = world.hub.audit.head().borrow().to_owned() + 1000;
    let tail = format!("/v1/audit?after={after}&wait=7");
    let mut long = Box::pin(ask(world, call(world, Caller::User, "GET", &tail)));
    assert!(timeout(FORGOTTEN, &mut long).await.is_err());

    site.way.send_replace(Way::Silent);
    let asked = operations()
        .filter(|operation| !["/v1/join", "/v1/recover"].contains(&operation.path))
        .filter(|operation| operation.caller != Caller::Anyone)
        .map(async |operation| {
            let method = operation.method.to_uppercase();
            let request = call(world, operation.caller, &method, operation.path);
            let (code, after, problem, took) = ask(world, request).await;
            assert!(took < ANSWERED, "{operation:?}: {took:?}");
            let kind = "urn:linesman:problem:unavailable";
            let expected = (503, Some("1"), Some(kind));
            let found = (code, after.as_deref(), problem["type"].as_str());
            assert_eq!(found, expected, "{operation:?}: {problem}");
            let detail = problem["detail"].as_str().unwrap();
            // As soon as that is known, since when.
            let said = ["database does not answer", "database is away since "];
            assert!(said.iter().any(|said| detail.contains(said)), "{detail}");
        });
    let ((code, _, page, _), _) = tokio::join!(long, join_all(asked));
    assert_eq!((code, &page["items"]), (200, &Value::Array(Vec::new())));

    site.way.send_replace(Way::Open);
    let clusters = async {
        loop {
            let (code, ..) = ask(world, call(world, Caller::User, "GET", "/v1/clusters")).await;
            if code == 200 {
                return;
            }
        }
    };
    assert!(timeout(PATIENCE, clusters).await.is_ok());
}

/// H31: whoever ends a session while the records are silent hears in time that nothing was changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_to_end_while_the_records_are_silent_has_its_answer_in_time() {
    let site = Site::new().await;
    let world = &site.a;
    site.way.send_replace(Way::Silent);
    let token = TokenText::new(clock::random(), clock::random());
    let body = json!({ "refreshToken": token.text(Prefix::Refresh).expose() }).to_string();
    let request = Request::post("/v1/login/end")
        .body(Bytes::from(body))
        .unwrap();
    let (code, after, problem, took) = ask(world, request).await;
    let found = (code, after.as_deref(), problem["type"].as_str());
    let kind = "urn:linesman:problem:unavailable";
    assert_eq!(found, (503, Some("1"), Some(kind)), "{problem}");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("nothing was changed"),
        "{problem}"
    );
    // It waits as long as any other change.
    assert!(took < Duration::from_secs(18), "{took:?}");
    site.way.send_replace(Way::Open);
}

/// The database takes longer to store it than the caller waits: it may be stored or not. Gives `Retry-After` and what to do.
async fn unconfirmed(key: Option<&str>) -> (Option<String>, String) {
    let url = crate::postgres::database().await;
    let [world] = World::reaching([&url]).await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(18); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON access_grant DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slow()";
    crate::postgres::execute(&url, slow).await;
    let body = r#"{"subject":"user:ada","clusters":"all","groups":["view"]}"#;
    let mut request = Request::post("/v1/grants")
        .header(header::AUTHORIZATION, format!("Bearer {}", world.admin()));
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(Bytes::from(body)).unwrap();
    let (code, after, problem, took) = ask(&world, request).await;
    let kind = "urn:linesman:problem:outcome-unknown";
    assert_eq!(
        (code, problem["type"].as_str()),
        (503, Some(kind)),
        "{problem}"
    );
    assert!(took < Duration::from_secs(18), "{took:?}");
    (after, problem["next"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_nobody_confirmed_says_that_its_outcome_is_unknown() {
    let look = "look whether it is done before you repeat it".to_owned();
    assert_eq!(unconfirmed(None).await, (None, look));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_a_key_that_nobody_confirmed_may_be_repeated() {
    let repeat = "repeat the call as it is: what is stored already stays as it is".to_owned();
    assert_eq!(
        unconfirmed(Some("k1")).await,
        (Some("1".to_owned()), repeat)
    );
}
