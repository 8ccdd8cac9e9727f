//! Heals as they are told: listed by when they began, with their parts, and with who wrote and who committed before them.

use linesman::clock;
use linesman::hub::audit::Entry;
use serde_json::{Value, json};

use super::metrics;
use crate::hub::slug;
use crate::hub::support::{Agent, TestHub};

/// What began at three in the night, page by page.
#[tokio::test]
async fn heals_are_listed_by_when_they_began() {
    let hub = TestHub::start("began").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    // 2024-06-10T02:35:18.400Z, and as many milliseconds later.
    let id = |millis: u8| format!("01900000-000{millis}-7000-8000-000000000000");
    let heal = |millis: u8| {
        json!({"id": id(millis), "class": "ObjectMissing", "object": "Deployment x/y", "evidence": "gone",
            "steps": [], "detectedAt": "2024-06-10T02:35:18.400Z", "result": "open"})
    };
    let heals: Vec<Value> = (0..5).map(heal).collect();
    let report =
        json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": heals});
    let path = "/v1/clusters/eu1/reports";
    let (code, _) = agent.call(&hub, "POST", path, &report.to_string()).await;
    assert_eq!(code, 200);
    let page = async |query: &str| {
        let (code, page) = hub.get(&format!("/v1/heals?{query}")).await;
        assert_eq!(code, 200, "{page}");
        let items = page["items"].as_array().unwrap().iter();
        let ids: Vec<Value> = items.map(|heal| heal["id"].clone()).collect();
        (ids, page["cursor"].as_str().map(str::to_owned))
    };
    let ids = |all: &[u8]| all.iter().map(|n| json!(id(*n))).collect::<Vec<_>>();
    let (since, until) = (
        "since=2024-06-10T02:35:18.401Z",
        "until=2024-06-10T02:35:18.404Z",
    );
    assert_eq!(page(since).await, (ids(&[4, 3, 2, 1]), None));
    assert_eq!(page(until).await, (ids(&[3, 2, 1, 0]), None));
    let both = format!("open=true&{since}&{until}");
    assert_eq!(page(&both).await, (ids(&[3, 2, 1]), None));
    let first = format!("{both}&limit=2");
    let (some, cursor) = page(&first).await;
    assert_eq!((some, cursor.as_ref()), (ids(&[3, 2]), Some(&id(2))));
    let rest = format!("{first}&cursor={}", cursor.unwrap());
    assert_eq!(page(&rest).await, (ids(&[1]), None));
    let (code, problem) = hub.get("/v1/heals?since=03:12").await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"), "{problem}");
    hub.stop().await;
}

/// F3: of a `kubectl scale` nothing is left in the object, and the hub carried it.
#[tokio::test]
async fn who_wrote_to_a_heals_object_through_the_hub_is_told_to_who_may_read_the_audit() {
    let hub = TestHub::start("through").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let target = "/apis/apps/v1/namespaces/x/deployments/y/scale";
    let entry = |action: &str| Entry {
        actor: "user:ada".to_owned(),
        action: action.to_owned(),
        cluster: Some("eu1".to_owned()),
        target: target.to_owned(),
        request_id: "r1".to_owned(),
        ..Entry::default()
    };
    let write = hub.hub.audit.open(entry("kube.patch")).await.unwrap();
    write.close(200, 1, 1);
    // Behind it in the record.
    hub.hub.audit.event(entry("test")).await.unwrap();
    let id = |n: u8| format!("01900000-0000-7000-8000-00000000000{n}");
    let seen = clock::rfc3339(clock::now());
    let heal = |n: u8, object: &str| {
        json!({"id": id(n), "class": "ScaledToZero", "object": object, "evidence": "differs at /spec/replicas",
            "steps": [], "detectedAt": seen, "result": "open"})
    };
    let report = json!({
        "agent": {"version": "0.1.0", "image": "i", "arch": "amd64"},
        "heals": [heal(1, "Deployment x/y"), heal(2, "Deployment x/z")],
    });
    let path = "/v1/clusters/eu1/reports";
    let (code, _) = agent.call(&hub, "POST", path, &report.to_string()).await;
    assert_eq!(code, 200);
    let (_, told) = hub.get(&format!("/v1/heals/{}", id(1))).await;
    let at = told["throughHub"][0]["at"].clone();
    let expected = json!([
        {"at": at, "actor": "user:ada", "action": "kube.patch", "target": target, "requestId": "r1"}
    ]);
    assert_eq!(told["throughHub"], expected, "{told}");
    assert!(at.as_str().is_some_and(|at| at <= seen.as_str()), "{told}");
    let (_, other) = hub.get(&format!("/v1/heals/{}", id(2))).await;
    assert_eq!(other["throughHub"], json!([]), "{other}");
    // To read it is on record.
    let (_, read) = hub.get("/v1/audit?action=audit.read&cluster=eu1").await;
    let asked = json!(format!("writes to Deployment x/z before heal {}", id(2)));
    let mut read = read["items"].as_array().unwrap().iter();
    assert!(read.any(|record| record["target"] == asked), "{asked}");
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let path = format!("/v1/heals/{}", id(1));
    let asked = hub.call_as(&viewer, ("GET", &path), &[], &Value::Null);
    let (code, told) = asked.await;
    assert_eq!((code, told.get("throughHub")), (200, None), "{told}");
    hub.stop().await;
}

/// W28: the story of a heal names who committed what broke the engine, as far as the hub's catalog tells.
#[tokio::test]
async fn a_heal_is_told_with_its_parts_and_the_author_of_the_commit() {
    let hub = TestHub::start("story").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (_, catalog) = hub.get("/v1/catalog").await;
    let head = catalog["head"].as_str().unwrap();
    let record = |id: &str, commit: &str| {
        json!({"id": format!("01900000-0000-7000-8000-00000000000{id}"), "class": "BadEngineCommit", "number": 43,
            "meaning": "a commit broke it", "object": "Deployment x/y", "evidence": "gone", "writer": "kustomize-controller",
            "commit": commit, "steps": [], "faultAt": "2026-11-21T05:00:00.000Z", "detectedAt": "2026-11-21T05:00:01.500Z",
            "actedAt": "2026-11-21T05:00:02.000Z", "restoredAt": "2026-11-21T05:00:30.000Z", "result": "healed"})
    };
    let both = [
        record("1", &format!("main@sha1:{head}")),
        record("2", &"1".repeat(40)),
    ];
    let report =
        json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": both});
    let path = "/v1/clusters/eu1/reports";
    let (code, _) = agent.call(&hub, "POST", path, &report.to_string()).await;
    assert_eq!(code, 200);
    let (_, listed) = hub.get("/v1/heals").await;
    let [unknown, known] = [0, 1].map(|n| listed["items"][n].clone());
    assert!(unknown.get("author").is_none(), "{unknown}");
    assert_eq!(
        known["author"]["author"], "Linesman <linesman@localhost>",
        "{known}"
    );
    assert!(known.get("story").is_none(), "only where one is asked for");
    let id = known["id"].as_str().unwrap();
    let (_, told) = hub.get(&format!("/v1/heals/{id}")).await;
    assert_eq!(
        told["took"],
        json!({"detectMs": 1500, "actMs": 500, "restoreMs": 28_000})
    );
    let lines = told["story"].as_array().unwrap();
    let lines: Vec<&str> = lines.iter().map(|l| l["text"].as_str().unwrap()).collect();
    assert_eq!(
        lines[..2],
        [
            "'kustomize-controller' wrote Deployment x/y",
            "seen, and called F43 BadEngineCommit"
        ]
    );
    // Told again, it is no news; of a class that this hub does not know, its words are no label.
    let mut unknown = record("3", "");
    unknown["class"] = json!("SomethingNew");
    let report = json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": [both[0], unknown]});
    agent.call(&hub, "POST", path, &report.to_string()).await;
    let text = metrics(&hub).await;
    for line in [
        "linesman_heals_total{class=\"BadEngineCommit\",step=\"none\",result=\"healed\"} 2\n",
        "linesman_heals_total{class=\"other\",step=\"none\",result=\"healed\"} 1\n",
        "linesman_heal_seconds_sum{class=\"BadEngineCommit\",phase=\"restore\"} 56.0\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("SomethingNew"), "{text}");
    hub.stop().await;
}
