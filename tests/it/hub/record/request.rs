//! What one request left in the record, found by its id.

use serde_json::{Value, json};

use super::{actions, records};
use crate::hub::slug;
use crate::hub::support::TestHub;

/// Who was refused has the request's id, and by it the auditor finds why; what was let through is found by its own.
#[tokio::test]
async fn a_request_is_found_by_the_id_that_its_answer_names() {
    let hub = TestHub::start("audit-request").await;
    hub.add("eu1").await;
    let eve = hub.user("eve", &[], &[]).await;
    let call = ("GET", "/clusters/eu1/version");
    let (code, status) = hub.call_as(&eve, call, &[], &Value::Null).await;
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap();
    let (_, id) = message.rsplit_once("(request ").unwrap();
    let id = id.trim_end_matches(')');
    records(&hub, 5).await;
    let of = async |query: &str| hub.get(&format!("/v1/audit?request={query}")).await;
    for query in [id.to_owned(), format!("{id}&after=0"), id.to_uppercase()] {
        let (code, found) = of(&query).await;
        assert_eq!((code, actions(&found)), (200, vec!["kube.get"]), "{query}");
        let record = &found["items"][0];
        assert_eq!(
            (&record["actor"], &record["requestId"], &record["reason"]),
            (
                &json!("user:eve"),
                &json!(id),
                &json!("eve has no grant on cluster eu1")
            )
        );
    }
    let made = hub.raw_as("GET", "/clusters/eu1/version").await;
    let own = made.headers()["x-request-id"].to_str().unwrap().to_owned();
    let (_, found) = of(&own).await;
    let stages = found["items"].as_array().unwrap().iter();
    let stages: Vec<&str> = stages.map(|a| a["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["close", "open"]);
    for none in ["r1", "1b4e28ba-2fa1-41d2-883f-0016d3cca427", ""] {
        let (code, problem) = of(none).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{none}");
    }
    hub.stop().await;
}
