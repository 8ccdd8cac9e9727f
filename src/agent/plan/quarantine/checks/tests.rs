use serde_json::json;

use super::*;
use crate::agent::plan::project::lease_of;
use crate::agent::plan::state::Lease;
use crate::agent::plan::tests::{Cluster, deployment};
use crate::clock::rfc3339;

const NAME: &str = "kustomize-controller";

/// What there is to know of the controller's Pod and Lease, in seconds from when the root said how far it has come.
struct Led {
    runs: i64,
    acquired: Option<i64>,
    holder: &'static str,
    deleting: bool,
    /// Before now.
    renewed: i64,
    /// When the Lease was looked at.
    seen: i64,
    /// What the controller selected when it was made; now that is all.
    selector: Option<&'static str>,
    /// What it selects now.
    selects: Option<&'static str>,
}

const LED: Led = Led {
    runs: -10,
    acquired: Some(-5),
    holder: NAME,
    deleting: false,
    renewed: 0,
    seen: 20,
    selector: None,
    selects: None,
};

fn led(runs: i64, acquired: Option<i64>) -> Led {
    Led {
        runs,
        acquired,
        ..LED
    }
}

/// The Lease was last seen to be of another Pod, which is no more.
fn gone(runs: i64, seen: i64) -> Led {
    let holder = "gone";
    Led {
        runs,
        holder,
        seen,
        ..LED
    }
}

/// By its new arguments its Lease has another name than the one that is known.
fn renamed(runs: i64, seen: i64) -> Led {
    let selector = Some("a");
    Led {
        runs,
        seen,
        selector,
        ..LED
    }
}

/// It has this selector, and the Lease that goes with it.
fn selects(selector: &'static str) -> Led {
    let selector = Some(selector);
    Led {
        selector,
        selects: selector,
        ..LED
    }
}

fn ends() -> Led {
    let deleting = true;
    Led { deleting, ..LED }
}

fn renewed(renewed: i64) -> Led {
    Led { renewed, ..LED }
}

/// For how many seconds longer an answer is put off, where the root said so 20 s ago.
fn put_off_by(words: &str, led: &Led) -> i64 {
    put_off_within(words, led, 0)
}

/// The same of one that is too late after so many seconds.
fn put_off_within(words: &str, led: &Led, limit: i64) -> i64 {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let now = cluster.now;
    let said = now - Duration::seconds(20);
    let after = |seconds: i64| said + Duration::seconds(seconds);
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["metadata"]["labels"] = json!({"team": "a"});
    live.fields["spec"]["timeout"] = json!("2m0s");
    live.fields["status"]["conditions"] = json!([{
        "type": "Reconciling", "status": "True", "reason": "Progressing",
        "message": format!("{words} for revision main@sha1:1 with a timeout of 2m0s"),
        "lastTransitionTime": rfc3339(said),
    }]);
    if let Some(selector) = led.selects {
        let live = cluster.objects.get_mut(&deployment(NAME)).unwrap();
        let container = &mut live.fields["spec"]["template"]["spec"]["containers"][0];
        container["args"] = json!([format!("--watch-label-selector={selector}")]);
    }
    let pod = cluster.pods.get_mut(NAME).unwrap();
    (pod.running, pod.deleting) = (Some(after(led.runs)), led.deleting);
    let mut observed = cluster.observed();
    let lease = Lease {
        uid: "lease".to_owned(),
        holder: led.holder.to_owned(),
        acquired: led.acquired.map(after),
        renewed: now - Duration::seconds(led.renewed),
        seen: after(led.seen),
    };
    let name = lease_of(NAME, led.selector);
    observed.leases.insert(name, lease);
    let owed = now - Duration::seconds(15);
    let limit = Duration::seconds(limit);
    let late = put_off(now, &cluster.install, &observed, (&sync, owed), limit);
    (late - now).whole_seconds()
}

/// W12, W22: its timeout of 120 s, and 30 s to begin and to end.
#[test]
fn an_answer_is_put_off_while_the_controller_that_leads_applies_or_waits_for_health() {
    for (words, expected) in [
        ("Running health checks", 130),
        ("Detecting drift", 130),
        ("Building manifests", -15),
        ("Fetching manifests", -15),
        ("Other words", -15),
    ] {
        assert_eq!(put_off_by(words, &LED), expected, "{words}");
    }
}

/// W18: who has not said that he is done once he has to be hangs. An answer that was owed for less than its limit by then has that.
#[test]
fn an_answer_is_missed_when_the_controller_has_to_be_done_and_no_later() {
    for (limit, expected) in [(45, 85), (144, -14), (145, -15), (200, -15)] {
        let late = put_off_within("Running health checks", &LED, limit);
        assert_eq!(late, expected, "{limit}");
    }
}

/// W18: what the controller before left behind when it ended, and what one that is dead was at, puts nothing off.
#[test]
fn only_the_word_of_the_pod_that_leads_puts_an_answer_off() {
    for (what, led, waits) in [
        ("it runs since a moment before", led(0, Some(-5)), true),
        ("it was another Pod's word", led(1, Some(-5)), false),
        ("it began to lead in that second", led(-10, Some(0)), true),
        ("it leads since then", led(-10, Some(1)), false),
        ("it leads since nobody knows when", led(-10, None), true),
        ("the Lease was of a Pod that is gone", gone(-10, -1), true),
        ("that Pod held it then", gone(-10, 0), false),
        ("that Pod held it later", gone(-10, 20), false),
        ("the new one ran in that second", gone(0, -1), true),
        ("the new one ran later", gone(1, -1), false),
        ("that was listed three minutes ago", gone(-10, -160), true),
        ("that was listed before", gone(-10, -161), false),
        ("its Lease has a new name", renamed(-10, -1), true),
        ("there was none of that name then", renamed(-10, 0), false),
        ("who has it ran later", renamed(1, -1), false),
        ("it selects what has that label", selects("team=a"), true),
        ("it selects others", selects("team=b"), false),
        ("it leaves that out", selects("env,!team"), false),
        ("it ends", ends(), false),
        ("it renewed the Lease", renewed(180), true),
        ("it does not renew it", renewed(181), false),
    ] {
        let expected = if waits { 130 } else { -15 };
        assert_eq!(
            put_off_by("Running health checks", &led),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_root_that_says_nothing_of_a_try_or_is_gone_puts_nothing_off() {
    let cluster = Cluster::working();
    let now = cluster.now;
    for observed in [cluster.observed(), Observed::default()] {
        for asked in cluster.install.roots() {
            let install = &cluster.install;
            let late = put_off(now, install, &observed, (asked, now), Duration::ZERO);
            assert_eq!(late, now);
        }
    }
}
