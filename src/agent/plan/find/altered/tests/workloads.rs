//! What differs in a workload, and what others may have added to it.

use super::*;
use crate::agent::plan::find::tests::source;
use crate::agent::plan::tests::{desired_of, install_for};

#[test]
fn events_are_posted_in_vain_where_none_are_wanted_and_an_address_is_given() {
    let fields =
        |arg: &str| json!({"spec": {"template": {"spec": {"containers": [{"args": [arg]}]}}}});
    let wanted = |arg: &str| {
        let mut wanted = Cluster::working().install.wanted[&source()].clone();
        wanted.expect = std::sync::Arc::new(fields(arg));
        wanted
    };
    for (ours, theirs, vain) in [
        ("--events-addr=", "--events-addr=http://a", true),
        ("--events-addr=", "--events-addr=", false),
        ("--events-addr=http://a", "--events-addr=http://b", false),
        ("--log-level=info", "--events-addr=http://a", false),
    ] {
        let said = posts_in_vain(&wanted(ours), &object(fields(theirs)));
        assert_eq!(said, vain, "{ours} {theirs}");
    }
}

/// A workload whose fields are all as wanted is looked at for what others added, where it has not worked for a while. What
/// was there when it was last known good is no reason for that.
#[test]
fn what_others_added_to_a_workload_counts_only_while_it_does_not_work() {
    for (down, owned, known, told) in [
        (Some(30), false, false, true),
        (Some(29), false, false, false),
        (Some(30), false, true, false),
        (None, false, false, false),
        (Some(30), true, false, false),
    ] {
        let said = flux_told(|cluster| {
            let env = json!([{"name": "HTTPS_PROXY", "value": "http://proxy.test"}]);
            let wanted = cluster.install.wanted.get_mut(&source()).unwrap();
            wanted.git_owned = owned;
            let live = cluster.objects.get_mut(&source()).unwrap();
            let container = "/spec/template/spec/containers/0";
            live.fields.pointer_mut(container).unwrap()["env"] = env.clone();
            "kubectl".clone_into(&mut live.writer);
            if let Some(seconds) = down {
                live.fields["status"]["availableReplicas"] = json!(0);
                let since = cluster.now - Duration::seconds(seconds);
                cluster.history.down.insert(source(), since);
            }
            if known {
                let containers = json!([{"name": "manager", "env": env}]);
                let added = json!({"spec": {"template": {"spec": {"containers": containers}}}});
                cluster.install.keep(&[(source(), added)].into());
            }
        });
        let differs = said.iter().any(|(_, text)| text.starts_with("differs at "));
        assert_eq!(differs, told, "{down:?} {owned} {known} {said:?}");
    }
}

/// F8: Argo CD's manifests bound nothing, so that no field of them is another one where somebody gave too little.
#[test]
fn a_limit_that_somebody_added_is_what_is_wrong_with_a_controller_that_it_ends() {
    let server = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    let said = told(EngineKind::Argocd, |cluster| {
        let live = cluster.objects.get_mut(&server).unwrap();
        let container = "/spec/template/spec/containers/0";
        live.fields.pointer_mut(container).unwrap()["resources"] =
            json!({"limits": {"memory": "10Mi"}});
        "kubectl".clone_into(&mut live.writer);
        live.fields["status"]["availableReplicas"] = json!(0);
        let since = cluster.now - Duration::seconds(30);
        cluster.history.down.insert(server.clone(), since);
    });
    let altered = said
        .into_iter()
        .find(|(class, _)| *class == Class::ObjectAltered);
    let text = "differs at /spec/template/spec/containers/resources/limits/memory";
    assert_eq!(altered, Some((Class::ObjectAltered, text.to_owned())));
}

/// Else a change that takes the Secret away, or the way back from one that brought it, would be over with nothing done.
#[test]
fn a_secret_that_the_install_had_pods_pull_with_is_taken_away_with_its_name() {
    let install = |secret: Option<&str>| {
        let mut desired = desired_of(EngineKind::Flux);
        desired.install.form.pull_secret = secret.map(str::to_owned);
        install_for(&desired)
    };
    let controllers = ["kustomize-controller", "source-controller"];
    let pulled = |cluster: &Cluster, name: &str| {
        let live = &cluster.objects[&id(Kind::Deployment, name)];
        live.fields.pointer(PULLS).cloned()
    };
    let mut cluster = Cluster::working_with(install(Some("regcred")));
    let named = Some(json!([{"name": "regcred"}]));
    assert_eq!(
        controllers.map(|c| pulled(&cluster, c)),
        [named.clone(), named]
    );
    assert_eq!(cluster.plan().findings, []);
    cluster.install = install(None);
    let plan = cluster.plan();
    let found: Vec<(Class, &str, &str)> = plan
        .findings
        .iter()
        .map(|f| (f.class, f.object.name.as_str(), f.evidence.as_str()))
        .collect();
    let text = "differs at /spec/template/spec/imagePullSecrets/regcred";
    assert_eq!(found, controllers.map(|c| (Class::ObjectAltered, c, text)));
    cluster.settle(100);
    let none = Some(json!([]));
    assert_eq!(
        controllers.map(|c| pulled(&cluster, c)),
        [none.clone(), none]
    );
}

/// What people have the Pods of a controller pull with is theirs, also where it came back with an object that we made again.
#[test]
fn secrets_that_others_had_pods_pull_with_are_no_difference() {
    let own = json!([{"name": "own"}]);
    let added = json!({"spec": {"template": {"spec": {"imagePullSecrets": own}}}});
    for (ours, known, told) in [
        (false, false, false),
        (true, true, false),
        (true, false, true),
    ] {
        let said = flux_told(|cluster| {
            let live = cluster.objects.get_mut(&source()).unwrap();
            live.fields["spec"]["template"]["spec"]["imagePullSecrets"] = own.clone();
            if ours {
                live.pulls = vec!["own".to_owned()];
            }
            if known {
                cluster.install.keep(&[(source(), added.clone())].into());
            }
        });
        assert_eq!(!said.is_empty(), told, "{ours} {known} {said:?}");
    }
}

/// F10, F12: what Git may have of it is known only from a snapshot, and what an apply found to be no difference is none. Then the
/// controller is restarted.
#[test]
fn a_controller_that_does_not_answer_is_useless_only_by_a_difference_that_is_known() {
    type Case<'a> = (&'a str, fn(&mut Cluster, &ObjectId), bool);
    let cases: [Case<'_>; 3] = [
        ("somebody added to it", |_, _| {}, true),
        (
            "Git has it in a form that is not known",
            |cluster, id| cluster.install.wanted.get_mut(id).unwrap().git_owned = true,
            false,
        ),
        (
            "an apply changed nothing",
            |cluster, id| {
                let mark = cluster.objects[id].mark();
                cluster.history.settled.insert(id.clone(), mark);
            },
            false,
        ),
    ];
    for (what, change, is_useless) in cases {
        let mut cluster = Cluster::working();
        let sync = cluster.install.sync.clone();
        let controller = cluster.install.controller(&sync);
        let live = cluster.objects.get_mut(&controller).unwrap();
        let container = "/spec/template/spec/containers/0";
        live.fields.pointer_mut(container).unwrap()["env"] =
            json!([{"name": "HTTPS_PROXY", "value": "http://proxy.test"}]);
        "kubectl".clone_into(&mut live.writer);
        change(&mut cluster, &controller);
        let mut found = [Finding::new(Class::QueueWedged, &sync, "has no answer")];
        let (install, observed) = (&cluster.install, cluster.observed());
        useless(install, &observed, &cluster.history, &mut found);
        let expected = if is_useless {
            (Class::ReadyButUseless, &controller)
        } else {
            (Class::QueueWedged, &sync)
        };
        assert_eq!((found[0].class, &found[0].object), expected, "{what}");
    }
}
