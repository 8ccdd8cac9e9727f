use serde_json::json;

use super::*;
use crate::agent::engine::is_workload;
use crate::agent::plan::tests::Cluster;
use crate::bundle::{Kind, ObjectId};

const NAME: &str = "source-controller";

fn id() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", NAME)
}

/// What a look shows: at which second, of which Pod, how often it was restarted, and with what its container ended last.
type Look = (i64, &'static str, i32, (i32, &'static str));

/// Working, after these looks; nothing was ever wrong with the first.
fn looked(looks: &[Look]) -> Cluster {
    let mut cluster = Cluster::working();
    let began = cluster.now;
    for (second, uid, restarts, (code, why)) in looks {
        cluster.now = began + Duration::seconds(*second);
        let pod = cluster.pods.get_mut(NAME).unwrap();
        (*uid).clone_into(&mut pod.uid);
        pod.restarts = *restarts;
        pod.ended = Some((*code, (*why).to_owned()));
        let (now, observed) = (cluster.now, cluster.observed());
        let install = cluster.install.clone();
        cluster.history.noted(now, &install, &observed);
    }
    cluster.now = began;
    cluster
}

/// What is said of the controller.
fn said(cluster: &Cluster) -> Vec<(Class, String)> {
    let found = cluster.plan().findings.into_iter();
    let found = found.filter(|f| f.object == id());
    found.map(|f| (f.class, f.evidence)).collect()
}

const ERROR: (i32, &str) = (1, "Error");
const MEMORY_OUT: (i32, &str) = (137, OUT_OF_MEMORY);

/// F6, F8
#[test]
fn a_controller_that_fails_too_often_within_a_window_is_named() {
    let errors = [
        (0, "a", 5, ERROR),
        (1, "a", 6, ERROR),
        (241, "a", 7, ERROR),
        (481, "a", 8, ERROR),
    ];
    let of_memory = [
        (0, "a", 0, ERROR),
        (1, "a", 1, MEMORY_OUT),
        (401, "a", 2, MEMORY_OUT),
        (801, "a", 3, MEMORY_OUT),
    ];
    let crashes = "failed 3 times or more within 10 min; exit code 1 (Error), 8 restarts";
    let dies = "failed 3 times or more within 15 min; exit code 137 (OOMKilled), 3 restarts";
    let crashes = Some((Class::CrashLoop, crashes));
    for (looks, second, expected) in [
        (&errors[..], 600, crashes),
        (&errors, 601, None),
        (&errors[..3], 300, None),
        (&of_memory, 900, Some((Class::OomKilled, dies))),
        (&of_memory, 901, None),
        // How long ago those before the first look were is not known.
        (&errors[3..], 482, None),
        // Three between two looks.
        (&[errors[0], (1, "a", 8, ERROR)], 2, crashes),
        // It ended well: it was told to.
        (&[errors[0], (1, "a", 8, (0, "Completed"))], 2, None),
        // Deleted and made again, as the agent restarts one.
        (
            &[
                (0, "a", 2, ERROR),
                (1, "b", 0, ERROR),
                (2, "c", 0, ERROR),
                (3, "d", 0, ERROR),
            ],
            4,
            None,
        ),
    ] {
        let mut cluster = looked(looks);
        cluster.now += Duration::seconds(second);
        let expected: Vec<(Class, String)> = expected
            .into_iter()
            .map(|(class, text)| (class, text.to_owned()))
            .collect();
        assert_eq!(said(&cluster), expected, "{looks:?} {second}");
    }
}

/// Between two of its failures it is not available, which says less.
#[test]
fn why_it_is_not_available_is_told_once() {
    for (failed, class) in [(3, Class::CrashLoop), (2, Class::NotAvailable)] {
        let mut cluster = looked(&[(0, "a", 0, ERROR), (1, "a", failed, ERROR)]);
        cluster.now += Duration::seconds(2);
        let live = cluster.objects.get_mut(&id()).unwrap();
        live.fields["status"]["availableReplicas"] = json!(0);
        let classes: Vec<Class> = said(&cluster).into_iter().map(|(class, _)| class).collect();
        assert_eq!(classes, [class], "{failed}");
    }
}

/// F6, W17: by a commit it is held; what somebody else made of what Git owns is put back, although it comes up each time; and
/// where it is as last known good, nothing but a report is of use. Failures from before the change do not count.
#[test]
fn what_was_changed_before_it_began_to_fail_is_undone() {
    for (writer, written, altered, expected) in [
        ("kustomize-controller", 60, true, Class::BadEngineCommit),
        ("kustomize-controller", 2, true, Class::CrashLoop),
        // In the moment of the last one.
        ("kustomize-controller", 5, true, Class::CrashLoop),
        ("kubectl", 60, true, Class::ReadyButUseless),
        ("kubectl", 2, true, Class::CrashLoop),
        ("kubectl", 60, false, Class::CrashLoop),
    ] {
        let mut cluster = looked(&[(0, "a", 0, ERROR), (50, "a", 3, ERROR)]);
        for (id, wanted) in &mut cluster.install.wanted {
            wanted.git_owned = is_workload(id.kind);
        }
        cluster.now += Duration::seconds(55);
        let at = cluster.now - Duration::seconds(written);
        let live = cluster.objects.get_mut(&id()).unwrap();
        writer.clone_into(&mut live.writer);
        live.written = Some(at);
        if altered {
            let args = "/spec/template/spec/containers/0/args";
            *live.fields.pointer_mut(args).unwrap() = json!(["--concurrent=99"]);
        }
        let said = said(&cluster);
        let classes: Vec<Class> = said.iter().map(|(class, _)| *class).collect();
        assert_eq!(classes, [expected], "{writer} {written}");
        if classes != [Class::CrashLoop] {
            let text = "failed 3 times or more within 10 min; ";
            assert!(said[0].1.starts_with(text), "{said:?}");
        }
    }
}

/// F43, W25: when it was changed is by the API server's clock, and when it failed by the agent's.
#[test]
fn what_failed_before_a_change_did_so_whatever_the_clocks_show() {
    for ahead in [-600, 0, 600] {
        for (seconds, expected) in [(60, Class::BadEngineCommit), (2, Class::CrashLoop)] {
            let mut cluster = looked(&[(0, "a", 0, ERROR), (50, "a", 3, ERROR)]);
            for (id, wanted) in &mut cluster.install.wanted {
                wanted.git_owned = is_workload(id.kind);
            }
            cluster.now += Duration::seconds(55);
            let seen = cluster.now - Duration::seconds(seconds);
            let written = seen + Duration::seconds(ahead);
            cluster.history.versions.insert(id(), (written, seen));
            let live = cluster.objects.get_mut(&id()).unwrap();
            "kustomize-controller".clone_into(&mut live.writer);
            live.written = Some(written);
            let args = "/spec/template/spec/containers/0/args";
            *live.fields.pointer_mut(args).unwrap() = json!(["--concurrent=99"]);
            let classes: Vec<Class> = said(&cluster).into_iter().map(|(class, _)| class).collect();
            assert_eq!(classes, [expected], "{ahead} {seconds}");
        }
    }
}

/// F43: what one Pod dies of is not its version, where another one of that goes on with its work.
#[test]
fn a_version_of_which_a_pod_works_is_not_what_another_one_dies_of() {
    for (all, steady, expected) in [
        (2, true, Class::CrashLoop),
        (2, false, Class::BadEngineCommit),
        // One of them is of the version before.
        (3, true, Class::BadEngineCommit),
    ] {
        let mut cluster = looked(&[(0, "a", 0, ERROR), (50, "a", 3, ERROR)]);
        for (id, wanted) in &mut cluster.install.wanted {
            wanted.git_owned = is_workload(id.kind);
        }
        cluster.now += Duration::seconds(55);
        let other = Pod {
            uid: "b".to_owned(),
            ready: steady,
            restarts: 0,
            ended: None,
            ..cluster.pods[NAME].clone()
        };
        cluster.pods.insert("other".to_owned(), other);
        let at = cluster.now - Duration::seconds(60);
        let live = cluster.objects.get_mut(&id()).unwrap();
        "kustomize-controller".clone_into(&mut live.writer);
        live.written = Some(at);
        let args = "/spec/template/spec/containers/0/args";
        *live.fields.pointer_mut(args).unwrap() = json!(["--concurrent=99"]);
        let status = &mut live.fields["status"];
        (status["replicas"], status["availableReplicas"]) = (json!(all), json!(all));
        status["updatedReplicas"] = json!(2);
        let classes: Vec<Class> = said(&cluster).into_iter().map(|(class, _)| class).collect();
        assert_eq!(classes, [expected], "{all} {steady}");
    }
}

/// Whatever fails, no more than that is kept, and nothing of a Pod that is gone.
#[test]
fn what_is_remembered_has_a_bound() {
    let first = (0, "a", 0, ERROR);
    let kept = |cluster: &Cluster| -> Vec<(String, usize)> {
        let all = cluster.history.exits.iter();
        // Beside those that were looked at the cluster has Pods of its own.
        let all = all.filter(|(uid, _)| !uid.starts_with("pod-"));
        all.map(|(uid, exits)| (uid.clone(), exits.failed.len()))
            .collect()
    };
    let cluster = looked(&[first, (1, "a", 1_000, ERROR), (2, "a", 2_000, ERROR)]);
    assert_eq!(kept(&cluster), [("a".to_owned(), KEPT)]);
    let cluster = looked(&[first, (1, "a", 3, ERROR), (901, "a", 3, ERROR)]);
    assert_eq!(kept(&cluster), [("a".to_owned(), 0)]);
    let cluster = looked(&[first, (1, "a", 3, ERROR), (2, "b", 0, ERROR)]);
    assert_eq!(kept(&cluster), [("b".to_owned(), 0)]);
    // Counted anew, from the start.
    let cluster = looked(&[
        first,
        (1, "a", 3, ERROR),
        (2, "a", 0, ERROR),
        (3, "a", 1, ERROR),
    ]);
    assert_eq!(kept(&cluster), [("a".to_owned(), 4)]);
}
