//! What the hub tells of its lines in figures.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::apiserver::ApiServer;
use super::world::{Door, World, get};

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
