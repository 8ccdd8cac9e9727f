//! What agents report, and what becomes of heals.

use linesman::hub::store::{Details, Reported, Store};
use linesman::wire::api::{AgentBuild, HostKeysReport};
use linesman::wire::report::{
    Condition, ConditionType, Facts, HealRecord, HealResult, HealStep, LaterCondition, Scene,
    Status, StepName, StepReport, StepState,
};

use super::{at, cluster, on_both};

mod acts;
mod healing;

on_both! {
    a_report_replaces_what_the_agent_said_before,
    what_the_hub_sees_is_not_for_the_agent_to_say,
    what_clusters_say_of_host_keys_keeps_its_age,
    troubles_are_kept_until_they_are_gone,
}

fn heal(id: &str, result: HealResult) -> HealRecord {
    HealRecord {
        id: id.to_owned(),
        class: "ObjectMissing".to_owned(),
        number: 1,
        meaning: "an object is missing".to_owned(),
        object: "Deployment flux-system/source-controller".to_owned(),
        evidence: "it \"was\" there\n\u{0}".to_owned(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: vec![HealStep {
            action: "create".to_owned(),
            object: "Deployment flux-system/source-controller".to_owned(),
            at: "2026-01-01T00:00:01.000Z".to_owned(),
            outcome: "ok".to_owned(),
        }],
        fault_at: None,
        detected_at: "2026-01-01T00:00:00.000Z".to_owned(),
        acted_at: None,
        restored_at: (result == HealResult::Healed).then(|| "2026-01-01T00:00:02.000Z".to_owned()),
        result,
        next: String::new(),
        scene: Scene::default(),
    }
}

fn heals(heals: &[HealRecord]) -> Reported {
    Reported {
        heals: heals.to_vec(),
        ..Reported::default()
    }
}

fn condition(kind: ConditionType, status: Status, since: &str) -> Condition {
    Condition {
        kind,
        status,
        reason: "Why".to_owned(),
        message: "because".to_owned(),
        since: since.to_owned(),
    }
}

/// A condition that this program does not know.
fn later() -> LaterCondition {
    LaterCondition {
        kind: "Later".to_owned(),
        status: "True".to_owned(),
        ..LaterCondition::default()
    }
}

/// H47 of facts: one that the agent tells no more is gone.
async fn a_report_replaces_what_the_agent_said_before(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    let step = |step, state| StepReport {
        step,
        state,
        reason: String::new(),
        at: "2026-01-01T00:00:00.000Z".to_owned(),
    };
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let facts = |value| -> Option<Facts> { Some([fact("kubernetes", value)].into()) };
    let git = |status| condition(ConditionType::GitReachable, status, "t");
    let first = Reported {
        agent: AgentBuild {
            version: "0.1.0".to_owned(),
            ..AgentBuild::default()
        },
        facts: Some([fact("kubernetes", "1.33"), fact("zone", "eu-1a")].into()),
        steps: vec![
            step(StepName::Git, StepState::Running),
            step(StepName::Keys, StepState::Done),
        ],
        conditions: Some(vec![
            git(Status::False),
            condition(ConditionType::EngineHealthy, Status::True, "t"),
        ]),
        revision: Some("abc".to_owned()),
        ..Reported::default()
    };
    store.report(&eu1.id, first, at(1)).await.unwrap();
    let later = later();
    let second = Reported {
        facts: facts("1.34"),
        steps: vec![step(StepName::Git, StepState::Done)],
        conditions: Some(vec![git(Status::True)]),
        later: vec![later.clone()],
        heals: vec![heal("1", HealResult::Open)],
        ..Reported::default()
    };
    store.report(&eu1.id, second, at(2)).await.unwrap();
    let ids = [us1.id.clone(), eu1.id.clone()];
    let wanted = Details {
        facts: facts("1.34").unwrap(),
        steps: vec![
            step(StepName::Keys, StepState::Done),
            step(StepName::Git, StepState::Done),
        ],
        conditions: vec![git(Status::True)],
        later: vec![later],
        open_heals: 1,
        keys: vec![],
    };
    assert_eq!(
        store.details(&ids).await.unwrap(),
        [Details::default(), wanted]
    );
    // One fact alone, of whoever tells it.
    for (key, told) in [("kubernetes", Some("1.34".to_owned())), ("zone", None)] {
        assert_eq!(store.fact(&ids, key).await.unwrap(), [None, told], "{key}");
    }
    let now = store.cluster_by_id(&eu1.id).await.unwrap().unwrap();
    assert_eq!(
        (
            now.agent_version.as_deref(),
            now.synced_revision.as_deref(),
            now.last_seen
        ),
        (Some("0.1.0"), Some("abc"), Some(at(2)))
    );
}

async fn what_the_hub_sees_is_not_for_the_agent_to_say(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let mine = |status, since| condition(ConditionType::LineUp, status, since);
    for (status, since) in [
        (Status::True, "t1"),
        (Status::True, "t2"),
        (Status::False, "t3"),
    ] {
        store
            .set_condition(&eu1.id, mine(status, since), at(1))
            .await
            .unwrap();
    }
    let report = Reported {
        conditions: Some(vec![mine(Status::True, "t4")]),
        ..Reported::default()
    };
    store.report(&eu1.id, report, at(2)).await.unwrap();
    let details = store.details(&[eu1.id]).await.unwrap().remove(0);
    assert_eq!(details.conditions, [mine(Status::False, "t3")]);
}

async fn what_clusters_say_of_host_keys_keeps_its_age(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let say = |trusted: &str, ms| {
        let host_keys = Some(HostKeysReport {
            trusted: vec![trusted.to_owned()],
            shown: None,
        });
        let report = Reported {
            host_keys,
            ..Reported::default()
        };
        store.report(&eu1.id, report, at(ms))
    };
    for (trusted, ms, since) in [("a", 1, 1), ("a", 2, 1), ("b", 3, 3)] {
        say(trusted, ms).await.unwrap();
        let said = store.host_key_reports().await.unwrap().remove(0);
        assert_eq!((said.trusted_at, said.at), (at(since), at(ms)));
        assert_eq!(
            (said.trusted.as_slice(), said.shown),
            ([trusted.to_owned()].as_slice(), None)
        );
    }
}

async fn troubles_are_kept_until_they_are_gone(store: Store) {
    let key = |name: &str| (name.parse().unwrap(), "ObjectMissing".to_owned());
    let put = |name: &str, record: &str| vec![(key(name), record.to_owned())];
    store
        .change_troubles(put("eu1", "{}"), vec![])
        .await
        .unwrap();
    store
        .change_troubles(put("eu1", "{\"a\":1}"), vec![key("none")])
        .await
        .unwrap();
    assert_eq!(store.troubles().await.unwrap(), put("eu1", "{\"a\":1}"));
    store
        .change_troubles(put("us1", "{}"), vec![key("eu1")])
        .await
        .unwrap();
    assert_eq!(store.troubles().await.unwrap(), put("us1", "{}"));
}
