//! L38: a user of one cluster who asks for another one, by its name, its id or a trick. It is there, its agent has a line, and its API
//! server hears of nothing.

use std::collections::BTreeSet;

use linesman::hub::access::{Clusters, Grant};

use super::super::apiserver::ApiServer;
use super::super::world::{World, name};
use super::{codes, told};

/// `#` = the other cluster's id; the target, and the code. The user has a grant for eu1 alone.
const TARGETS: [(&str, u16); 18] = [
    ("/clusters/eu2/api/v1/pods", 403),
    ("/clusters/eu2", 403),
    ("/clusters/eu2/", 403),
    ("/clusters/EU2/api/v1/pods", 403),
    ("/clusters/eu2./api/v1/pods", 403),
    ("/clusters/#/api/v1/pods", 403),
    ("/clusters/#", 403),
    ("/clusters/eu1,eu2/api/v1/pods", 403),
    ("/clusters/eu1;eu2/api/v1/pods", 403),
    ("/clusters/eu1%2f..%2feu2/api/v1/pods", 403),
    ("/clusters/eu1%2f..%2f#/api/v1/pods", 403),
    ("/clusters/./eu2/api/v1/pods", 403),
    ("/clusters/../clusters/eu2/api/v1/pods", 403),
    ("/clusters/eu1/../eu2/api/v1/pods", 400),
    ("/clusters/eu1/%2e%2e/#/api/v1/pods", 400),
    ("/clusters/eu1//clusters/eu2/api/v1/pods", 400),
    ("/clusters/eu1/clusters/eu2/api/v1/pods", 404),
    ("https://h/clusters/eu2/api/v1/pods", 403),
];

/// What a proxy may lead requests by, and we do not: each beside a good request to eu1.
const HEADERS: [&str; 5] = [
    "X-Original-URL: /clusters/eu2/api/v1/pods",
    "X-Rewrite-URL: /clusters/#/api/v1/pods",
    "X-Forwarded-Prefix: /clusters/eu2",
    "X-Forwarded-Uri: /clusters/eu2/api/v1/pods",
    "Cluster: #",
];

/// One request on a connection of its own, with this token and these lines.
async fn asked(world: &World, token: &str, target: &str, lines: &str) -> String {
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n{lines}\r\n\r\n"
    );
    told(world, request.as_bytes()).await
}

const CLOSE: &str = "Connection: close";
const SWITCH: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

/// The words of a refusal, without the request's id.
fn words(told: &str) -> String {
    let (_, body) = told.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let message = status["message"].as_str().unwrap();
    let (words, _) = message.split_once(" (request ").unwrap();
    words.to_owned()
}

/// L38
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_user_without_a_grant_reaches_a_cluster_that_is_there() {
    let (own, other) = (ApiServer::start().await, ApiServer::start().await);
    let mut world = World::with_line(&own).await;
    let eu2 = "eu2".parse().unwrap();
    let id = world.neighbour(&eu2, &other).await;
    let ben = world.user("ben", &[]).await;
    let only = |grant: &mut Grant| grant.clusters = Clusters::Named(BTreeSet::from([name()]));
    world.grant("ben", &["admin"], only).await;

    for (target, code) in TARGETS {
        let target = target.replace('#', &id);
        for lines in [CLOSE, SWITCH] {
            let told = asked(&world, &ben, &target, lines).await;
            assert_eq!(codes(&told), [code.to_string()], "{target}: {told}");
        }
    }
    for upper in [id.to_uppercase(), id.replace('-', "")] {
        let target = format!("/clusters/{upper}/api/v1/pods");
        let told = asked(&world, &ben, &target, CLOSE).await;
        assert_eq!(codes(&told), ["403"], "{target}: {told}");
    }
    assert_eq!((own.seen().len(), other.seen().len()), (0, 0));

    let pods = "/clusters/eu1/api/v1/pods";
    for header in HEADERS {
        let lines = format!("{CLOSE}\r\n{}", header.replace('#', &id));
        let told = asked(&world, &ben, pods, &lines).await;
        assert_eq!(codes(&told), ["200"], "{header}: {told}");
    }
    let query = format!("{pods}?cluster=eu2&cluster={id}&x=/clusters/eu2/api");
    let told = asked(&world, &ben, &query, CLOSE).await;
    assert_eq!(codes(&told), ["200"], "{told}");
    assert_eq!(own.seen().len(), HEADERS.len() + 1);
    assert_eq!(other.seen().len(), 0, "{:?}", other.seen());

    // An id is no name, be there a grant or not; and with one, its name leads there.
    for id in [&id, &world.cluster_id] {
        let target = format!("/clusters/{id}/api/v1/pods");
        let told = asked(&world, &world.token, &target, CLOSE).await;
        assert_eq!(codes(&told), ["403"], "{told}");
    }
    assert_eq!(other.seen().len(), 0, "{:?}", other.seen());
    let told = asked(&world, &world.token, "/clusters/eu2/api/v1/pods", CLOSE).await;
    assert_eq!((codes(&told), other.seen().len()), (vec!["200"], 1));
    assert_eq!(own.seen().len(), HEADERS.len() + 1);
}

/// L11, L38: who may not reach a cluster does not learn whether it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_a_grant_reads_like_one_that_is_not_there() {
    let (own, other) = (ApiServer::start().await, ApiServer::start().await);
    let mut world = World::with_line(&own).await;
    world.neighbour(&"eu2".parse().unwrap(), &other).await;
    let ben = world.user("ben", &[]).await;
    let only = |grant: &mut Grant| grant.clusters = Clusters::Named(BTreeSet::from([name()]));
    world.grant("ben", &["admin"], only).await;
    let mut refused = Vec::new();
    for cluster in ["eu2", "eu9"] {
        let target = format!("/clusters/{cluster}/api/v1/pods");
        let told = asked(&world, &ben, &target, CLOSE).await;
        refused.push(words(&told).replace(cluster, "CLUSTER"));
    }
    assert_eq!(refused[0], refused[1]);
    assert!(
        refused[0].contains("no grant on cluster CLUSTER"),
        "{}",
        refused[0]
    );
}
