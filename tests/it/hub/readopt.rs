//! The YAML of a cluster that is adopted again.

use serde_json::{Value, json};

use super::support::TestHub;

async fn yaml(hub: &TestHub, path: &str, body: Value) -> String {
    let (code, answer) = hub.post(path, &body).await;
    assert_eq!(code, 201, "{answer}");
    answer["yaml"].as_str().unwrap().to_owned()
}

/// One option that is given is no word on the others: rights that a cluster's owner never gave must not come back with a
/// new image.
#[tokio::test]
async fn what_is_not_given_stays_as_it_was() {
    let hub = TestHub::start("readopt-options").await;
    let new = json!({"name": "eu1", "adoption": {
        "access": "view", "httpsProxy": "http://proxy:3128", "image": "registry/agent:1",
    }});
    yaml(&hub, "/v1/clusters", new).await;
    let again = "/v1/clusters/eu1/join-tokens";
    for (given, image, proxy, edits) in [
        (json!({}), "registry/agent:1", "http://proxy:3128", false),
        (
            json!({"image": "registry/agent:2"}),
            "registry/agent:2",
            "http://proxy:3128",
            false,
        ),
        (
            json!({"tokenTtl": 600}),
            "registry/agent:1",
            "http://proxy:3128",
            false,
        ),
        (json!({"httpsProxy": ""}), "registry/agent:1", "\"\"", false),
        (
            json!({"access": "edit"}),
            "registry/agent:1",
            "http://proxy:3128",
            true,
        ),
    ] {
        let yaml = yaml(&hub, again, json!({"adoption": given})).await;
        assert!(
            yaml.contains(&format!("\n        image: {image}\n")),
            "{given}"
        );
        assert!(
            yaml.contains(&format!("\n  proxy: {proxy}\n")),
            "{given}: {yaml}"
        );
        // Each is named, or to apply it would leave those that an adoption before bound.
        let named = ["view", "edit", "admin"]
            .map(|group| yaml.contains(&format!("\n  name: linesman-{group}\n")));
        assert_eq!(named, [true, true, true], "{given}");
        let bound = ["view", "edit", "admin"]
            .map(|group| yaml.contains(&format!("\n  name: linesman:{group}\n")));
        assert_eq!(bound, [true, edits, false], "{given}");
    }
    hub.stop().await;
}

/// What its agent could not use is told while somebody is there who can correct it.
#[tokio::test]
async fn a_proxy_that_no_agent_could_ask_is_refused() {
    let hub = TestHub::start("adopt-proxy").await;
    for proxy in ["https://proxy:3128", "proxy", "http://proxy:3128/path"] {
        let new = json!({"name": "eu1", "adoption": {"httpsProxy": proxy}});
        let (code, answer) = hub.post("/v1/clusters", &new).await;
        assert_eq!(code, 400, "{proxy}: {answer}");
        assert!(answer.to_string().contains("httpsProxy"), "{answer}");
    }
    let new = json!({"name": "eu1", "adoption": {"httpsProxy": "http://u:p%40ss@proxy"}});
    let yaml = yaml(&hub, "/v1/clusters", new).await;
    assert!(
        yaml.contains("\n  proxy: http://u:p%40ss@proxy\n"),
        "{yaml}"
    );
    hub.stop().await;
}
