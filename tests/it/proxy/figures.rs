//! What the hub tells of its lines in figures.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::apiserver::ApiServer;
use super::world::{Door, World, get};

/// Name with labels and value of each line of `/metrics`.
async fn scraped(world: &World) -> BTreeMap<String, f64> {
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
    let mut then = scraped(&world).await;
    while then["linesman_hub_lines"] > 0.0 {
        then = scraped(&world).await;
    }
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
