//! Faults done to a real engine, and what came of it as seen from outside: the API server's audit log says when the
//! agent first wrote, the objects say when they were as before, and a request that the engine answers says when it
//! worked again. When it noticed nobody else can tell: that is the earliest time in the records of its heals. One random day of each engine in `make test`; the whole list and many random days in `make chaos`.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use linesman::clock;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::audit::Mark;
use crate::support::place::var;
use crate::support::world::{self, ARGOCD, World};
use crate::support::{scratch, seconds, shown, until};

mod budget;
pub(crate) mod faults;
mod random;
pub(crate) mod whole;

/// W29: whatever a random day breaks of the install works again ≤ 180 s later, and no repair deletes a CRD, a
/// Namespace or a volume claim. The same day in each `make test`; `LINESMAN_CHAOS_SEED` names another one.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_random_day_of_flux_ends_with_all_as_before() {
    random::day(&mut world::adopted(), seed());
}

/// W29 for Argo CD.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_random_day_of_argo_cd_ends_with_all_as_before() {
    random::day(&mut world::adopted_argocd(), seed());
}

/// This one found that a Service's selector was not compared as a whole.
fn seed() -> u64 {
    var("LINESMAN_CHAOS_SEED").map_or(39165, |text| text.parse().unwrap())
}

/// What the catalog brings last.
const HELLO: &str = "/apis/apps/v1/namespaces/hello/deployments/hello";

/// When an object is as it was before the fault.
type AsBefore = Box<dyn Fn(&World) -> bool>;

/// A fault and what the acceptance wants of its end.
pub(crate) struct Fault {
    pub(crate) row: &'static str,
    pub(crate) what: String,
    /// Until the engine's function is back.
    pub(crate) goal: &'static str,
    damage: Box<dyn Fn(&World) -> AsBefore>,
}

/// What is there of the hub and of its built-in Git while a fault is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    Both,
    /// As with a catalog on another host.
    Git,
    Neither,
}

impl There {
    const ALL: [Self; 3] = [Self::Both, Self::Git, Self::Neither];

    fn words(self) -> &'static str {
        match self {
            Self::Both => "there",
            Self::Git => "stopped, Git there",
            Self::Neither => "stopped",
        }
    }
}

/// One fault from its moment to the engine's next answer. Workloads keep their UIDs.
fn episode(world: &mut World, there: There, fault: &Fault) {
    settle(world);
    until("the catalog's workload is there", seconds(LIMIT), || {
        world.uid(HELLO).is_some()
    });
    let (before, known) = (workloads(world), on_record(world));
    match there {
        There::Both => {}
        There::Git => world.lose_hub(),
        There::Neither => world.hub.stop(),
    }
    let came = suffered(world, fault);
    if there != There::Both {
        world.hub_back();
    }
    // Its records may be open until now, or be on their way to the hub.
    settle(world);
    let detected = detected(&since(world, &known), came.moment);
    let engine = if world.engine == ARGOCD {
        "Argo CD"
    } else {
        "Flux"
    };
    row(&[
        engine,
        fault.row,
        &fault.what,
        there.words(),
        &or_dash(detected),
        &or_dash(came.acted),
        &shown(came.restored),
        &shown(came.function),
        fault.goal,
    ]);
    assert_eq!(came.forbidden, Vec::<String>::new(), "{}", fault.what);
    unchanged(world, &before);
}

fn or_dash(took: Option<Duration>) -> String {
    took.map_or_else(|| "–".to_owned(), shown)
}

/// From the fault to the first time at which the agent says that it saw one that it mended. What it only told of, such as Git
/// being away with the hub, is another one's.
fn detected(heals: &[Value], fault: OffsetDateTime) -> Option<Duration> {
    let mended = heals.iter().filter(|heal| heal["result"] != "reported");
    let times = mended.filter_map(|heal| heal["detectedAt"].as_str());
    let first = times.map(|at| OffsetDateTime::parse(at, &Rfc3339).unwrap());
    // Cut off to the millisecond, it may be before the moment of the fault.
    let took = first.min()? - fault;
    Some(took.max(time::Duration::ZERO).unsigned_abs())
}

/// What came of a fault; times are from its moment.
pub(crate) struct Came {
    moment: OffsetDateTime,
    /// The agent's first mending write.
    acted: Option<Duration>,
    restored: Duration,
    pub(crate) function: Duration,
    /// Deletions that no repair may ever do.
    pub(crate) forbidden: Vec<String>,
}

/// One fault, until the engine has answered again.
pub(crate) fn suffered(world: &World, fault: &Fault) -> Came {
    let mark = Mark::now(&world.audit);
    let (began, moment) = (Instant::now(), clock::now());
    let as_before = (fault.damage)(world);
    until(
        &format!("{}: as before", fault.what),
        seconds(LIMIT),
        || as_before(world),
    );
    let restored = began.elapsed();
    world.answers(seconds(LIMIT));
    let function = began.elapsed();
    let acted = mark.first_mending_write().map(|at| at - moment);
    Came {
        moment,
        acted: acted.and_then(|took| took.try_into().ok()),
        restored,
        function,
        forbidden: mark.forbidden_deletions(),
    }
}

/// A row of the table in `docs/benchmarks.md`, kept for `make chaos`.
fn row(cells: &[&str]) {
    println!("chaos | {}", cells.join(" | "));
    let file = scratch().join("chaos.tsv");
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    writeln!(file, "{}", cells.join("\t")).unwrap();
}
