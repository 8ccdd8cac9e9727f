//! What the cluster's owner takes away ends what runs by it, within a second.

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use linesman::clock;
use linesman::hub::proxy::exchange::Answer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::world::PATIENCE;
use crate::wait::measured;

/// H35, H36: from the owner's word on.
const BAR: &str = "≤ 1 s";

type Session = TokioIo<hyper::upgrade::Upgraded>;

async fn watch(pair: &Pair, server: &ApiServer) -> Answer {
    let path = "/clusters/eu1/api/v1/namespaces/a/pods?watch=1";
    let request = Request::get(path).body(Bytes::new()).unwrap();
    let mut watch = pair.send(request).await.unwrap().into_body();
    goes_on(&mut watch, server).await;
    watch
}

async fn goes_on(watch: &mut Answer, server: &ApiServer) {
    server.event("event\n");
    let frame = timeout(PATIENCE, watch.frame()).await.expect("it goes on");
    let event = frame.unwrap().unwrap().into_data().unwrap();
    assert_eq!(event, "event\n");
}

async fn exec(pair: &Pair) -> Session {
    let request = Request::get("/clusters/eu1/api/v1/namespaces/a/pods/x/exec?command=sh")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(Bytes::new());
    let mut response: Response<Answer> = pair.send(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut session = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    answers(&mut session).await;
    session
}

async fn answers(session: &mut Session) {
    session.write_all(b"ls").await.unwrap();
    let mut answer = [0; 2];
    let read = timeout(PATIENCE, session.read_exact(&mut answer)).await;
    read.expect("it goes on").unwrap();
    assert_eq!(&answer, b"LS");
}

/// Both end as what was cut does.
async fn cut(
    (id, what): (&str, &str),
    mut watch: Answer,
    mut session: Session,
    server: &ApiServer,
) {
    let over = async {
        broken(&mut watch).await;
        ended(&mut session).await;
        server.no_watches().await;
    };
    let what = format!("{what} → watch and session over");
    measured((id, &what, BAR), PATIENCE, over).await;
}

async fn broken(watch: &mut Answer) {
    let end = watch.frame().await.unwrap();
    assert!(end.is_err(), "nobody takes the part for the whole");
}

async fn ended(session: &mut Session) {
    // With an error or without.
    drop(session.read_to_end(&mut Vec::new()).await);
}

/// Hours that were over an hour ago.
fn over() -> String {
    let then = clock::now() - time::Duration::hours(2);
    let until = then + time::Duration::hours(1);
    format!(
        "{:02}:{:02}-{:02}:{:02}",
        then.hour(),
        then.minute(),
        until.hour(),
        until.minute()
    )
}

/// H35, H36: each key of the owner's policy that ends both.
#[tokio::test]
async fn what_the_owners_policy_no_longer_allows_ends_within_a_second() {
    for (key, value) in [
        ("line", "off".to_owned()),
        ("namespaces", "b,c".to_owned()),
        ("maxGroups", "1".to_owned()),
        ("hours", over()),
    ] {
        let server = ApiServer::start().await;
        let pair = Pair::new(&server);
        let (watch, session) = (watch(&pair, &server).await, exec(&pair).await);
        pair.policy(key, &value);
        let what = format!("owner's policy changed: {key}");
        cut(("H35", &what), watch, session, &server).await;
    }
}

/// H35: read-only ends what is more than reading, and nothing else does.
#[tokio::test]
async fn read_only_ends_a_session_and_leaves_the_watch() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let (mut watch, mut session) = (watch(&pair, &server).await, exec(&pair).await);
    for (key, value) in [
        ("namespaces", "a"),
        ("maxGroups", "2"),
        ("hours", "00:00-24:00"),
    ] {
        pair.policy(key, value);
        goes_on(&mut watch, &server).await;
        answers(&mut session).await;
    }
    pair.policy("readOnly", "true");
    let row = ("H35", "read-only → session over", BAR);
    measured(row, PATIENCE, ended(&mut session)).await;
    goes_on(&mut watch, &server).await;
}

/// H36: a shorter `linesman-scope`.
#[tokio::test]
async fn what_the_adoption_no_longer_covers_ends_within_a_second() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let (mut watch, mut session) = (watch(&pair, &server).await, exec(&pair).await);
    pair.cover(&["a", "b"]);
    goes_on(&mut watch, &server).await;
    answers(&mut session).await;
    pair.cover(&["b"]);
    cut(("H36", "shorter linesman-scope"), watch, session, &server).await;
}

/// H35: a watch of Secrets that began when the owner showed them ends when they are shown no longer.
#[tokio::test]
async fn a_watch_that_would_be_narrowed_now_ends() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    pair.policy("ownNamespace", "allow");
    let request = Request::get("/clusters/eu1/api/v1/secrets?watch=1");
    let request = request.body(Bytes::new()).unwrap();
    let mut watch = pair.send(request).await.unwrap().into_body();
    goes_on(&mut watch, &server).await;
    pair.policy("ownNamespace", "deny");
    let row = ("H35", "Secrets shown no longer → watch over", BAR);
    measured(row, PATIENCE, broken(&mut watch)).await;
    let request = Request::get("/clusters/eu1/api/v1/secrets?watch=1");
    let request = request.body(Bytes::new()).unwrap();
    let mut narrowed = pair.send(request).await.unwrap().into_body();
    goes_on(&mut narrowed, &server).await;
    pair.policy("namespaces", "a");
    let row = ("H35", "fewer namespaces → watch over", BAR);
    measured(row, PATIENCE, broken(&mut narrowed)).await;
}

/// L47: whoever throws all out deletes the Secret and makes it again. What went before that, and is answered after it, is thrown out, too.
#[tokio::test]
async fn a_session_that_was_asked_for_before_the_secret_was_made_again_does_not_outlast_it() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let late = "/late/exec?command=sh";
    let request = Request::get(format!("/clusters/eu1/api/v1/namespaces/a/pods{late}"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(Bytes::new());
    let thrown_out = async {
        server.asked_for(late, 1).await;
        pair.bind_anew();
        server.release();
    };
    let (answer, ()) = tokio::join!(pair.send(request.unwrap()), thrown_out);
    let over = async {
        // The head of the answer may have come through by then.
        if let Ok(mut response) = answer
            && let Ok(session) = hyper::upgrade::on(&mut response).await
        {
            ended(&mut TokioIo::new(session)).await;
        }
        server.no_watches().await;
    };
    let row = ("L47", "answer to what was thrown out → session over", BAR);
    measured(row, PATIENCE, over).await;
    // What is asked for from then on is as good as ever.
    exec(&pair).await;
}

/// L47, H35: an upload that nobody reads has no answer that would begin, and ends all the same.
#[tokio::test]
async fn an_upload_that_waits_for_its_reader_ends_with_the_owners_word() {
    type Word = (&'static str, fn(&Pair));
    let words: [Word; 3] = [
        ("Secret deleted", Pair::withdraw),
        ("Secret made again", Pair::bind_anew),
        ("line: off", |pair| pair.policy("line", "off")),
    ];
    for (what, word) in words {
        let server = ApiServer::start().await;
        let pair = Pair::new(&server);
        let slow = "/services/b/proxy/slow";
        let request = Request::post(format!("/clusters/eu1/api/v1/namespaces/a{slow}"))
            .body(Bytes::from(vec![b'x'; 32 << 10]))
            .unwrap();
        let taken = async {
            server.asked_for(slow, 1).await;
            word(&pair);
        };
        let ended = async { tokio::join!(pair.send(request), taken).0 };
        let answer = timeout(PATIENCE, ended).await.expect(what).unwrap();
        assert_eq!(answer.status(), 502, "{what}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("owner ended access"), "{what}: {body}");
    }
}
