//! Issue 5 §2: the agent is killed in the midst of a change of the engine's version, with the hub there and stopped. The next
//! agent goes on, or goes back, and leaves nothing half.

use std::path::PathBuf;
use std::time::Duration;

use linesman::agent::fault::Stage;
use serde_json::{Value, json};

use super::{in_force, variant};
use crate::boundaries::{Agent, agents_kubeconfig, apply_without_the_pod};
use crate::healing::{on_record, settle, since, unchanged, workloads};
use crate::support::api::{deployment, path};
use crate::support::world::{CLUSTER, FLUX, World, kustomization};
use crate::support::{eventually, figure, seconds, shown, until};

const NEXT: &str = "2.90.0";
const BROKEN: &str = "2.91.0";
const CONTROLLER: &str = "kustomize-controller";
/// Heals of what a change brings: it is no fault, whoever ends it.
pub(super) const DRIFT: [&str; 5] = [
    "BadImage",
    "ObjectAltered",
    "ReadyButUseless",
    "RbacAltered",
    "GitSecretBad",
];

/// The versions, and what shows which one is there.
struct Versions {
    own: String,
    digest: String,
    spare: String,
    kubeconfig: PathBuf,
}

/// At which stages the agent is killed.
struct Cuts<'a> {
    /// Of a change that works, with the hub there.
    there: &'a [Stage],
    /// The same with the hub stopped.
    stopped: &'a [Stage],
    /// Of the way back of a change that does not work, and whether the hub is stopped.
    back: &'a [(Stage, bool)],
}

/// Each stage of a change that works, with the hub there or stopped, and one of the way back of one that does not. The
/// others are in [`whole`].
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_change_of_version_that_is_cut_at_any_stage_is_ended_by_the_next_agent() {
    ended_by_the_next(&Cuts {
        there: &[Stage::Stored, Stage::Trimmed, Stage::Dropped],
        stopped: &[Stage::Remembered, Stage::Applied, Stage::Proven],
        back: &[(Stage::Failed, true)],
    });
}

mod whole {
    use super::{Cuts, Stage, ended_by_the_next};

    /// Each stage with the hub there and, where it makes a difference, stopped.
    #[test]
    #[ignore = "needs a real cluster: make chaos"]
    fn a_change_of_version_is_cut_at_each_stage_with_the_hub_there_and_stopped() {
        ended_by_the_next(&Cuts {
            there: &Stage::WORKS,
            stopped: &[
                Stage::Remembered,
                Stage::Stored,
                Stage::Applied,
                Stage::Proven,
            ],
            back: &[(Stage::Returned, false), (Stage::Failed, true)],
        });
    }
}

fn ended_by_the_next(cuts: &Cuts<'_>) {
    let mut world = World::open("cut");
    world.add();
    apply_without_the_pod(&world);
    let kubeconfig = agents_kubeconfig(&world);
    let mut agent = Agent::start(&world, &kubeconfig, None);
    eventually("the cluster is adopted", seconds(180), || world.synced());
    let wait = ["cluster", "wait", CLUSTER, "--timeout", "2m"];
    world.hub.linesman(&wait);
    settle(&world);
    let own = in_force(&world);
    let text = |key: &str| own[key].as_str().unwrap().to_owned();
    let versions = Versions {
        own: text("version"),
        digest: text("digest"),
        spare: path("v1", "ServiceAccount", FLUX, "spare"),
        kubeconfig,
    };
    let spare = format!(
        "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: spare\n  namespace: {FLUX}\n  labels:\n    app.kubernetes.io/part-of: flux\n"
    );
    variant(&world, NEXT, |text| {
        text.replace("--log-level=info", "--log-level=debug") + &spare
    });
    variant(&world, BROKEN, |text| {
        text.replace("/source-controller:v", "/source-controller:v0.0.0-not-")
    });
    let root = world.uid(&kustomization(FLUX));
    let (known, workloads) = (on_record(&world), workloads(&world));

    // Alternately there and back.
    let mut to_next = true;
    for (stopped, stages) in [(false, cuts.there), (true, cuts.stopped)] {
        let mut slowest = Duration::ZERO;
        for stage in stages {
            drop(agent);
            let took;
            (agent, took) = versions.cut(&mut world, *stage, (to_next, stopped));
            slowest = slowest.max(took);
            to_next = !to_next;
        }
        let what = if stopped {
            "the same with the hub stopped; hub is back → ended, slowest"
        } else {
            "agent killed at each stage of engine set → the next one has ended it, slowest"
        };
        figure("#5 §2", what, "≤ 60 s", shown(slowest));
    }
    for (stage, stopped) in cuts.back {
        drop(agent);
        agent = versions.cut_on_the_way_back(&mut world, *stage, *stopped);
    }
    settle(&world);
    assert_eq!(world.uid(&kustomization(FLUX)), root);
    unchanged(&world, &workloads);
    let mut new = since(&world, &known);
    new.retain(|heal| DRIFT.iter().any(|class| heal["class"] == *class));
    assert_eq!(new, [] as [Value; 0], "a change is no fault");
    drop(agent);
    world.close();
}

impl Versions {
    /// A change during which the agent is killed at this stage. Gives the next agent, and how long that took to end it.
    fn cut(
        &self,
        world: &mut World,
        stage: Stage,
        (to_next, stopped): (bool, bool),
    ) -> (Agent, Duration) {
        let set = ["engine", "set", CLUSTER, "flux"];
        let to: &[&str] = if to_next {
            &[NEXT]
        } else {
            &["--bundle", &self.digest]
        };
        let what = format!("{}, hub stopped: {stopped}", stage.as_str());
        self.killed(world, stage, &[&set[..], to].concat(), stopped);
        let agent = Agent::start(world, &self.kubeconfig, None);
        let begun = stage >= Stage::Stored;
        if stopped {
            let limit = seconds(120);
            if begun {
                // All that it takes is in the cluster.
                until(&format!("{what}: all is applied"), limit, || {
                    debug(world) == to_next && world.engine_available()
                });
            }
            world.answers(limit);
            world.hub.up();
        }
        let version = if to_next { NEXT } else { &self.own };
        let took = ended(world, &what, version);
        assert_eq!(debug(world), to_next, "{what}");
        let spare = world.uid(&self.spare).is_some();
        assert_eq!(spare, to_next, "{what}: object of one version alone");
        let function = world.function(seconds(120));
        println!(
            "{what}: ended after {}, function after {}",
            shown(took),
            shown(function)
        );
        // What heals is of this version, too.
        assert!(world.api.delete(&deployment(FLUX, CONTROLLER)));
        until(&format!("{what}: healed as it is now"), seconds(60), || {
            world.uid(&deployment(FLUX, CONTROLLER)).is_some() && debug(world) == to_next
        });
        world.function(seconds(120));
        (agent, took)
    }

    /// A version that cannot run; the agent is killed at this stage of its way back.
    fn cut_on_the_way_back(&self, world: &mut World, stage: Stage, stopped: bool) -> Agent {
        let what = format!("{}, hub stopped: {stopped}", stage.as_str());
        let before = image(world);
        let set = ["engine", "set", CLUSTER, "flux", BROKEN, "--within", "30s"];
        self.killed(world, stage, &set, stopped);
        let agent = Agent::start(world, &self.kubeconfig, None);
        let took = until(
            &format!("{what}: the version of before"),
            seconds(120),
            || image(world) == before && world.engine_available(),
        );
        let told = format!("agent killed on the way back ({what}) → the version of before works");
        figure("#5 §2", &told, "≤ 60 s", shown(took));
        if stopped {
            world.hub.up();
        }
        until(&format!("{what}: the hub is told"), seconds(120), || {
            current(world).is_ok_and(|c| c["reason"] == json!("Returned"))
        });
        world.function(seconds(120));
        let again = ["engine", "set", CLUSTER, "flux", "--bundle", &self.digest];
        world.hub.linesman(&again);
        ended(world, &what, &self.own);
        agent
    }

    /// Begins a change with an agent that ends at this stage of it.
    fn killed(&self, world: &mut World, stage: Stage, set: &[&str], stopped: bool) {
        let point = format!("change-{}", stage.as_str());
        let marker = world.directory.join(format!("{point}-{stopped}"));
        let mut agent = Agent::start(world, &self.kubeconfig, Some((&point, marker.as_path())));
        until("the line is up", seconds(60), || world.line_is_up());
        world.hub.linesman(set);
        let ended = agent.ends_itself();
        assert!(ended && marker.exists(), "{point} was not reached");
        if stopped {
            world.hub.stop();
        }
    }
}

/// The change is over, at the hub and in the cluster; how long that took.
pub(super) fn ended(world: &World, what: &str, version: &str) -> Duration {
    let words = format!("flux {version} ");
    let map = path("v1", "ConfigMap", "linesman", "linesman-change");
    let look = || {
        let told = current(world)?;
        let message = told["message"].as_str().unwrap_or_default();
        let over = told["status"] == json!("True") && message.contains(&words);
        let kept = world.api.try_get(&map)?.is_some();
        if over && !kept {
            Ok(())
        } else {
            Err(format!("{told}; change kept: {kept}"))
        }
    };
    eventually(&format!("{what}: the change is over"), seconds(180), look).1
}

/// What the agent says of the engine's version.
pub(super) fn current(world: &World) -> Result<Value, String> {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER])?;
    let all = view["conditions"].as_array().cloned().unwrap_or_default();
    let mut all = all.into_iter();
    let found = all.find(|c| c["type"] == json!("EngineCurrent"));
    found.ok_or_else(|| "nothing is said of it".to_owned())
}

/// Whether the controllers have the arguments of the next version.
fn debug(world: &World) -> bool {
    let all = ["source-controller", CONTROLLER].map(|name| deployment(FLUX, name));
    let debugs = |path: &String| {
        let live = world.api.try_get(path).ok().flatten().unwrap_or_default();
        let args = &live["spec"]["template"]["spec"]["containers"][0]["args"];
        args.to_string().contains("--log-level=debug")
    };
    all.iter().all(debugs)
}

fn image(world: &World) -> Value {
    let live = world.api.get(&deployment(FLUX, "source-controller"));
    live.unwrap_or_default()["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}
