//! ConfigMap `linesman-heals`: the heals that the hub does not have, for a process after this one.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use serde_json::Value;
use tracing::warn;

use super::RETRY;
use super::outbox::Outbox;
use crate::agent::calls::{AtMost as _, CALL};
use crate::agent::engine::MANAGER;
use crate::agent::fitting;
use crate::manifests::HEALS_MAP;
use crate::wire::report::HealRecord;

const HEALS: &str = "heals.json";
const DROPPED: &str = "dropped";

/// What a former process could not deliver.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Former {
    pub(super) heals: Vec<HealRecord>,
    /// Items that this version does not understand. Another one may: they stay as they are.
    pub(super) strange: Vec<Value>,
    /// What is wrong with the ConfigMap, for people.
    pub(super) wrong: Option<String>,
}

/// Reads them, as often as it takes: what is not read would be written over, and lost.
pub(super) async fn load(maps: &Api<ConfigMap>) -> Former {
    let mut attempt = 0;
    loop {
        match maps.get_opt(HEALS_MAP).await_at_most(CALL).await {
            Ok(map) => return read(map.and_then(|map| map.data).unwrap_or_default()),
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                warn!(error, "ConfigMap {HEALS_MAP} not read; trying again");
            }
        }
        let wait = RETRY.full_jitter(attempt, crate::clock::unit());
        attempt += 1;
        tokio::time::sleep(wait).await;
    }
}

fn read(mut data: BTreeMap<String, String>) -> Former {
    let Some(text) = data.remove(HEALS) else {
        return Former::default();
    };
    let items: Vec<Value> = match serde_json::from_str(&text) {
        Ok(items) => items,
        Err(error) => {
            let wrong = format!("{HEALS} is no list of heals, and is written anew: {error}");
            return Former {
                wrong: Some(wrong),
                ..Former::default()
            };
        }
    };
    let mut former = Former::default();
    for item in items {
        match serde_json::from_value(item.clone()) {
            Ok(heal) => former.heals.push(heal),
            Err(_) => former.strange.push(item),
        }
    }
    let strange = former.strange.len();
    former.wrong = (strange > 0)
        .then(|| format!("{HEALS} has {strange} items that this version cannot read; they stay"));
    former
}

/// Writes down what the hub does not have. False = it would not outlive a restart.
pub(super) async fn store(maps: &Api<ConfigMap>, outbox: Kept) -> bool {
    let written = write(maps, outbox).await;
    if let Err(error) = &written {
        let error = format!("{error:#}");
        warn!(
            error,
            "ConfigMap {HEALS_MAP} not written; these heals would not outlive a restart"
        );
    }
    written.is_ok()
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    text: String,
    dropped: u64,
}

impl Kept {
    /// None while it is not known what is there: that would be lost.
    pub(super) fn of(outbox: &Outbox) -> Option<Self> {
        let heals = outbox.heals().iter();
        let heals = heals.filter_map(|heal| serde_json::to_string(heal).ok());
        let strange = outbox.strange().iter().map(Value::to_string);
        let (text, beyond) = fitting::list(heals.chain(strange));
        if beyond > 0 {
            warn!(
                beyond,
                "more waits for the hub than ConfigMap {HEALS_MAP} holds: these heals would not outlive a restart"
            );
        }
        outbox.knows_former().then(|| Self {
            text,
            dropped: outbox.dropped(),
        })
    }
}

async fn write(maps: &Api<ConfigMap>, kept: Kept) -> Result<()> {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(HEALS_MAP.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            (HEALS.to_owned(), kept.text),
            (DROPPED.to_owned(), kept.dropped.to_string()),
        ])),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply(MANAGER).force();
    maps.patch(HEALS_MAP, &params, &Patch::Apply(&map))
        .await_at_most(CALL)
        .await
        .with_context(|| format!("write ConfigMap {HEALS_MAP}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::agent::News;
    use crate::wire::api::AgentBuild;

    fn heal(id: &str, evidence: usize) -> HealRecord {
        let heal = json!({
            "id": id, "class": "ObjectMissing", "object": "x", "evidence": "é".repeat(evidence), "writer": "",
            "revision": "", "steps": [], "faultAt": null, "detectedAt": "2026-01-01T00:00:00Z", "actedAt": null,
            "restoredAt": null, "result": "healed", "next": "",
        });
        serde_json::from_value(heal).unwrap()
    }

    fn data(text: String) -> BTreeMap<String, String> {
        BTreeMap::from([(HEALS.to_owned(), text)])
    }

    fn blank() -> Outbox {
        Outbox::without_former(AgentBuild::default())
    }

    /// W25: one answer that fails, and one that never comes, cost no record of what a former process left.
    #[tokio::test(start_paused = true)]
    async fn the_heals_of_a_former_process_are_read_as_often_as_it_takes() {
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&asked);
        let server = tower::service_fn(move |_: Request<Body>| {
            let number = seen.fetch_add(1, Ordering::Relaxed);
            async move {
                let (code, said) = match number {
                    0 => (500, json!({"kind": "Status", "code": 500, "reason": "x"})),
                    1 => std::future::pending().await,
                    _ => (
                        200,
                        json!({"data": data(json!([heal("a", 1)]).to_string())}),
                    ),
                };
                let answer = Response::builder().status(code);
                let answer = answer.body(Body::from(said.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let maps = Api::namespaced(kube::Client::new(server, "linesman"), "linesman");
        let expected = Former {
            heals: vec![heal("a", 1)],
            ..Former::default()
        };
        assert_eq!(load(&maps).await, expected);
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    /// W25, W46
    #[test]
    fn what_is_not_read_or_not_understood_is_not_written_over() {
        let mut outbox = blank();
        outbox.add(News::Heal(Box::new(heal("new", 1))));
        assert_eq!(Kept::of(&outbox), None);
        let odd = json!({"id": 7});
        let former = read(data(json!([heal("old", 1), odd]).to_string()));
        assert_eq!(former.heals, [heal("old", 1)]);
        let wrong = "heals.json has 1 items that this version cannot read; they stay";
        assert_eq!(former.wrong.as_deref(), Some(wrong));
        outbox.recall(former.heals, former.strange);
        let kept = Kept::of(&outbox).unwrap();
        let again = read(data(kept.text));
        assert_eq!(again.heals, [heal("old", 1), heal("new", 1)]);
        assert_eq!(again.strange, [odd]);
        for broken in ["", "{}", "[", "null"] {
            let former = read(data(broken.to_owned()));
            assert_eq!(former.heals, [], "{broken}");
            assert!(former.wrong.is_some(), "{broken}");
        }
        assert_eq!(read(BTreeMap::new()), Former::default());
    }

    #[test]
    fn heals_beyond_what_a_config_map_holds_do_not_keep_the_others_out() {
        let mut outbox = blank();
        let all: Vec<HealRecord> = (0..200).map(|n| heal(&n.to_string(), 4_096)).collect();
        outbox.recall(all.clone(), Vec::new());
        let kept = Kept::of(&outbox).unwrap();
        assert!(kept.text.len() <= fitting::MOST, "{}", kept.text.len());
        let read = read(data(kept.text)).heals;
        assert_eq!(read, all[..read.len()]);
        assert!((10..200).contains(&read.len()), "{}", read.len());
    }
}
