//! What the hub tells of its lines in figures.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use linesman::tunnel::{Incoming, Line, Stream};
use linesman::wire::frame::Code;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::access::exec;
use super::apiserver::ApiServer;
use super::world::{Door, PATIENCE, World, get};
use crate::wait::until;

/// Name with labels and value of each line of `/metrics`.
pub(super) async fn scraped(world: &World) -> BTreeMap<String, f64> {
    let url = format!("http://{}/metrics", world.hub.config.health_listen);
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let values = lines.filter_map(|line| line.rsplit_once(' '));
    let values = values.map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    values.collect()
}

async fn line(world: &World) -> Value {
    let bearer = format!("Bearer {}", world.admin());
    let request = Request::get("/v1/clusters/eu1/line").header("authorization", bearer);
    let answer = world.send(request.body(Bytes::new()).unwrap()).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

/// L50: streams, bytes, refusals and ends are counted, by kind, rule and cause; no label is a name of a user, a cluster
/// or a peer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_told_in_figures_without_a_peers_words() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("event\n");
    watch.frame().await.unwrap().unwrap();
    let bearer = format!("Bearer {}", world.token);
    for (path, header) in [
        ("/clusters/eu1/api", ("impersonate-user", "root")),
        ("/clusters/eu1/api", ("impersonate-user", "root")),
        ("/clusters/eu1/debug/x", ("accept", "a/b")),
        // A name that is nobody's is not remembered.
        ("/clusters/eu9/api", ("accept", "a/b")),
    ] {
        let request = Request::get(path).header(header.0, header.1);
        let request = request.header("authorization", &bearer);
        world.send(request.body(Bytes::new()).unwrap()).await;
    }
    let now = scraped(&world).await;
    assert!(now["linesman_tasks"] > 1.0, "L29: {now:?}");
    for (name, value) in [
        ("linesman_hub_lines", 1.0),
        ("linesman_hub_lines_draining", 0.0),
        ("linesman_hub_line_streams{kind=\"api\"}", 1.0),
        ("linesman_hub_line_streams{kind=\"git\"}", 0.0),
        ("linesman_hub_parked_requests", 0.0),
        ("linesman_hub_line_streams_opened_total", 1.0),
        ("linesman_hub_refusals_total{rule=\"Impersonation\"}", 2.0),
        ("linesman_hub_refusals_total{rule=\"NoGrant\"}", 1.0),
    ] {
        assert_eq!(now.get(name), Some(&value), "{name} in {now:#?}");
    }
    for name in ["sent", "received"] {
        let name = format!("linesman_hub_line_bytes_total{{direction=\"{name}\"}}");
        assert!(now[&name] > 100.0, "{name} in {now:#?}");
    }
    let peers = ["eu1", "eu9", "ada", "root", "debug", "127.0.0.1"];
    for name in now.keys() {
        assert!(!peers.iter().any(|peer| name.contains(peer)), "{name}");
    }
    let shown = line(&world).await;
    assert_eq!(
        (&shown["streams"]["api"], &shown["denied"]["Impersonation"]),
        (&json!(1), &json!(2)),
        "{shown}"
    );

    // What a line has carried stays counted when it is gone, and its end is.
    world.door.send_replace(Door {
        shut: true,
        cuts: 1,
    });
    world.has_line(false).await;
    let then = scraped_with(&world, |then| then["linesman_hub_lines"] <= 0.0).await;
    let ends = |then: &BTreeMap<String, f64>| {
        let ends = then
            .iter()
            .filter(|(name, _)| name.contains("_line_ends_total{cause="));
        ends.map(|(_, n)| *n).sum::<f64>()
    };
    assert!((ends(&now), ends(&then)) == (0.0, 1.0), "{then:#?}");
    for name in [
        "linesman_hub_line_bytes_total{direction=\"sent\"}",
        "linesman_hub_line_streams_opened_total",
    ] {
        assert!(then[name] >= now[name], "{name}");
    }
    assert!(then["linesman_hub_line_streams{kind=\"api\"}"] == 0.0);
}

/// L50: a session is a stream of its kind until it ends, though HTTP is no longer spoken on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_among_the_streams_until_it_ends() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let told = async || {
        let shown = line(&world).await["streams"]["api"].as_f64();
        let scraped = scraped(&world).await;
        (shown, scraped["linesman_hub_line_streams{kind=\"api\"}"])
    };
    let sessions = [exec(&world).await, exec(&world).await];
    assert_eq!(told().await, (Some(2.0), 2.0));
    let [one, other] = sessions;
    drop(one);
    until("one is left", PATIENCE, async || {
        told().await == (Some(1.0), 1.0)
    })
    .await;
    drop(other);
    until("none is left", PATIENCE, async || {
        told().await == (Some(0.0), 0.0)
    })
    .await;
}

/// L50: what the hub lets through and the cluster's owner does not is counted at the hub, by a rule of a closed set; the
/// line is told with its classes, the hub that holds it, and why it ended last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_told_with_what_the_agent_refused_and_why_it_ended() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    world.agent_under(&server, &[("readOnly", "true")]).await;
    let delete = Request::delete("/clusters/eu1/api/v1/namespaces/a/pods/x");
    let answer = world.send(delete.body(Bytes::new()).unwrap()).await;
    assert_eq!(answer.status(), 403);
    // The user sees no more than before.
    assert_eq!(answer.headers().get("linesman-refused"), None);
    let now = scraped(&world).await;
    let agents = "linesman_hub_refusals_total{rule=\"agent:ReadOnly\"}";
    assert_eq!(now.get(agents), Some(&1.0), "{now:#?}");
    for class in ["sparse", "bulk", "background"] {
        for direction in ["sent", "received"] {
            let name =
                format!("linesman_hub_line_class_{direction}_bytes_total{{class=\"{class}\"}}");
            assert!(now.contains_key(&name), "{name} in {now:#?}");
        }
    }
    let delay = "linesman_hub_line_queue_delay_seconds{class=\"sparse\",quantile=\"1\"}";
    assert!(now.contains_key(delay), "{delay} in {now:#?}");
    let shown = line(&world).await;
    let counted = (&shown["denied"], &shown["replica"], &shown["lastCause"]);
    assert_eq!(
        counted,
        (
            &json!({"agent:ReadOnly": 1}),
            &json!(world.hub.id),
            &Value::Null
        ),
        "{shown}"
    );
    let sparse = &shown["classes"]["sparse"];
    assert!(
        sparse["sent"].as_u64() > Some(0)
            && sparse["received"].as_u64() > Some(0)
            && sparse["queueMicros"].is_u64(),
        "{shown}"
    );
    world.door.send_replace(Door {
        shut: true,
        cuts: 1,
    });
    let mut shown = line(&world).await;
    while shown["up"] == json!(true) {
        shown = line(&world).await;
    }
    assert!(shown["lastCause"].is_string(), "{shown}");
}

const CANARY: &str = "canary-of-a-peer";

/// The labels that there are: what a figure is told by comes from us.
const LABELS: [&str; 10] = [
    "cause",
    "class",
    "code",
    "direction",
    "kind",
    "outcome",
    "phase",
    "quantile",
    "reason",
    "rule",
];

/// What there is of a line that is up, by [`forms`].
const FIGURES: [&str; 14] = [
    "linesman_hub_connections",
    "linesman_hub_line_bytes_total{direction}",
    "linesman_hub_line_class_received_bytes_total{class}",
    "linesman_hub_line_class_sent_bytes_total{class}",
    "linesman_hub_line_credit_stalls_total",
    "linesman_hub_line_queue_delay_seconds{class,quantile}",
    "linesman_hub_line_rtt_seconds{quantile}",
    "linesman_hub_line_streams_opened_total",
    "linesman_hub_line_streams{kind}",
    "linesman_hub_line_unread_bytes",
    "linesman_hub_lines",
    "linesman_hub_lines_draining",
    "linesman_hub_parked_requests",
    "linesman_hub_refusals_total{rule}",
];

/// L50: users and agents put words of their own wherever they can; the figures are all there, and have none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_figure_of_a_line_is_there_and_none_has_a_peers_word() {
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let path = format!("/api/v1/namespaces/{CANARY}/pods?{CANARY}");
    let asks = async {
        let first = world.send(get(&path)).await.status().as_u16();
        (first, world.send(get(&path)).await.status().as_u16())
    };
    let ((_kept, line), codes) = tokio::join!(refused_in_words(&mut streams), asks);
    assert_eq!(codes, (403, 502));
    ask_in_words(&world, &path).await;
    let shown = self::line(&world).await;
    for key in [
        "epoch",
        "parked",
        "creditStalls",
        "unread",
        "sent",
        "received",
        "opened",
    ] {
        assert!(shown[key].is_u64(), "{key} in {shown}");
    }
    // The first round trip is known with the first PONG.
    let rtt = |now: &BTreeMap<_, _>| forms(now).contains("linesman_hub_line_rtt_seconds{quantile}");
    let now = scraped_with(&world, rtt).await;
    let forms = forms(&now);
    for figure in FIGURES {
        assert!(forms.contains(figure), "{figure} in {forms:#?}");
    }
    let other = "linesman_hub_refusals_total{rule=\"agent:other\"}";
    assert_eq!(now.get(other), Some(&1.0));
    let shown = self::line(&world).await;
    assert!(shown["rttMicros"].is_u64(), "{shown}");
    line.goaway(Code::Draining, Duration::ZERO, Duration::ZERO, CANARY);
    let ended = |now: &BTreeMap<String, _>| {
        let mut names = now.keys();
        names.any(|name| name.contains("_line_ends_total{cause="))
    };
    let then = scraped_with(&world, ended).await;
    for name in now.keys().chain(then.keys()) {
        assert!(!name.contains("canary"), "{name}");
        let parts = name.split(['{', '}', ',']);
        for (label, _) in parts.filter_map(|part| part.split_once("=\"")) {
            assert!(LABELS.contains(&label), "{name}");
        }
    }
}

/// The agent says why it refused one request, and reset the next, in its own words.
async fn refused_in_words(streams: &mut mpsc::Receiver<Incoming>) -> (Stream, Line) {
    let mut stream = streams.recv().await.unwrap().stream;
    let mut request = [0; 4096];
    drop(stream.read(&mut request).await);
    let head = format!(
        "HTTP/1.1 403 Forbidden\r\nlinesman-refused: {CANARY}\r\nX-{CANARY}: x\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let next = streams.recv().await.unwrap().stream;
    let line = next.line();
    next.reset(Code::Internal, CANARY);
    (stream, line)
}

/// Users name people, headers, tokens, protocols and clusters that there are not.
async fn ask_in_words(world: &World, path: &str) {
    for name in ["impersonate-user", CANARY, "authorization"] {
        let mut request = get(path);
        let headers = request.headers_mut();
        headers.insert(name, CANARY.parse().unwrap());
        headers.insert("upgrade", CANARY.parse().unwrap());
        world.send(request).await;
    }
    let unknown = Request::get(format!("/clusters/{CANARY}/api"));
    world.send(unknown.body(Bytes::new()).unwrap()).await;
}

/// The figures, once this holds of them.
async fn scraped_with(
    world: &World,
    holds: impl Fn(&BTreeMap<String, f64>) -> bool,
) -> BTreeMap<String, f64> {
    let scrapes = async {
        loop {
            let now = scraped(world).await;
            if holds(&now) {
                return now;
            }
        }
    };
    timeout(PATIENCE, scrapes).await.expect("it is counted")
}

/// Names with their labels' names.
fn forms(figures: &BTreeMap<String, f64>) -> BTreeSet<String> {
    let form = |name: &String| match name.split_once('{') {
        None => name.clone(),
        Some((name, labels)) => {
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter_map(|label| label.split_once('=').map(|(key, _)| key));
            format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
        }
    };
    figures.keys().map(form).collect()
}
