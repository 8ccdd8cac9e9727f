use super::*;

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
