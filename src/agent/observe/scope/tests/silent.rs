//! Watches that begin, end and fall silent.

use super::*;

/// How the watches of an API server go that lists in no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watches {
    /// None begins.
    Answers(u16),
    /// Each begins, says this and ends.
    Says(u16),
    /// Each ends at once.
    Ends,
    /// Each ends after its time.
    Last,
    /// Each says nothing and has no end.
    Deaf,
    /// The same after a bookmark.
    Falls,
    /// The same, and after the first one there are no bookmarks any more.
    FallsOnce,
}

/// An hour with such watches of Services: when each list and each watch began, in milliseconds.
async fn begun(watches: Watches) -> (Vec<u128>, Vec<u128>) {
    let start = Instant::now();
    let told = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let seen = Arc::clone(&told);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let watch = request.uri().query().unwrap_or_default().contains("watch=");
        let at = start.elapsed().as_millis();
        let mut told = told.lock().unwrap();
        let list = if watch { &mut told.1 } else { &mut told.0 };
        list.push(at);
        assert!(list.len() < 20_000, "it goes round and round");
        let first = list.len() == 1;
        let status = |code: u16| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
        let (code, body) = match watches {
            _ if !watch => {
                let list = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []});
                (200, Body::from(list.to_string()))
            }
            Watches::Answers(code) => (code, Body::from(status(code).to_string())),
            Watches::Says(code) => {
                let said = json!({"type": "ERROR", "object": status(code)});
                (200, Body::from(format!("{said}\n")))
            }
            Watches::Ends => (200, Body::empty()),
            Watches::Last => {
                let end = tokio::time::sleep(Duration::from_secs(WATCH_SECONDS.into()));
                let silence = futures_util::stream::pending::<Result<Bytes, Infallible>>();
                (200, Body::from_stream(silence.take_until(end)))
            }
            Watches::Deaf | Watches::Falls | Watches::FallsOnce => {
                let mark = json!({"type": "BOOKMARK", "object": {"kind": "Service", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}});
                let marks = watches == Watches::Falls || watches == Watches::FallsOnce && first;
                let mark = marks.then(|| Bytes::from(format!("{mark}\n")));
                let marks = futures_util::stream::iter(mark.map(Ok::<_, Infallible>));
                (
                    200,
                    Body::from_stream(marks.chain(futures_util::stream::pending())),
                )
            }
        };
        let answer = Response::builder().status(code).body(body).unwrap();
        async { Ok::<_, Infallible>(answer) }
    });
    let kube = kube::Client::new(service, "default");
    let install = install_of(EngineKind::Flux);
    let view = View::new(&install);
    let scopes = scopes_of(&kube, &install, crate::manifests::scope::Extent::Cluster);
    let mut scopes = scopes.into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Objects(Kind::Service)));
    let hour = Duration::from_hours(1);
    drop(timeout(hour, scope.unwrap().observe(&view)).await);
    let told = seen.lock().unwrap();
    told.clone()
}

/// W41: an API server that lists and begins no watch, or ends it, is not asked for everything again and again; and W5: it is not
/// left alone for longer than eight seconds.
#[tokio::test(start_paused = true)]
async fn watches_that_come_to_nothing_are_begun_with_pauses_and_cost_no_lists() {
    for (watches, lists) in [
        (Watches::Answers(429), 40..=60),
        (Watches::Answers(503), 40..=60),
        (Watches::Says(500), 40..=60),
        (Watches::Ends, 40..=60),
        // Only a list tells from where to go on, or that there is nothing any more.
        (Watches::Answers(410), 450..=1_800),
        (Watches::Says(410), 450..=1_800),
        (Watches::Answers(403), 450..=1_800),
    ] {
        let (listed, began) = begun(watches).await;
        assert!(
            lists.contains(&listed.len()),
            "{watches:?} {}",
            listed.len()
        );
        assert!(
            (450..=1_800).contains(&began.len()),
            "{watches:?} {}",
            began.len()
        );
        let gaps = began.windows(2).map(|two| two[1] - two[0]);
        let (least, most) = gaps.fold((u128::MAX, 0), |(least, most), gap| {
            (least.min(gap), most.max(gap))
        });
        assert!(least >= 200 && most <= 8_002, "{watches:?} {least} {most}");
    }
}

/// W5: what happens between the end of a watch and the next one is heard at once.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_after_its_time_is_begun_anew_at_once() {
    let (listed, began) = begun(Watches::Last).await;
    assert!((51..=55).contains(&listed.len()), "{}", listed.len());
    let times = began.iter().map(|at| at / 1_000);
    let expected: Vec<u128> = (0..13).map(|n| n * u128::from(WATCH_SECONDS)).collect();
    assert_eq!(times.collect::<Vec<_>>(), expected);
}

/// W5: a node that goes, or a firewall that forgets, ends no connection: nothing comes over it any more, and the watch that
/// hangs on it is given up. W23: a server that sends no bookmarks any more is not asked more often for that.
#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_begun_anew() {
    for (watches, [first, then], most) in [
        (Watches::Deaf, [OVERDUE, OVERDUE], 13),
        (Watches::Falls, [SILENT, SILENT], 40),
        (Watches::FallsOnce, [SILENT, OVERDUE], 13),
    ] {
        let (_, began) = begun(watches).await;
        assert_eq!(began.len(), most, "{watches:?}");
        let pauses = began.windows(2).map(|two| two[1] - two[0]);
        for (at, pause) in pauses.enumerate() {
            let silence = if at == 0 { first } else { then };
            let over = pause - silence.as_millis();
            assert!((200..=410).contains(&over), "{watches:?} {over}");
        }
    }
}
