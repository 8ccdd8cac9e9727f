//! What stands before the hub passes requests and no WebSocket: the agent's real part that joins, its reporter and its link.

use linesman::agent::News;
use linesman::agent::link::LinkState;
use linesman::clock;
use linesman::wire::report::{StepName, StepReport, StepState};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::older::{Front, applied, dialling, shown};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::wait::until_some;

/// No answer leads past what stands there: a hub that signs nothing of itself is where the YAML has it.
fn unsigned(_path: &str, told: &mut Value) {
    if let Some(told) = told.as_object_mut() {
        told.remove("trust");
    }
}

/// H10: a cluster that gets no line is adopted by HTTPS alone, is no silent one, and shows that it has none.
#[tokio::test]
async fn a_cluster_whose_line_is_blocked_is_adopted_and_shown_without_one() {
    let hub = TestHub::start("blocked").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub, unsigned).await;
    let join = applied(&front, vec![hub.hub.says().keys.pin()], &token);
    let mut agent = dialling(Some(join), &Secrets::default()).await;
    let dialled = |line: &LinkState| matches!(line, LinkState::Down { attempt: 1.., .. });
    let refused = timeout(PATIENCE, agent.line.wait_for(dialled)).await;
    let refused = refused.expect("it dials").unwrap().clone();
    let LinkState::Down { cause, .. } = refused else {
        panic!("a line is up");
    };
    let upgrade = format!("answered 400 to the upgrade of {}", front.url);
    assert!(cause.contains(&upgrade), "{cause}");

    let adopted = StepReport {
        step: StepName::Adopted,
        state: StepState::Done,
        reason: String::new(),
        at: clock::rfc3339(clock::now()),
    };
    agent.news.send(News::Step(adopted)).await.unwrap();
    until_some("it is adopted", PATIENCE, async || {
        let (code, view) = hub.get("/v1/clusters/eu1").await;
        assert_eq!(code, 200, "{view}");
        if view["phase"] == json!("Healthy") {
            return Ok(());
        }
        Err(view)
    })
    .await;
    let (told, view) = shown(&hub, "LineUp", "False").await;
    assert_eq!(
        (&told["reason"], &told["message"], &view["line"]["up"]),
        (
            &json!("Down"),
            &json!("no line since this hub started; see the agent's log"),
            &json!(false)
        )
    );
    assert_eq!(view["phase"], json!("Healthy"));
    hub.stop().await;
}
