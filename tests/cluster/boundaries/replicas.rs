//! W27: of two replicas one acts; the other does when that one is gone, and never both.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Agent, kubeconfig_named};
use crate::support::api::path;
use crate::support::audit::Mark;
use crate::support::place::run;
use crate::support::world::{FLUX, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// One replica, and how the API server's audit log names it.
struct Replica {
    name: &'static str,
    credential: String,
    agent: Agent,
}

impl Replica {
    fn start(world: &World, name: &'static str) -> Self {
        let (kubeconfig, token) = kubeconfig_named(world, name);
        Self {
            name,
            credential: credential(&token),
            agent: Agent::named(world, name, &kubeconfig, None),
        }
    }

    /// One that waits behind another, which it has seen lead.
    fn standby(world: &World, name: &'static str) -> Self {
        let mark = Mark::now(&world.audit);
        let replica = Self::start(world, name);
        until("the standby has looked at the Lease", seconds(30), || {
            let mut all = mark.answered().into_iter();
            all.any(|a| a.credential == replica.credential && a.resource == "leases")
        });
        replica
    }

    fn signal(&self, signal: &str) {
        let id = self.agent.0.id().to_string();
        run(Command::new("kill").args([signal, &id]));
    }
}

/// How the API server's audit log names who comes with this token.
pub(super) fn credential(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    format!("JTI={}", claims["jti"].as_str().unwrap())
}

fn leader(world: &World) -> Value {
    let lease = path(
        "coordination.k8s.io/v1",
        "Lease",
        "linesman",
        "linesman-agent",
    );
    let lease = world.api.try_get(&lease).ok().flatten();
    lease.map_or(Value::Null, |l| l["spec"]["holderIdentity"].clone())
}

/// An object of the install goes; who put it back in what time.
fn mended_by(world: &World, replica: &Replica, what: &str) {
    let policy = path(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        FLUX,
        "allow-egress",
    );
    let mark = Mark::now(&world.audit);
    let uid = world.uid(&policy).unwrap();
    assert!(world.api.delete(&policy));
    let took = until("the object is back", seconds(120), || {
        world.uid(&policy).is_some_and(|new| new != uid)
    });
    figure("W27", what, "≤ 20 s", shown(took));
    assert_eq!(leader(world), json!(replica.name));
    let create = "patch networkpolicies/allow-egress";
    eventually("it is in the audit log", seconds(30), || {
        let writes = mark.mended_by(&replica.credential);
        let written = writes.iter().any(|write| write == create);
        written.then_some(()).ok_or_else(|| format!("{writes:?}"))
    });
}

/// The one that leads is killed, then the next one is stopped for as long as it takes the third to lead, and goes on.
pub(super) fn one_acts_and_another_takes_over(world: &World) {
    // It has the name of the agent before it, whose Lease it goes on with.
    let mut first = Replica::start(world, "linesman-agent-test");
    until("the first one is at work", seconds(60), || {
        leader(world) == json!(first.name) && world.line_is_up()
    });
    mended_by(
        world,
        &first,
        "object deleted → back, with one replica at work",
    );
    let second = Replica::standby(world, "linesman-agent-second");
    let mark = Mark::now(&world.audit);
    first.agent.0.kill().unwrap();
    mended_by(
        world,
        &second,
        "leader killed, object deleted → the other leads, object back",
    );
    assert_eq!(mark.mended_by(&first.credential), [""; 0]);

    let third = Replica::standby(world, "linesman-agent-third");
    let mark = Mark::now(&world.audit);
    second.signal("-STOP");
    mended_by(
        world,
        &third,
        "leader stopped, object deleted → the other leads, object back",
    );
    second.signal("-CONT");
    let mut second = second;
    assert!(second.agent.ends_itself(), "two lead");
    let late = mark.mended_by(&second.credential);
    assert_eq!(late, [""; 0], "it wrote although another leads");
    assert_eq!(leader(world), json!(third.name));
    world.function(seconds(120));
}
