//! W44: an agent that ends in the middle of the guard goes on with it, or another one does, be it a day later.

use std::time::Instant;

use linesman::clock;
use serde_json::{Map, Value, json};

use super::{KUSTOMIZATIONS, Sync, kill};
use crate::healing::{LIMIT, settle};
use crate::keys::{another_leads, leader, start_agent, stop_agent};
use crate::support::audit::{Answered, Mark};
use crate::support::world::{self, ARGOCD, FLUX, World};
use crate::support::{figure, seconds, shown, stays, until};

const APPLICATIONS: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applications.argoproj.io";
/// A finalizer that nobody takes away but a test.
const WAITS: &str = "test.linesman.dev/waits";
/// What the sync object brings.
const BROUGHT: &str = "/api/v1/namespaces/default/configmaps/by-hand";
/// What agents have put on record.
const RECORDS: &str = "/api/v1/namespaces/linesman/configmaps";
const SAVED: &str =
    "/api/v1/namespaces/linesman/configmaps?labelSelector=linesman.dev%2Fsaved%3Dtrue";

#[test]
#[ignore = "needs a real cluster: make test"]
fn an_agent_that_was_away_for_a_day_goes_on_with_the_guard() {
    goes_on_a_day_later(&world::adopted());
}

/// W44: the agent ends in the middle of the guard, twice.
pub(crate) fn goes_on(world: &World) {
    let what = "agent killed twice while a CRD died → object that only the cluster knew is back";
    while_it_dies(world, what, |dying| {
        until("the engine's rights are cut", seconds(LIMIT), || {
            dying.is_cut()
        });
        kill(world);
        until("it is on record and let go", seconds(LIMIT), || {
            dying.is_kept()
        });
        kill(world);
        assert!(dying.is_cut(), "rights came back while the CRD dies");
    });
}

/// W44: the agent's node is away in the middle of the guard, and has been so for a day by all that is on record.
pub(crate) fn goes_on_a_day_later(world: &World) {
    let what = "agent away for a day while a CRD died → object that only the cluster knew is back";
    while_it_dies(world, what, |dying| {
        until("it is on record and let go", seconds(LIMIT), || {
            dying.is_kept()
        });
        let former = leader(world);
        stop_agent(world);
        a_day_passes(world);
        assert!(dying.is_cut(), "rights came back without an agent");
        start_agent(world);
        another_leads(world, &former);
        // It hears of all there is, looks, and gives back nothing.
        stays("the engine has no rights", seconds(20), || dying.is_cut());
    });
}

/// Something of the cluster's own that dies with its CRD.
struct Dying<'a> {
    world: &'a World,
    by_hand: &'a str,
    bindings: Vec<String>,
}

impl Dying<'_> {
    fn is_cut(&self) -> bool {
        let mut all = self.bindings.iter();
        all.all(|binding| self.world.uid(binding).is_none())
    }

    /// On record and let go.
    fn is_kept(&self) -> bool {
        let live = self.world.api.get(self.by_hand).unwrap();
        is_on_record(self.world) && live["metadata"]["finalizers"] == json!([WAITS])
    }
}

/// W44: whatever becomes of the agent while the CRD of the sync objects dies, the engine gets no rights back before that is gone, and a
/// sync object that only the cluster knew comes back with the spec that it had.
fn while_it_dies(world: &World, what: &str, agent: impl FnOnce(&Dying<'_>)) {
    settle(world);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: by-hand, namespace: default}\n";
    world.push("by-hand/map.yaml", map);
    let object = by_hand_object(world);
    let by_hand = Sync::path(world, "by-hand");
    let (collection, _) = by_hand.rsplit_once('/').unwrap();
    world.api.create(collection, &object);
    let freed = Freed(world, &by_hand);
    until("its object is there", seconds(LIMIT), || {
        world.uid(BROUGHT).is_some()
    });
    let before = (
        world.uid(BROUGHT),
        world.api.get(&by_hand).unwrap()["spec"].clone(),
    );
    let crd = crd_of_syncs(world);
    let uid = world.uid(crd).unwrap();
    let mark = Mark::now(&world.audit);
    world.delete_guarded(crd);
    agent(&Dying {
        world,
        by_hand: &by_hand,
        bindings: bindings(world),
    });
    let open = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    world.api.json_patch(&by_hand, &open);
    let began = Instant::now();
    until("the CRD is a new one", seconds(LIMIT), || {
        world.uid(crd).is_some_and(|new| new != uid)
    });
    until(
        "the object is back and off the record",
        seconds(LIMIT),
        || world.uid(&by_hand).is_some() && !is_on_record(world),
    );
    figure("W44", &world.case(what), "", shown(began.elapsed()));
    settle(world);
    assert_eq!(world.api.get(&by_hand).unwrap()["spec"], before.1);
    // The engine may have been quicker with this one than the cut; how often is for W11 to tell. Then it has made it anew.
    until("its object is there", seconds(LIMIT), || {
        world.uid(BROUGHT).is_some()
    });
    if world.uid(BROUGHT) != before.0 {
        println!("what it brought was pruned before the cut, and came back");
    }
    rights_after_crd(&mark);
    drop(freed);
    assert!(world.api.delete(&by_hand));
    until("what it brought is pruned again", seconds(LIMIT), || {
        world.uid(BROUGHT).is_none()
    });
}

/// All that is on record is of a day before, and of a node that has begun anew since.
fn a_day_passes(world: &World) {
    let saved = world.api.get(SAVED).unwrap();
    let saved = saved["items"].as_array().unwrap();
    assert!(!saved.is_empty());
    let open = world.api.get(&format!("{RECORDS}/linesman-open-heals"));
    for map in saved.iter().chain(&open) {
        let name = map["metadata"]["name"].as_str().unwrap();
        let data = map["data"].as_object().unwrap().iter();
        let data = data.map(|(key, text)| {
            let before = a_day_before(text.as_str().unwrap());
            let of_boot = key == "clock.json";
            let then = if of_boot { Value::Null } else { json!(before) };
            (key.clone(), then)
        });
        let data: Map<String, Value> = data.collect();
        let path = format!("{RECORDS}/{name}");
        world.api.patch(&path, &json!({ "data": data }));
    }
}

/// The same text with each time in it, which is RFC 3339 and ends with its `Z`, a day earlier.
fn a_day_before(text: &str) -> String {
    let parts = text.split_inclusive('Z').map(|part| {
        // With milliseconds and without.
        let time = [24, 20].into_iter().find_map(|length| {
            let from = part.len().checked_sub(length)?;
            let at = clock::parse_rfc3339(part.get(from..)?)?;
            Some((from, at))
        });
        match time {
            Some((from, at)) => {
                let then = clock::rfc3339(at - time::Duration::days(1));
                format!("{}{then}", &part[..from])
            }
            None => part.to_owned(),
        }
    });
    parts.collect()
}

/// A sync object that only the cluster knows. Somebody else's finalizer keeps the CRD in its death for as long as a test wants.
fn by_hand_object(world: &World) -> Value {
    let mut object = Sync::object(world, "by-hand");
    let (place, path) = if world.engine == ARGOCD {
        ("/spec/source/path", "by-hand")
    } else {
        ("/spec/path", "./by-hand")
    };
    *object.pointer_mut(place).unwrap() = json!(path);
    let meta = object["metadata"].as_object_mut().unwrap();
    let finalizers = meta.entry("finalizers").or_insert_with(|| json!([]));
    finalizers.as_array_mut().unwrap().push(json!(WAITS));
    object
}

fn crd_of_syncs(world: &World) -> &'static str {
    if world.engine == ARGOCD {
        APPLICATIONS
    } else {
        KUSTOMIZATIONS
    }
}

/// What the engine prunes by.
fn bindings(world: &World) -> Vec<String> {
    let names = if world.engine == ARGOCD {
        vec!["argocd-application-controller".to_owned()]
    } else {
        ["cluster-reconciler", "crd-controller"]
            .map(|name| format!("{name}-{FLUX}"))
            .to_vec()
    };
    let all = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    names.iter().map(|name| format!("{all}/{name}")).collect()
}

/// Whether the agent keeps sync objects that it is to bring back.
fn is_on_record(world: &World) -> bool {
    let maps = world.api.get(SAVED).unwrap();
    !maps["items"].as_array().unwrap().is_empty()
}

/// An object whose finalizers go whatever becomes of the test: the CRD would die for ever, and the engine with it.
struct Freed<'a>(&'a World, &'a str);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        let none = json!({ "metadata": { "finalizers": null } });
        // It is not there any more, or no error of this counts beside the test's own.
        let _gone = std::thread::panicking().then(|| self.0.api.try_patch(self.1, &none));
    }
}

/// The agent gave the engine its rights when the CRD was gone: where it began after that, it may do so before it makes it anew, for
/// there is nothing to prune by.
fn rights_after_crd(since: &Mark) {
    let all = since.answered();
    let place = |wanted: &dyn Fn(&Answered) -> bool| all.iter().position(wanted);
    // What ends a CRD finds it gone when it writes its status a last time.
    let gone = |a: &Answered| {
        let of_crd = a.resource == "customresourcedefinitions/status";
        of_crd && a.user == "system:apiserver" && a.code == 404
    };
    let agent = |a: &Answered| a.user.ends_with(":linesman-agent") && a.code < 300;
    let anew =
        |a: &Answered| agent(a) && a.verb == "patch" && a.resource == "customresourcedefinitions";
    let rights =
        |a: &Answered| agent(a) && a.verb == "patch" && a.resource == "clusterrolebindings";
    let crd = place(&gone).into_iter().chain(place(&anew)).min();
    assert!(
        place(&rights).unwrap() > crd.unwrap(),
        "rights came back while the CRD died"
    );
}
