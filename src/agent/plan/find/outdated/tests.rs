use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::plan::state::Child;
use crate::agent::plan::tests::Cluster;

const GROUP: &str = "source.toolkit.fluxcd.io";

/// A message of kustomize-controller's with these words of the API server's before the version.
fn said(object: &str, words: &str) -> String {
    format!("{object} dry-run failed{words}{OUTDATED}{GROUP}/v1beta2")
}

fn named(namespace: &str, name: &str) -> Named {
    Named {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        version: "v1beta2".to_owned(),
    }
}

#[test]
fn a_message_names_the_object_and_the_version() {
    for words in [
        ": ",
        " (InternalError): ",
        ": failed to prune fields: failed add back owned items: \
         failed to convert pruned object at version source.toolkit.fluxcd.io/v1beta2: ",
    ] {
        let message = said("GitRepository/teams/web.one", words);
        for message in [message.clone(), format!("{message}\n\n")] {
            let found = parsed(&message, GROUP, "GitRepository");
            assert_eq!(found, Some(named("teams", "web.one")), "{message}");
        }
    }
    // From the API server's converter by a webhook, which says the kind, too.
    let message = said("GitRepository/teams/web", ": ") + ", Kind=GitRepository";
    let found = parsed(&message, GROUP, "GitRepository");
    assert_eq!(found, Some(named("teams", "web")));
}

/// Tenants say in Git what paths, names and values are, and messages quote those.
#[test]
fn what_somebody_else_put_into_a_message_names_nothing() {
    let put = format!("GitRepository/a/b dry-run failed: {OUTDATED}{GROUP}/v9");
    for message in [
        format!("kustomization path not found: stat /tmp/x/{put}: no such file or directory"),
        format!("GitRepository/a/b {OUTDATED}{GROUP}/v9"),
        format!("ConfigMap/a/b dry-run failed: {put}"),
        format!(
            "GitRepository/a/b dry-run failed (Invalid): GitRepository.{GROUP} \"b\" is invalid: spec.url: Invalid value: \"{put}\""
        ),
        format!(
            "GitRepository/a/b dry-run failed: admission webhook \"x\" denied the request: {OUTDATED}{GROUP}/v9"
        ),
        format!(
            "GitRepository/a/b dry-run failed: failed calling webhook \"x\": {OUTDATED}{GROUP}/v9"
        ),
        format!("GitRepository/a/b dry-run failed: failed\n: {OUTDATED}{GROUP}/v9"),
        format!("GitRepository/a/b dry-run failed (a b): {OUTDATED}{GROUP}/v9"),
        format!("GitRepository/a/b dry-run failed {OUTDATED}{GROUP}/v9"),
        said("GitRepository/b", ": "),
        said("GitRepository/a/b/c", ": "),
        said("GitRepository/../b", ": "),
        said("GitRepository/a/b?x", ": "),
        said("GitRepository/a/", ": "),
        said("Bucket/a/b", ": "),
        said("GitRepository/a/b", ": ").replace(GROUP, "kustomize.toolkit.fluxcd.io"),
        format!("GitRepository/a/b dry-run failed: {OUTDATED}"),
    ] {
        let found = parsed(&message, GROUP, "GitRepository");
        assert_eq!(found, None, "{message}");
    }
    assert_eq!(parsed(&said("/a/b", ": "), GROUP, ""), None);
}

/// What is named where Kustomizations say these, of a CRD that has v1 and stores objects in those.
fn named_of(messages: &[String], stored: &[&str], taken: bool) -> Vec<String> {
    let id = ObjectId::crd_of(Kind::GitRepository);
    let mut cluster = Cluster::working();
    let wanted = cluster.install.wanted.get_mut(&id).unwrap();
    wanted.expect = Arc::new(json!({"spec": {"versions": [{"name": "v1"}]}}));
    (wanted.git_owned, wanted.taken) = (taken, taken);
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["spec"] = json!({
        "names": {"kind": "GitRepository"}, "versions": [{"name": "v1", "storage": true}],
    });
    live.fields["status"]["storedVersions"] = json!(stored);
    let mut observed = cluster.observed();
    let children = (0..).zip(messages).map(|(n, message)| {
        let child = Child {
            trouble: Some((NOT_APPLIED.to_owned(), message.clone())),
            ..Child::default()
        };
        let id = ObjectId::new(Kind::Kustomization, "teams", &format!("team-{n}"));
        (id, child)
    });
    observed.children = Arc::new(children.collect());
    let all = super::named(&cluster.install, &observed, &id);
    all.into_iter().map(|one| one.name).collect()
}

/// F17, W15: were just these written, the versions that are lost would be taken from the CRD's status with objects left in them.
#[test]
fn nothing_is_named_where_all_objects_are_to_be_written() {
    let outdated = said("GitRepository/teams/web", ": ");
    let crd = ObjectId::crd_of(Kind::GitRepository).name;
    let refused = format!(
        "CustomResourceDefinition/{crd} dry-run failed (Invalid): missing from spec.versions; v1beta2 was previously a storage version, \
         and must remain in spec.versions"
    );
    let (today, both) = (&["v1"][..], &["v1beta2", "v1"][..]);
    for (messages, stored, taken, expected) in [
        (vec![outdated.clone()], today, false, &["web"][..]),
        // The bundle lacks one of them, or Git's version does.
        (vec![outdated.clone()], both, false, &[]),
        (vec![outdated.clone(), refused.clone()], both, true, &[]),
        (vec![outdated.clone()], both, true, &["web"]),
    ] {
        let named = named_of(&messages, stored, taken);
        assert_eq!(named, expected, "{messages:?} {stored:?} {taken}");
    }
}

#[test]
fn so_many_objects_are_named_and_no_more() {
    let all = (0..20).map(|n| said(&format!("GitRepository/teams/web-{n}"), ": "));
    let all: Vec<String> = all.collect();
    assert_eq!(named_of(&all, &["v1"], false).len(), MOST);
}
