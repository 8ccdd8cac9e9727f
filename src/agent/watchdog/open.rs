//! The open heals in the cluster, and what was tried of late: an agent that ends leaves them to the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::warn;

use super::ailing::Ails;
use super::budgets::Tried;
use super::record::Kept;
use super::silences::Owed;
use super::stamp::Stamp;
use super::stopped::Stop;
use super::versions::Version;
use crate::agent::calls::{AtMost as _, CALL};
use crate::agent::engine::MANAGER;
use crate::agent::fitting;
use crate::agent::plan::{Action, History};
use crate::bundle::ObjectId;
use crate::clock;
use crate::manifests::OPEN_HEALS_MAP as NAME;

const HEALS: &str = "heals.json";
/// Up to 300 KiB.
const BUDGETS: &str = "budgets.json";
const SILENCES: &str = "silences.json";
const AILING: &str = "ailing.json";
const TAKEN: &str = "taken.json";
const STOPPED: &str = "stopped.json";
const VERSIONS: &str = "versions.json";
/// When they were written.
const CLOCK: &str = "clock.json";
/// For the record of what the guard took, before anything is let go: it takes milliseconds, unless a webhook keeps it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is left to the next agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) heals: Vec<Kept>,
    pub(super) tried: Vec<Tried>,
    pub(super) owed: Vec<Owed>,
    pub(super) ailing: Vec<Ails>,
    pub(super) taken: Vec<Taken>,
    pub(super) stopped: Vec<Stop>,
    pub(super) versions: Vec<Version>,
}

/// A right that the guard took and that is not back, in the words of a heal's step: by these the removal of the agent knows it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    action: String,
    object: String,
}

impl Left {
    /// Which rights the guard took; which ones exactly an agent before this one knew.
    pub(super) fn cut(&self) -> impl Iterator<Item = (ObjectId, String)> {
        let cut = Action::CutRights { uid: String::new() }.as_str();
        let taken = self.taken.iter().filter(move |one| one.action == cut);
        let objects = taken.filter_map(|one| one.object.parse::<ObjectId>().ok());
        objects.map(|id| (id, String::new()))
    }
}

/// What of the guard's doing is to be known to the next agent, also where no heal tells of it: something began to die in the midst of
/// something else, or the record is full.
pub(super) fn taken(history: &History) -> Vec<Taken> {
    let cut = Action::CutRights { uid: String::new() };
    let rights = history.cut.keys().map(|id| Taken {
        action: cut.as_str().to_owned(),
        object: id.to_string(),
    });
    rights.collect()
}

/// The same as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) left: Left,
    /// When it was written; none = by an agent of before, or on a node that does not say.
    pub(super) stamp: Option<Stamp>,
    /// What cannot be used of it, for people.
    pub(super) wrong: Vec<String>,
}

/// ConfigMap `linesman-open-heals` in the agent's namespace.
pub(super) struct OpenHeals {
    maps: Api<ConfigMap>,
    written: Left,
    /// What the guard took, where the record of that was waited for in vain.
    waited: Option<Vec<Taken>>,
}

impl OpenHeals {
    pub(super) fn new(kube: &Client, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(kube.clone(), namespace),
            written: Left::default(),
            waited: None,
        }
    }

    /// What cannot be understood is told and left out: a broken record must not keep the agent from its work.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn load(&mut self) -> Result<Read> {
        let map = self.maps.get_opt(NAME).await_at_most(CALL).await;
        let map = map.with_context(|| format!("read ConfigMap {NAME}"))?;
        let data = map.and_then(|m| m.data).unwrap_or_default();
        let mut wrong = Vec::new();
        self.written = Left {
            heals: read(&data, HEALS, &mut wrong),
            tried: read(&data, BUDGETS, &mut wrong),
            owed: read(&data, SILENCES, &mut wrong),
            ailing: read(&data, AILING, &mut wrong),
            taken: read(&data, TAKEN, &mut wrong),
            stopped: read(&data, STOPPED, &mut wrong),
            versions: read(&data, VERSIONS, &mut wrong),
        };
        let left = self.written.clone();
        let stamp = data.get(CLOCK);
        let stamp = stamp.and_then(|text| serde_json::from_str(text).ok());
        Ok(Read { left, stamp, wrong })
    }

    /// Writes them where they changed.
    pub(super) async fn store(&mut self, left: Left) {
        if left == self.written {
            return;
        }
        if let Err(error) = self.write(&left).await {
            warn!(
                error = format!("{error:#}"),
                "open heals are kept in memory only"
            );
            return;
        }
        self.written = left;
        self.waited = None;
    }

    /// The same before anything is let go, where what the guard took is not on record yet: once, and not for long, or what dies
    /// would stay for as long as a webhook keeps each ConfigMap. Each round writes it again.
    pub(super) async fn store_taken(&mut self, left: Left) {
        let taken = left.taken.clone();
        if taken == self.written.taken || self.waited.as_ref() == Some(&taken) {
            return;
        }
        let stored = timeout(PATIENCE, self.store(left)).await;
        if stored.is_err() {
            warn!(
                seconds = PATIENCE.as_secs(),
                "what the guard took is not on record yet; what dies is let go all the same"
            );
            self.waited = Some(taken);
        }
    }

    async fn write(&self, left: &Left) -> Result<()> {
        let (heals, beyond) = fit(&left.heals)?;
        if beyond > 0 {
            warn!(
                beyond,
                "more heals are open than ConfigMap {NAME} holds: an agent after this one does not know these"
            );
        }
        let tried = serde_json::to_string(&left.tried).context("write what was tried")?;
        let owed = serde_json::to_string(&left.owed).context("write who owes an answer")?;
        let ailing = serde_json::to_string(&left.ailing).context("write what the roots have")?;
        let taken = serde_json::to_string(&left.taken).context("write what the guard took")?;
        let stopped = serde_json::to_string(&left.stopped).context("write who is stopped")?;
        let versions = serde_json::to_string(&left.versions).context("write what was seen")?;
        let mut data = BTreeMap::from([
            (HEALS.to_owned(), heals),
            (BUDGETS.to_owned(), tried),
            (SILENCES.to_owned(), owed),
            (AILING.to_owned(), ailing),
            (TAKEN.to_owned(), taken),
            (STOPPED.to_owned(), stopped),
            (VERSIONS.to_owned(), versions),
        ]);
        if let Some(boot) = clock::boot() {
            let stamp = Stamp::of(clock::now(), &boot);
            let stamp = serde_json::to_string(&stamp).context("write when that was")?;
            data.insert(CLOCK.to_owned(), stamp);
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply(MANAGER).force();
        self.maps
            .patch(NAME, &params, &Patch::Apply(&map))
            .await_at_most(CALL)
            .await
            .with_context(|| format!("write ConfigMap {NAME}"))?;
        Ok(())
    }
}

/// One list; items that this version cannot read are left out, and the others are not lost with them.
fn read<T: DeserializeOwned>(
    data: &BTreeMap<String, String>,
    key: &str,
    wrong: &mut Vec<String>,
) -> Vec<T> {
    let Some(text) = data.get(key) else {
        return Vec::new();
    };
    let items: Vec<serde_json::Value> = serde_json::from_str(text).unwrap_or_else(|error| {
        wrong.push(format!("ConfigMap {NAME}: {key} is no list: {error}"));
        Vec::new()
    });
    let all = items.len();
    let known = items.into_iter().map(serde_json::from_value);
    let known: Vec<T> = known.filter_map(Result::ok).collect();
    if known.len() < all {
        let unknown = all - known.len();
        wrong.push(format!(
            "ConfigMap {NAME}: {key} has {unknown} items that this version cannot read"
        ));
    }
    known
}

/// As many of the heals as fit, in their order, as text, and how many do not.
fn fit(heals: &[Kept]) -> Result<(String, usize)> {
    let items = heals.iter().map(serde_json::to_string);
    let items: Vec<String> = items
        .collect::<Result<_, _>>()
        .context("write an open heal")?;
    Ok(fitting::list(items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Kind;

    fn kept(n: usize, evidence: usize) -> Kept {
        let kept = serde_json::json!({
            "kind": "Deployment", "namespace": "flux-system", "name": format!("c{n}"), "record": {
                "id": format!("id-{n}"), "class": "ObjectMissing", "object": "x", "evidence": "é".repeat(evidence),
                "writer": "", "revision": "", "steps": [], "faultAt": null, "detectedAt": "2026-01-01T00:00:00Z",
                "actedAt": null, "restoredAt": null, "result": "open", "next": "",
            },
        });
        serde_json::from_value(kept).unwrap()
    }

    fn heals_of(data: &BTreeMap<String, String>) -> (Vec<Kept>, Vec<String>) {
        let mut wrong = Vec::new();
        (read(data, HEALS, &mut wrong), wrong)
    }

    /// W44
    #[test]
    fn what_the_guard_took_is_known_to_the_next_agent() {
        let right = ObjectId::new(Kind::ClusterRoleBinding, "", "a");
        let mut history = History::default();
        assert_eq!(taken(&history), []);
        history.cut.insert(right.clone(), "uid".to_owned());
        let text = serde_json::to_string(&taken(&history)).unwrap();
        // The removal of the agent looks for this.
        assert!(text.contains("\"cut-rights\""), "{text}");
        let data = BTreeMap::from([(TAKEN.to_owned(), text)]);
        let mut wrong = Vec::new();
        let mut left = Left {
            taken: read(&data, TAKEN, &mut wrong),
            ..Left::default()
        };
        // What another version may say.
        for (action, object) in [
            ("cut-rights", "?".to_owned()),
            ("another", "ClusterRoleBinding b".to_owned()),
        ] {
            left.taken.push(Taken {
                action: action.to_owned(),
                object,
            });
        }
        let known: Vec<(ObjectId, String)> = left.cut().collect();
        assert_eq!(known, [(right, String::new())]);
        assert_eq!(wrong, Vec::<String>::new());
    }

    /// What does not fit costs nothing of what does.
    #[test]
    fn heals_that_do_not_fit_are_counted() {
        let heals: Vec<Kept> = (0..128).map(|n| kept(n, 4_096)).collect();
        let (text, beyond) = fit(&heals).unwrap();
        assert!(text.len() <= fitting::MOST, "{}", text.len());
        let data = BTreeMap::from([(HEALS.to_owned(), text)]);
        let again = heals_of(&data).0;
        assert_eq!(again, heals[..128 - beyond]);
        assert!((1..128).contains(&beyond), "{beyond}");
        let few = [kept(1, 1), kept(2, 1)];
        let (text, beyond) = fit(&few).unwrap();
        let data = BTreeMap::from([(HEALS.to_owned(), text)]);
        assert_eq!((heals_of(&data).0, beyond), (few.to_vec(), 0));
        assert_eq!(fit(&[]).unwrap(), ("[]".to_owned(), 0));
    }

    /// W46
    #[test]
    fn one_item_that_cannot_be_read_does_not_take_the_others_along() {
        let good = serde_json::to_value(kept(1, 1)).unwrap();
        let text = serde_json::json!([good, {"kind": 7}, "?"]).to_string();
        let data = BTreeMap::from([(HEALS.to_owned(), text)]);
        let wrong =
            "ConfigMap linesman-open-heals: heals.json has 2 items that this version cannot read";
        assert_eq!(heals_of(&data), (vec![kept(1, 1)], vec![wrong.to_owned()]));
        for broken in ["", "{}", "[", "null"] {
            let data = BTreeMap::from([(HEALS.to_owned(), broken.to_owned())]);
            let (heals, wrong) = heals_of(&data);
            assert_eq!((heals, wrong.len()), (Vec::new(), 1), "{broken}");
            let what = "ConfigMap linesman-open-heals: heals.json is no list";
            assert!(wrong[0].starts_with(what), "{wrong:?}");
        }
        assert_eq!(heals_of(&BTreeMap::new()), (Vec::new(), Vec::new()));
    }
}
