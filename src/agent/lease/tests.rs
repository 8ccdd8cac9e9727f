use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::lifetime::hearts::{Hearts, STILL};

fn spec(holder: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_when_free_own_or_unrenewed() {
    let seen = Instant::now();
    let at = |seconds| seen + Duration::from_secs(seconds);
    assert_eq!(turn(&LeaseSpec::default(), "a", at(0), seen), Turn::Take);
    assert_eq!(turn(&spec(""), "a", at(0), seen), Turn::Take);
    assert_eq!(turn(&spec("a"), "a", at(0), seen), Turn::Take);
    assert_eq!(turn(&spec("b"), "a", at(15), seen), Turn::Wait("b".into()));
    assert_eq!(turn(&spec("b"), "a", at(16), seen), Turn::Take);
}

/// W27: what a leader has begun goes no further when another may lead, also in the middle of a step; reading is anybody's.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_once_another_may_lead() {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&arrived);
    let service = service_fn(move |request: Request<Body>| {
        seen.lock().unwrap().push(request.method().clone());
        let answer = Response::new(Body::from(b"{}".to_vec()));
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let kube = kube::Client::new(service, "linesman");
    let renewed = watch::Sender::new(None);
    let hearts = Hearts::default();
    let heart = hearts.heart("watchdog", STILL);
    let led = Term(renewed.subscribe()).client(&kube, Some(heart));
    let send = async |method: Method| {
        let request = Request::builder().method(method).uri("/api/v1/x");
        let request = request.body(Vec::new()).unwrap();
        let said = led.request_text(request).await;
        said.map_err(|error| error.to_string().contains(&Over.to_string()))
    };
    assert_eq!(send(Method::PATCH).await, Err(true));
    renewed.send_replace(Some(Moment::now()));
    for method in [Method::PATCH, Method::DELETE, Method::POST] {
        assert_eq!(send(method).await, Ok("{}".to_owned()));
    }
    tokio::time::advance(TERM).await;
    for method in [Method::PATCH, Method::DELETE, Method::POST, Method::PUT] {
        assert_eq!(send(method).await, Err(true));
    }
    assert_eq!(send(Method::GET).await, Ok("{}".to_owned()));
    let all = [Method::PATCH, Method::DELETE, Method::POST, Method::GET];
    assert_eq!(*arrived.lock().unwrap(), all);
    tokio::time::advance(STILL).await;
    assert_eq!(hearts.say(), None, "it beat with the last call");
}

#[tokio::test(start_paused = true)]
async fn a_term_goes_by_the_clock_that_went_further() {
    let start = Instant::now();
    let seconds = Duration::from_secs;
    let at = |awake: u64, up: Option<u64>| Moment {
        at: start + seconds(awake),
        up: up.map(seconds),
    };
    for (began, ended, gone) in [
        ((0, Some(100)), (13, Some(113)), 13),
        // It slept for an hour.
        ((0, Some(100)), (1, Some(3_701)), 3_601),
        // What was set back, or cannot be read, leaves the other one.
        ((0, Some(100)), (13, Some(50)), 13),
        ((0, None), (13, Some(113)), 13),
        ((0, Some(100)), (13, None), 13),
    ] {
        let (began, ended) = (at(began.0, began.1), at(ended.0, ended.1));
        assert_eq!(began.until(ended), seconds(gone), "{began:?} {ended:?}");
    }
}

/// While its node sleeps no timer of a leader runs, and another one takes over.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_a_sleep_before_the_lease_is_renewed() {
    let renewed = watch::Sender::new(Some(Moment::now()));
    let term = Term(renewed.subscribe());
    assert!(term.holds());
    let slept = Moment {
        at: Instant::now(),
        up: clock::boot().and_then(|boot| boot.up.checked_sub(TERM)),
    };
    renewed.send_replace(Some(slept));
    assert!(!term.holds());
}

fn lease(version: u32, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "linesman-agent", "resourceVersion": version.to_string()},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    })
}

/// A leader asks for nothing that it knows; what changed under it is looked at, and another holder ends it.
#[tokio::test]
async fn a_renewal_is_one_write_until_somebody_else_wrote() {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let kube = kube::Client::new(service, "linesman");
    let answering = async move {
        let conflict = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict", "message": "old",
        });
        let answers = [
            (200, lease(1, "")),
            (200, lease(2, "a")),
            (200, lease(3, "a")),
            (409, conflict),
            (200, lease(4, "b")),
        ];
        let mut asked = Vec::new();
        for (code, body) in answers {
            let (request, reply) = server.next_request().await.unwrap();
            asked.push(request.method().to_string());
            let body = Body::from(body.to_string().into_bytes());
            reply.send_response(Response::builder().status(code).body(body).unwrap());
        }
        asked
    };
    let mut candidate = Candidate::new(kube, "linesman", "a".to_owned());
    let steps = async {
        let mut said = Vec::new();
        for _ in 0..3 {
            said.push(candidate.step().await.unwrap());
        }
        said
    };
    let (said, asked) = tokio::join!(steps, answering);
    assert_eq!(said, [None, None, Some("b".to_owned())]);
    assert_eq!(asked, ["GET", "PUT", "PUT", "PUT", "GET"]);
}

/// W27: another may have taken it 15 s after it last saw a renewal, and that was not before it was sent.
#[tokio::test(start_paused = true)]
async fn a_term_ends_before_anybody_else_may_lead_and_a_renewal_begins_another() {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let mut candidate = Candidate::new(
        kube::Client::new(service, "linesman"),
        "linesman",
        "a".to_owned(),
    );
    let term = candidate.term();
    assert!(!term.holds(), "not taken yet");
    let answering = async move {
        let answers = [lease(1, ""), lease(2, "a"), lease(3, "a")];
        for (late, body) in answers.into_iter().enumerate() {
            let (_, reply) = server.next_request().await.unwrap();
            sleep(Duration::from_secs(u64::try_from(late).unwrap())).await;
            let body = Body::from(body.to_string().into_bytes());
            reply.send_response(Response::new(body));
        }
    };
    let steps = async {
        let mut held = Vec::new();
        for _ in 0..2 {
            let began = Instant::now();
            assert_eq!(candidate.step().await.unwrap(), None);
            let at = |seconds: u64| {
                let until = began + Duration::from_secs(seconds);
                let term = term.clone();
                async move {
                    tokio::time::sleep_until(until).await;
                    term.holds()
                }
            };
            held.push((at(13).await, at(14).await));
        }
        held
    };
    let (held, ()) = tokio::join!(steps, answering);
    assert_eq!(held, [(true, false); 2]);
}

/// An API server that has one Lease, and refuses the first calls of the kinds that are to be refused.
fn refusing(
    held: &Arc<Mutex<Value>>,
    refused: Vec<Method>,
    asked: &Arc<Mutex<Vec<String>>>,
) -> kube::Client {
    let (held, asked) = (Arc::clone(held), Arc::clone(asked));
    let refused = Arc::new(Mutex::new(refused));
    let take = |all: &mut Vec<Method>, method: &Method| {
        let at = all.iter().position(|refused| refused == method);
        at.map(|at| all.remove(at)).is_some()
    };
    let service = service_fn(move |request: Request<Body>| {
        let (held, asked, refused) = (held.clone(), asked.clone(), refused.clone());
        async move {
            let method = request.method().clone();
            asked.lock().unwrap().push(method.to_string());
            if take(&mut refused.lock().unwrap(), &method) {
                return Err(BoxError::from("connection refused"));
            }
            if method == Method::PUT {
                let body = request.into_body().collect_bytes().await.unwrap();
                *held.lock().unwrap() = serde_json::from_slice(&body).unwrap();
            }
            let body = held.lock().unwrap().to_string().into_bytes();
            Ok(Response::new(Body::from(body)))
        }
    });
    kube::Client::new(service, "linesman")
}

/// Of a leader that is told to stop: who has the Lease then, what was asked, and how long it took.
async fn let_go(heir: Option<&str>, refused: Vec<Method>) -> (String, Vec<String>, Duration) {
    let held = Arc::new(Mutex::new(lease(1, "a")));
    let asked = Arc::default();
    let kube = refusing(&held, refused, &asked);
    let candidate = Candidate::new(kube, "linesman", "a".to_owned());
    let (_heir, given) = watch::channel(heir.map(str::to_owned));
    let hearts = Hearts::default();
    let heart = hearts.heart("lease", STILL);
    let stop = CancellationToken::new();
    stop.cancel();
    let began = Instant::now();
    candidate.keep(heart, given, stop).await.unwrap();
    let holder = held.lock().unwrap()["spec"]["holderIdentity"].clone();
    let asked = asked.lock().unwrap().clone();
    let holder = holder.as_str().unwrap_or_default().to_owned();
    (holder, asked, began.elapsed())
}

/// H50: a look or a write that fails is made again, so that the new image's Pod leads and not this one once more.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_away_arrives_though_a_call_failed() {
    let (get, put) = (Method::GET, Method::PUT);
    for (refused, asked, seconds) in [
        (vec![], vec!["GET", "PUT"], 0),
        (vec![get.clone()], vec!["GET", "GET", "PUT"], 2),
        (vec![put.clone()], vec!["GET", "PUT", "GET", "PUT"], 2),
        (vec![get, put], vec!["GET", "GET", "PUT", "GET", "PUT"], 4),
    ] {
        let asked = asked.into_iter().map(str::to_owned).collect();
        let wanted = ("b".to_owned(), asked, Duration::from_secs(seconds));
        assert_eq!(let_go(Some("b"), refused).await, wanted);
    }
}

/// An API server that takes calls, and never says a word.
fn silent() -> kube::Client {
    let service = service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    kube::Client::new(service, "linesman")
}

/// L54: who has the Lease goes on trying to renew it, however long the API server is silent.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_no_standstill() {
    let hearts = Hearts::default();
    let heart = hearts.heart("lease", STILL);
    let candidate = Candidate::new(silent(), "linesman", "a".to_owned());
    let (_heir, given) = watch::channel(None);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(candidate.keep(heart, given, CancellationToken::new()));
    for _ in 0..300 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(hearts.say(), None);
    }
}

/// L54: a call is waited for as long as its deadline is, its answer's body with it; one that goes on for longer shows.
#[tokio::test(start_paused = true)]
async fn a_call_past_its_deadline_is_a_standstill() {
    let hearts = Hearts::default();
    let heart = hearts.heart("asks", STILL);
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<_>>();
    let kube = kube::Client::new(service, "linesman");
    let asks = Term(watch::channel(None).1).client(&kube, Some(heart));
    let ask = || {
        let (asks, request) = (asks.clone(), Request::get("/version").body(Vec::new()));
        async move { asks.request_text(request.unwrap()).await }
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(ask());
    let (_, reply) = server.next_request().await.unwrap();
    // The head is there; the rest is not.
    let rest = futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
    reply.send_response(Response::new(http_body_util::StreamBody::new(rest)));
    sleep(calls::LIMIT + STILL).await;
    assert_eq!(hearts.stuck(), []);
    sleep(Duration::from_secs(1)).await;
    let pause = calls::LIMIT + STILL + Duration::from_secs(1);
    assert_eq!(hearts.stuck(), [("asks", pause)]);
    tasks.shutdown().await;
    assert_eq!(hearts.stuck(), []);
}
