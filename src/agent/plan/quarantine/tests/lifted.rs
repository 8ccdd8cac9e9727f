//! What is given back to Git, and what is forgotten of that.

use super::*;

const NAME: &str = "source-controller";
const TWO: &str = "main@sha1:2";

fn held(cluster: &Cluster, lifted: Option<i64>, removal: bool) -> Hold {
    Hold {
        revision: TWO.to_owned(),
        since: rfc3339(cluster.now - Duration::HOUR),
        reason: "x".to_owned(),
        attempt: 1,
        lifted: lifted.map(|ago| rfc3339(cluster.now - Duration::seconds(ago))),
        order: None,
        removal,
    }
}

/// What is done about holds that are over, and to what.
fn done(cluster: &Cluster) -> Vec<(&'static str, ObjectId)> {
    let (now, observed) = (cluster.now, cluster.observed());
    let steps = lifts(now, &cluster.install, &observed, &cluster.history);
    let done = steps.into_iter();
    done.map(|step| (step.action.as_str(), step.target))
        .collect()
}

/// W17: of a controller its Pods show it; what has none has no other way to show that it works.
#[test]
fn what_was_given_back_is_forgotten_once_it_has_worked_for_ten_minutes() {
    let binding = ObjectId::new(Kind::ClusterRoleBinding, "", "crd-controller-flux-system");
    for (id, works, ago, forgotten) in [
        (deployment(NAME), true, 600, true),
        (deployment(NAME), true, 599, false),
        (deployment(NAME), false, 600, false),
        (binding.clone(), false, 600, true),
        (binding, false, 599, false),
    ] {
        let mut cluster = owned();
        let hold = held(&cluster, Some(ago), false);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"] = json!({HELD: hold.text()});
        if !works {
            live.fields["status"] = json!({});
        }
        let expected = forgotten.then(|| ("settle", id.clone()));
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(done(&cluster), expected, "{id} {works} {ago}");
    }
}

/// W19, W20: that a commit lists an object says of one that went along with others that the commit has it; of one that it broke
/// that says nothing.
#[test]
fn the_list_of_the_commit_for_which_it_is_held_gives_back_only_what_that_may_have_removed() {
    let id = deployment(NAME);
    for (removal, revision, lists, given) in [
        (true, TWO, Some(true), true),
        (true, TWO, Some(false), false),
        (true, TWO, None, false),
        (false, TWO, Some(true), false),
        (false, "main@sha1:3", Some(true), true),
        (false, "main@sha1:3", None, true),
    ] {
        let mut cluster = owned();
        let hold = held(&cluster, None, removal);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"] = json!({HELD: hold.text(), RECONCILE: "disabled"});
        fetched(&mut cluster, revision);
        let sync = cluster.install.sync.clone();
        let root = cluster.objects.get_mut(&sync).unwrap();
        if let Some(lists) = lists {
            let name = if lists { NAME } else { "kustomize-controller" };
            let entry = json!({"id": format!("flux-system_{name}_apps_Deployment")});
            root.fields["status"]["inventory"] = json!({"entries": [entry]});
        }
        let all = [("lift", id.clone()), ("nudge", sync)];
        let expected = if given { &all[..] } else { &[] };
        assert_eq!(done(&cluster), expected, "{removal} {revision} {lists:?}");
    }
}
