use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use tower::service_fn;

use super::*;

/// A client whose API server answers with these codes in turn, and then with the last of them; and how often it was asked.
fn client(calls: &Calls, codes: &'static [u16]) -> (kube::Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let server = service_fn(move |_: Request<Body>| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let code = codes[number.min(codes.len() - 1)];
        async move {
            let answer = Response::builder()
                .status(code)
                .header("Retry-After", "3600")
                .body(Body::from(b"not JSON".to_vec()));
            Ok::<_, BoxError>(answer.unwrap())
        }
    });
    let stack = ClientBuilder::new(server, "linesman");
    (calls.around(stack).unwrap(), asked)
}

async fn send(kube: &kube::Client, method: Method, path: &str) -> Result<String, kube::Error> {
    let request = Request::builder().method(method).uri(path);
    kube.request_text(request.body(Vec::new()).unwrap()).await
}

/// F14, W25: errors shut the gate; a webhook's refusal of a write, and what is not found, do not.
#[tokio::test(start_paused = true)]
async fn the_errors_of_reads_shut_the_gate() {
    for (code, shut) in [
        (&[200], false),
        (&[404], false),
        (&[500], true),
        (&[503], true),
    ] {
        let calls = Calls::default();
        let (kube, _) = client(&calls, code);
        for path in ["/api/v1/pods", "/api/v1/pods?watch=true", "/apis"] {
            drop(send(&kube, Method::GET, path).await);
        }
        assert_eq!(calls.gate().is_shut(), shut, "{code:?}");
    }
    let calls = Calls::default();
    let (kube, _) = client(&calls, &[500]);
    for _ in 0..5 {
        drop(send(&kube, Method::POST, "/api/v1/pods").await);
    }
    assert_eq!(calls.gate(), Gate::Open);
    for _ in 0..3 {
        calls.wrote(false);
    }
    assert!(calls.gate().is_shut());
}

/// F14: a server of whose answers half are errors is not well, though each call comes through at its second try; and a call counts
/// once, however often it was repeated.
#[tokio::test(start_paused = true)]
async fn a_call_counts_by_its_first_try() {
    let calls = Calls::default();
    for _ in 0..3 {
        let (kube, asked) = client(&calls, &[503, 200]);
        assert!(send(&kube, Method::GET, "/api").await.is_ok());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
    let Gate::Shut(symptoms) = calls.gate() else {
        panic!("open after three errors of three calls")
    };
    assert_eq!((symptoms.calls, symptoms.failed), (3, 3));
    let calls = Calls::default();
    let (kube, asked) = client(&calls, &[503]);
    for _ in 0..2 {
        assert!(send(&kube, Method::GET, "/api").await.is_err());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 8);
    assert_eq!(calls.gate(), Gate::Open);
}

/// What is away for longer than a second is told of, whatever the server asks to be waited for.
#[tokio::test(start_paused = true)]
async fn an_error_is_told_within_a_second() {
    let tries = |code: &'static [u16], method| async move {
        let (kube, asked) = client(&Calls::default(), code);
        let began = Instant::now();
        let error = send(&kube, method, "/api/v1/pods").await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1), "{code:?}");
        assert!(matches!(error, kube::Error::Api(status) if status.code == code[0]));
        asked.load(Ordering::Relaxed)
    };
    for code in [&[429], &[503], &[504]] {
        assert_eq!(tries(code, Method::GET).await, 4, "{code:?}");
        assert_eq!(tries(code, Method::PATCH).await, 4, "{code:?}");
    }
    for code in [&[400], &[403], &[404], &[409], &[500]] {
        assert_eq!(tries(code, Method::GET).await, 1, "{code:?}");
    }
}

/// A client whose API server takes calls and does not answer; or, where it `begins` to, does not go on.
fn silent(begins: bool) -> kube::Client {
    let server = service_fn(move |_: Request<Body>| async move {
        if !begins {
            std::future::pending::<()>().await;
        }
        let first = futures_util::stream::iter([Ok::<_, BoxError>(hyper::body::Frame::data(
            Bytes::from_static(b"{"),
        ))]);
        let rest = futures_util::stream::pending();
        let body = http_body_util::StreamBody::new(first.chain(rest));
        Ok::<_, BoxError>(Response::new(body))
    });
    let stack = ClientBuilder::new(server, "linesman");
    Calls::default().around(stack).unwrap()
}

/// No part of the agent waits for ever, whether it thought of a deadline or not; what is to last lasts.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_answered_ends_and_a_watch_that_began_does_not() {
    let long = LIMIT * 60;
    for begins in [false, true] {
        let kube = silent(begins);
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            let began = Instant::now();
            let answer = timeout(long, send(&kube, method.clone(), "/api/v1/pods")).await;
            assert!(matches!(answer, Ok(Err(_))), "{method} {begins}");
            assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs(), "{method}");
        }
        let began = Instant::now();
        let watch = send(&kube, Method::GET, "/api/v1/pods?limit=1&watch=true");
        assert_eq!(timeout(long, watch).await.is_err(), begins);
        let lasted = if begins { long } else { LIMIT };
        assert_eq!(began.elapsed().as_secs(), lasted.as_secs(), "{begins}");
    }
}

/// F14: a server that takes calls and says nothing is not well.
#[tokio::test(start_paused = true)]
async fn reads_that_are_not_answered_shut_the_gate() {
    let calls = Calls::default();
    let server =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
    let kube = calls
        .around(ClientBuilder::new(server, "linesman"))
        .unwrap();
    let reads = (0..3).map(|_| send(&kube, Method::GET, "/api/v1/pods"));
    drop(futures_util::future::join_all(reads).await);
    assert!(calls.gate().is_shut());
}

#[tokio::test(start_paused = true)]
async fn readyz_is_believed_where_it_may_be_asked() {
    for (code, ready) in [
        (&[200], Some(true)),
        (&[500], Some(false)),
        (&[503], Some(false)),
        (&[401], None),
        (&[403], None),
        (&[404], None),
        (&[429], None),
    ] {
        let (kube, _) = client(&Calls::default(), code);
        assert_eq!(readyz(&kube).await, ready, "{code:?}");
    }
}

/// All tries of a call have the time of one: a server that gives up late each time is not waited for four times.
#[tokio::test(start_paused = true)]
async fn repetitions_share_the_time_of_the_first_try() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let server = service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(LIMIT / 3 * 2).await;
            let answer = Response::builder().status(504);
            Ok::<_, BoxError>(answer.body(Body::from(Vec::new())).unwrap())
        }
    });
    let stack = ClientBuilder::new(server, "linesman");
    let kube = Calls::default().around(stack).unwrap();
    let began = Instant::now();
    let error = send(&kube, Method::GET, "/api").await.unwrap_err();
    let late = "the API server did not answer in 60 s";
    assert!(format!("{:#}", anyhow::Error::from(error)).contains(late));
    let took = (began.elapsed().as_secs(), asked.load(Ordering::Relaxed));
    assert_eq!(took, (LIMIT.as_secs(), 2));
}
