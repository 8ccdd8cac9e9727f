use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::state::Child;
use crate::agent::plan::tests::{Cluster, start};
use crate::agent::plan::{Action, Plan, plan};
use crate::wire::api::EngineKind;

const CONTROLLER: &str = "argocd-application-controller";

fn requests(answered: u64, failed: u64) -> Requests {
    Requests { answered, failed }
}

fn at(seconds: i64) -> OffsetDateTime {
    start() + Duration::seconds(seconds)
}

#[test]
fn a_count_is_read_however_its_lines_come() {
    let whole = "\
# HELP argocd_redis_request_total Number of redis requests.
argocd_redis_request_duration_count{failed=\"true\"} 9
argocd_redis_request_total{failed=\"false\",hostname=\"a-0\",initiator=\"a\"} 1.234567e+06
argocd_redis_request_total{failed=\"true\",hostname=\"a-0\",initiator=\"a\"} 2 1700000000000
argocd_redis_request_total{hostname=\"a-0\",failed=\"true\",initiator=\"b\"} 3
argocd_redis_request_total{failed=\"true\"} NaN
argocd_redis_request_total{failed=\"true\"} -1
argocd_redis_request_total 7
";
    let long = format!("{}\n", "x".repeat(3 * LONGEST));
    let all = [&long, whole, &long].concat();
    for size in [1, 7, 4096, all.len()] {
        let mut reader = Reader::default();
        for piece in all.as_bytes().chunks(size) {
            reader.take(piece);
            assert!(reader.line.len() <= LONGEST);
        }
        assert_eq!(reader.done(), Some(requests(1_234_567, 5)), "{size}");
    }
    let mut none = Reader::default();
    none.take(b"up 1\nargocd_redis_request_total{failed=\"true\"} 1");
    assert_eq!(none.done(), None, "the last line is not whole");
}

#[test]
fn a_count_is_a_number_from_zero_on() {
    for (text, expected) in [
        ("0", Some(0)),
        ("1.5e+06", Some(1_500_000)),
        ("-1", None),
        ("+Inf", None),
        ("NaN", None),
        ("many", None),
    ] {
        assert_eq!(count(text), expected, "{text}");
    }
}

#[test]
fn only_pods_of_the_controller_that_run_and_can_be_reached_are_asked() {
    let up = Pod {
        app: CONTROLLER.to_owned(),
        address: "10.0.0.1".to_owned(),
        running: Some(at(0)),
        ..Pod::default()
    };
    let with = |change: fn(&mut Pod)| {
        let mut pod = up.clone();
        change(&mut pod);
        pod
    };
    let all = [
        ("up", up.clone()),
        ("another part's", with(|pod| REDIS.clone_into(&mut pod.app))),
        ("goes", with(|pod| pod.deleting = true)),
        ("begins", with(|pod| pod.running = None)),
        ("has no address", with(|pod| pod.address.clear())),
    ];
    let pods = all.map(|(name, pod)| (name.to_owned(), Arc::new(pod)));
    let observed = Observed {
        pods: pods.into(),
        ..Observed::default()
    };
    let asked = counted(CONTROLLER, &observed).map(|(name, _)| name);
    assert_eq!(asked.collect::<Vec<_>>(), ["up"]);
}

#[test]
fn what_is_said_of_a_redis_that_has_just_started_is_of_the_one_before() {
    for (created, running, has) in [
        (Some(0), None, true),
        (Some(9), None, false),
        (Some(0), Some(9), false),
        (Some(10), None, false),
        (None, None, false),
    ] {
        let pod = Pod {
            created: created.map(at),
            running: running.map(at),
            ..Pod::default()
        };
        assert_eq!(has_run(&pod, at(9)), has, "{created:?} {running:?}");
    }
}

#[test]
fn what_failed_counts_from_the_last_answer_on() {
    let begun = Tally::begin("one", requests(5, 1), at(0));
    for (uid, next, heard, failed) in [
        ("one", requests(5, 1), 0, 0),
        ("one", requests(5, 4), 0, 3),
        ("one", requests(6, 4), 20, 0),
        // Started anew.
        ("one", requests(0, 2), 20, 0),
        ("one", requests(5, 0), 20, 0),
        ("two", requests(5, 4), 20, 0),
    ] {
        let expected = Tally {
            uid: uid.to_owned(),
            requests: next,
            at: at(20),
            heard: at(heard),
            failed,
        };
        assert_eq!(begun.next(uid, next, at(20)), expected, "{uid} {next:?}");
    }
}

/// A working Argo CD whose controllers have counted this since two minutes ago.
struct Scene {
    cluster: Cluster,
    observed: Observed,
}

impl Scene {
    fn of(counts: &[(i64, Requests)]) -> Self {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        cluster.now += Duration::hours(1);
        let mut observed = cluster.observed();
        // All of it came up an hour ago.
        for pod in observed.pods.values_mut() {
            Arc::make_mut(pod).running = Some(cluster.now - Duration::hours(1));
        }
        let mut scene = Self { cluster, observed };
        scene.counts(CONTROLLER, counts);
        scene
    }

    /// By how many seconds ago it was counted.
    fn counts(&mut self, pod: &str, counts: &[(i64, Requests)]) {
        let of = self.observed.pods.get(CONTROLLER).unwrap().clone();
        let uid = of.uid.clone();
        self.observed.pods.insert(pod.to_owned(), of);
        let mut all = counts
            .iter()
            .map(|(ago, r)| (*r, self.cluster.now - Duration::seconds(*ago)));
        let (first, from) = all.next().unwrap();
        let tally = Tally::begin(&uid, first, from);
        let tally = all.fold(tally, |tally, (r, at)| tally.next(&uid, r, at));
        self.observed.requests.insert(pod.to_owned(), tally);
    }

    fn live(&mut self, kind: Kind, name: &str) -> &mut Value {
        let id = ObjectId::new(kind, "argocd", name);
        let live = self.observed.objects.get_mut(&id).unwrap();
        &mut Arc::make_mut(live).fields
    }

    fn found(&self) -> Vec<(Class, String, bool)> {
        let now = self.cluster.now;
        let plan = plan(
            now,
            &self.cluster.install,
            &self.observed,
            &self.cluster.history,
        );
        let all = plan.findings.into_iter();
        all.map(|f| (f.class, f.object.name, f.reported)).collect()
    }
}

const HUNG: [(i64, Requests); 3] = [
    (
        60,
        Requests {
            answered: 9,
            failed: 1,
        },
    ),
    (
        30,
        Requests {
            answered: 9,
            failed: 2,
        },
    ),
    (
        5,
        Requests {
            answered: 9,
            failed: 4,
        },
    ),
];

fn down() -> Vec<(Class, String, bool)> {
    vec![(Class::RedisDown, REDIS.to_owned(), false)]
}

/// What is asked for on demand is shown as long as it is of now, and not of another Redis.
#[test]
fn a_redis_has_answered_lately_where_a_controller_counts_it_so() {
    let [first, second, third] = HUNG;
    for (what, counts, expected) in [
        (
            "answers",
            vec![(25, first.1), (5, requests(12, 1))],
            Some(true),
        ),
        (
            "slow",
            vec![(25, first.1), (5, requests(12, 4))],
            Some(true),
        ),
        ("hung", vec![first, second, third], Some(false)),
        ("nothing asked", vec![(5, requests(0, 0))], Some(false)),
        ("idle", vec![(300, first.1), (5, first.1)], Some(false)),
        (
            "long ago",
            vec![(200, first.1), (70, requests(12, 1))],
            None,
        ),
    ] {
        let mut scene = Scene::of(&counts);
        let told = |scene: &Scene| {
            let now = scene.cluster.now;
            answered_lately(now, &scene.cluster.install, &scene.observed)
        };
        assert_eq!(told(&scene), expected, "{what}");
        scene.live(Kind::ConfigMap, PARAMS)["data"] = json!({"redis.server": "cache.lan:6379"});
        assert_eq!(told(&scene), None, "{what}");
    }
}

/// F55: slow, started anew or idle, it is none that hangs.
#[test]
fn a_redis_that_answers_no_controller_any_more_is_down_and_no_other_is() {
    let [first, second, third] = HUNG;
    for (what, counts, expected) in [
        ("hung", vec![first, second, third], down()),
        ("for a moment", vec![(40, first.1), third], vec![]),
        ("one failed", vec![first, (5, requests(9, 2))], vec![]),
        ("idle", vec![(300, first.1), (5, first.1)], vec![]),
        ("slow", vec![first, second, (5, requests(10, 40))], vec![]),
        ("long ago", vec![(200, first.1), (70, third.1)], vec![]),
        ("counted once", vec![(60, first.1)], vec![]),
    ] {
        assert_eq!(Scene::of(&counts).found(), expected, "{what}");
    }
}

/// F55: a controller that is cut off alone, one that counted before it went, and parts that have faults of their own.
#[test]
fn only_redis_itself_is_called_down() {
    type Change = fn(&mut Scene);
    let all: [(&str, Change, bool); 6] = [
        ("the same of both", |s| s.counts("other", &HUNG), true),
        (
            "another is answered",
            |s| s.counts("other", &[(60, requests(1, 0)), (5, requests(7, 0))]),
            false,
        ),
        (
            "its Pod has just started",
            |s| {
                let pod = s.observed.pods.get_mut(REDIS).unwrap();
                Arc::make_mut(pod).running = Some(s.cluster.now - Duration::seconds(20));
            },
            false,
        ),
        (
            "the controller's Pod is another one",
            |s| {
                let pod = s.observed.pods.get_mut(CONTROLLER).unwrap();
                Arc::make_mut(pod).uid = "another".to_owned();
            },
            false,
        ),
        (
            "Redis is not available",
            |s| s.live(Kind::Deployment, REDIS)["status"]["availableReplicas"] = json!(0),
            false,
        ),
        (
            "its Service is missing",
            |s| {
                let id = ObjectId::new(Kind::Service, "argocd", REDIS);
                s.observed.objects.remove(&id);
            },
            false,
        ),
    ];
    for (what, change, expected) in all {
        let mut scene = Scene::of(&HUNG);
        change(&mut scene);
        let named = scene.found().into_iter();
        let named = named.filter(|(class, ..)| *class == Class::RedisDown);
        assert_eq!(named.count() == 1, expected, "{what}");
    }
}

/// F55: what somebody else runs is not restarted.
#[test]
fn a_redis_of_others_is_reported() {
    for (server, reported) in [
        ("argocd-redis:6379", false),
        ("argocd-redis.argocd.svc.cluster.local:6379", false),
        ("cache.example.com:6380", true),
    ] {
        let mut scene = Scene::of(&HUNG);
        scene.live(Kind::ConfigMap, PARAMS)["data"]["redis.server"] = json!(server);
        let named = scene.found().into_iter();
        let named: Vec<_> = named
            .filter(|(class, ..)| *class == Class::RedisDown)
            .collect();
        let expected = (Class::RedisDown, REDIS.to_owned(), reported);
        assert_eq!(named, [expected], "{server}");
    }
}

/// F55: what else is wrong with it is mended as ever, and what else the root complains of does not come from it.
#[test]
fn other_faults_are_told_beside_a_redis_that_hangs() {
    let mut scene = Scene::of(&HUNG);
    let root = scene.cluster.install.sync.clone();
    let redis = deployment(&scene.cluster.install);
    let beside = [
        Finding::new(Class::ObjectAltered, &redis, "/spec/replicas"),
        Finding::new(Class::GitUnreachable, &root, "ssh: handshake failed"),
        Finding::new(Class::ArtifactUnreachable, &root, "i/o timeout"),
    ];
    let own = [
        Finding::new(Class::GitUnreachable, &root, "i/o timeout"),
        Finding::new(Class::RedisDown, &redis, "says so"),
    ];
    for (server, reported) in [("argocd-redis:6379", false), ("10.0.0.9:6379", true)] {
        scene.live(Kind::ConfigMap, PARAMS)["data"]["redis.server"] = json!(server);
        let Scene { cluster, observed } = &scene;
        let mut found = [&own[..], &beside[..]].concat();
        super::down(cluster.now, &cluster.install, observed, &mut found);
        let hung = found.pop().unwrap();
        let what = (hung.class, hung.object, hung.reported);
        assert_eq!(what, (Class::RedisDown, redis.clone(), reported));
        assert_eq!(found, beside, "{server}");
    }
}

fn mended(plan: &Plan) -> Vec<(&Action, &str)> {
    let steps = plan.steps.iter().filter(|step| step.cause.is_some());
    let all = steps.map(|step| (&step.action, step.target.name.as_str()));
    all.collect()
}

/// F55: half a minute later its Pod is deleted, and nothing else is.
#[test]
fn a_redis_that_hangs_is_restarted() {
    let mut scene = Scene::of(&HUNG);
    let Scene { cluster, observed } = &mut scene;
    let first = plan(cluster.now, &cluster.install, observed, &cluster.history);
    cluster.history.saw(cluster.now, &first);
    cluster.now += Duration::seconds(31);
    let then = plan(cluster.now, &cluster.install, observed, &cluster.history);
    let restart = Action::RestartPods {
        before: cluster.now,
    };
    assert_eq!(mended(&then), [(&restart, REDIS)]);
    let (step, now) = (&then.steps[0], cluster.now);
    cluster.history.acted(now, step, &Outcome::Done, observed);
    cluster.now += Duration::seconds(1);
    let again = plan(cluster.now, &cluster.install, observed, &cluster.history);
    assert_eq!(mended(&again), [], "not twice at once");
}

/// F55, F33: the text is the lab's; where Git itself was asked in vain, its address is in it.
#[test]
fn what_follows_from_a_redis_that_hangs_is_no_fault_of_git() {
    let said = |why: &str| format!("rpc error: code = Unknown desc = failed to list refs: {why}");
    let answered = [(60, requests(1, 0)), (5, requests(7, 0))];
    let git = vec![(Class::GitUnreachable, "linesman".to_owned(), false)];
    let both = [git.clone(), down()].concat();
    for (what, counts, message, expected) in [
        ("it hangs", &HUNG[..], said("i/o timeout"), down()),
        ("it answers", &answered[..], said("i/o timeout"), git),
        (
            "Git hangs, too",
            &HUNG[..],
            said("dial tcp 10.0.0.9:22: i/o timeout"),
            both,
        ),
    ] {
        let mut scene = Scene::of(counts);
        let condition = json!({"type": "ComparisonError", "message": message});
        scene.live(Kind::Application, "linesman")["status"]["conditions"] = json!([condition]);
        assert_eq!(scene.found(), expected, "{what}");
    }
}

/// F55: the root is asked for an answer when it is silent, and one that is asked does without Redis; other Applications say it.
/// What they say of another Redis, or while this one answers, is theirs.
#[test]
fn what_an_application_says_of_redis_counts_while_no_controller_says_otherwise() {
    let said = "failed to resolve: dial tcp 10.96.0.9:6379: connect: connection refused";
    let web = ObjectId::new(Kind::Application, "argocd", "web");
    let child = Child {
        trouble: Some(("ComparisonError".to_owned(), said.to_owned())),
        ..Child::default()
    };
    let own = vec![(Class::ApplyFailed, "web".to_owned(), false)];
    let answered = [(60, requests(1, 0)), (5, requests(7, 0))];
    for (what, counts, expected) in [
        ("it hangs", Some(&HUNG[..]), down()),
        ("nobody counts", None, down()),
        ("it answers", Some(&answered[..]), own),
    ] {
        let mut scene = Scene::of(counts.unwrap_or(&answered));
        if counts.is_none() {
            scene.observed.requests.clear();
        }
        scene.observed.children = Arc::new([(web.clone(), child.clone())].into());
        assert_eq!(scene.found(), expected, "{what}");
    }
}
