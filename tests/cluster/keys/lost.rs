//! H14, H15: what becomes of a cluster whose keys are lost.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::old::pairs;
use super::{of_kinds, readopted, start_agent, stop_agent};
use crate::healing::{controllers, deleted_again, settle, unchanged, workloads};
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{figure, seconds, shown, until};

/// Both pairs, for the agent alone.
pub(super) const KEYS: &str = "/api/v1/namespaces/linesman/secrets/linesman-keys";

/// What somebody does to that Secret.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Deleted,
    Emptied,
}

impl Loss {
    const ALL: [Self; 2] = [Self::Deleted, Self::Emptied];

    fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Emptied => "emptied",
        }
    }

    fn befalls(self, world: &World) {
        match self {
            Self::Deleted => assert!(world.api.delete(KEYS)),
            Self::Emptied => {
                world.api.patch(KEYS, &json!({ "data": null }));
            }
        }
    }
}

/// H14, H15: the key Secret is deleted or emptied while the agent runs, deleted while it does not, and together with the engine's copy.
#[test]
#[ignore = "needs a real cluster: make test"]
fn lost_keys_come_back_and_the_cluster_stays_the_same() {
    let world = world::adopted();
    lost_beside_the_agent(&world);
    lost_without_an_agent(&world, Loss::Deleted);
    both_lost(&world);
}

mod whole {
    use super::{Loss, lost_without_an_agent, works_with_a_line, world};

    /// H14
    #[test]
    #[ignore = "takes minutes: make chaos"]
    fn keys_that_were_emptied_while_the_agent_was_away_come_back() {
        let world = world::adopted();
        works_with_a_line(&world);
        lost_without_an_agent(&world, Loss::Emptied);
    }
}

/// H14, H15: the same, but for what no engine has a part in.
pub(crate) fn lost_and_readopted(world: &World) {
    lost_beside_the_agent(world);
    both_lost(world);
}

/// H14, as far as the agent itself has them.
pub(crate) fn lost_beside_the_agent(world: &World) {
    works_with_a_line(world);
    for loss in Loss::ALL {
        lost_beside_an_agent(world, loss);
    }
}

fn works_with_a_line(world: &World) {
    world.function(seconds(240));
    // A test before this one may have stopped the hub.
    until("the line is up", seconds(60), || world.line_is_up());
}

/// The agent has them in its memory, and writes the same ones.
fn lost_beside_an_agent(world: &World, loss: Loss) {
    let held = |world: &World| pairs(world).map(|keys| format!("{keys:?}"));
    let (before, known) = (held(world), of_kinds(world));
    assert!(before.is_some());
    loss.befalls(world);
    let took = until("the Secret has the same keys", seconds(30), || {
        held(world) == before
    });
    let what = format!("key Secret {}, agent there → back", loss.word());
    figure("H14", &world.said(&what), "≤ 5 s", shown(took));
    assert_eq!(of_kinds(world), known);
}

/// The engine's copy of the deploy key vouches for another identity.
fn lost_without_an_agent(world: &World, loss: Loss) {
    let before = of_kinds(world);
    stop_agent(world);
    loss.befalls(world);
    start_agent(world);
    let took = until("the line is back", seconds(180), || world.line_is_up());
    let what = format!("key Secret {}, agent away → line back", loss.word());
    figure("H14", &world.said(&what), "≤ 60 s", shown(took));
    let recovered = of_kinds(world);
    assert_eq!(recovered.1, before.1, "the deploy key is the same");
    assert!(
        recovered.0.len() == 1 && recovered.0 != before.0,
        "{recovered:?}"
    );
    // Else each later start would recover it once more.
    until("the mark of the loss is gone", seconds(30), || {
        pairs(world).is_some_and(|keys| !keys.lost)
    });
    world.function(seconds(60));
}

/// H15: new YAML with a new token brings the same cluster back: its workloads, and at the hub all that was on record of it.
fn both_lost(world: &World) {
    // So that there is something on record, whichever test was the first.
    deleted_again(world, 1);
    settle(world);
    let (keys, past) = (of_kinds(world), Past::of(world));
    let (uids, workloads) = (uids(world), workloads(world));
    let copy = if world.engine == ARGOCD {
        "linesman-catalog"
    } else {
        "flux-system"
    };
    let copy = format!("/api/v1/namespaces/{}/secrets/{copy}", world.namespace());
    stop_agent(world);
    assert!(world.api.delete(KEYS) && world.api.delete(&copy));
    start_agent(world);
    until("the hub shows that the keys are lost", seconds(120), || {
        let view = world.hub.json(&["cluster", "show", CLUSTER]);
        let all = view["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|c| c["reason"] == json!("KeysLost"))
    });
    let what = world.said("both lost, YAML of the readoption applied → line back");
    readopted(world, "H15", &what);
    until("one key of each kind is left", seconds(60), || {
        let (identity, deploy) = of_kinds(world);
        identity.len() == 1 && deploy.len() == 1 && deploy != keys.1
    });
    assert_eq!(self::uids(world), uids);
    unchanged(world, &workloads);
    until("the cluster is healthy", seconds(90), || {
        world.phase() == "Healthy"
    });
    past.must_still_be_told(world);
}

fn uids(world: &World) -> [Option<String>; 2] {
    controllers(world).map(|path| world.uid(&path))
}

/// What the hub has of a cluster.
#[derive(Debug)]
struct Past {
    id: Value,
    heals: Vec<Value>,
    audit: Vec<Value>,
}

impl Past {
    fn of(world: &World) -> Self {
        let all = |what: &str, of_cluster: &[&str], field: &str| {
            let list = [&[what, "list"][..], of_cluster, &["--limit", "500"]].concat();
            let list = world.hub.json(&list);
            let all = list.as_array().unwrap().iter();
            let mut all: Vec<Value> = all.map(|one| one[field].clone()).collect();
            // The newest first; ids begin with their time.
            all.sort_by_key(|one| Reverse((one.as_i64(), one.to_string())));
            all
        };
        Self {
            id: world.hub.json(&["cluster", "show", CLUSTER])["id"].clone(),
            heals: all("heal", &[CLUSTER], "id"),
            audit: all("audit", &["--cluster", CLUSTER], "seq"),
        }
    }

    /// A list has no more than the newest, and some were added: of what was there, the newest have to be.
    fn must_still_be_told(mut self, world: &World) {
        self.heals.truncate(50);
        self.audit.truncate(50);
        assert!(self.id.is_string() && !self.heals.is_empty() && !self.audit.is_empty());
        let now = Self::of(world);
        assert_eq!(now.id, self.id, "another cluster by the same name");
        for (told, before) in [(&now.heals, &self.heals), (&now.audit, &self.audit)] {
            let lost: Vec<_> = before.iter().filter(|one| !told.contains(one)).collect();
            assert_eq!(lost, Vec::<&Value>::new(), "not told any more");
        }
        let heal = self.heals[0].as_str().unwrap();
        let heal = world.hub.json(&["heal", "show", heal]);
        assert_eq!(heal["cluster"], json!(CLUSTER), "{heal:#}");
    }
}
