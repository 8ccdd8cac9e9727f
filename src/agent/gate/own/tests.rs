use http::Method;

use super::*;
use crate::kubeapi::path::classify;

const HOMES: Homes<'static> = Homes {
    agent: "linesman",
    argocd: "argocd",
};

/// `pass`, or the refusal's words.
fn verdict(method: &str, target: &str) -> String {
    let method: Method = method.parse().unwrap();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let info = classify(&method, path, query).unwrap();
    let judged = check(&Policy::default(), HOMES, &info, query);
    let open = Policy {
        own_namespace: true,
        ..Policy::default()
    };
    assert_eq!(check(&open, HOMES, &info, query), Ok(None), "{target}");
    match judged {
        Ok(None) => "pass".to_owned(),
        Ok(Some(query)) => format!("narrowed: {query}"),
        Err(refusal) => {
            assert_eq!(
                (refusal.code.as_u16(), refusal.reason),
                (403, "OwnNamespace")
            );
            assert!(
                refusal
                    .next
                    .contains("'ownNamespace: allow' in ConfigMap linesman-policy")
            );
            refusal.what
        }
    }
}

fn passes(method: &str, target: &str) -> bool {
    verdict(method, target) == "pass"
}

#[expect(
    clippy::too_many_lines,
    reason = "one table of what is asked, a row for each"
)]
#[test]
fn in_the_agents_namespace_one_looks_and_sees_no_secret() {
    const OWN: &str = "/api/v1/namespaces/linesman";
    for path in [
        "",
        "/pods",
        "/pods?watch=1",
        "/pods/x/log?follow=1",
        "/configmaps/linesman-policy",
        "/events",
        "/serviceaccounts/linesman-agent",
    ] {
        assert!(passes("GET", &format!("{OWN}{path}")), "{path}");
    }
    assert!(passes(
        "GET",
        "/apis/apps/v1/namespaces/linesman/deployments/linesman-agent/status"
    ));
    for (method, path) in [
        ("GET", "/secrets"),
        ("GET", "/secrets?watch=1"),
        ("GET", "/secrets/linesman-keys"),
        ("HEAD", "/secrets/linesman-keys"),
        (
            "GET",
            "/secrets?fieldSelector=metadata.name%21%3Dlinesman-keys",
        ),
        ("GET", "/secrets?labelSelector=owner%3Dhelm"),
        ("POST", "/secrets"),
        ("PATCH", "/secrets/linesman-keys"),
        ("DELETE", "/secrets/linesman-line-bind"),
        ("DELETE", "/secrets"),
        ("PATCH", "/configmaps/linesman-policy"),
        ("POST", "/configmaps"),
        ("DELETE", "/configmaps/linesman-policy"),
        ("POST", "/pods"),
        ("GET", "/pods/x/exec?command=sh"),
        ("POST", "/pods/x/exec?command=sh"),
        ("GET", "/pods/x/attach"),
        ("GET", "/pods/x/portforward"),
        ("GET", "/pods/x/proxy/metrics"),
        ("GET", "/services/linesman-git/proxy/"),
        ("PATCH", "/pods/x/ephemeralcontainers"),
        ("GET", "/pods/x/eviction"),
        ("PUT", "/pods/x/eviction"),
        ("DELETE", "/pods/x/eviction"),
        ("POST", "/pods/eviction"),
        ("POST", "/configmaps/x/eviction"),
        ("POST", "/secrets/x/eviction"),
        ("DELETE", "/pods/x"),
        ("POST", "/serviceaccounts/linesman-agent/token"),
        ("POST", "/serviceaccounts/linesman-line/token"),
        ("OPTIONS", "/pods"),
        ("PATCH", ""),
        ("DELETE", ""),
        ("PUT", "/finalize"),
    ] {
        assert!(!passes(method, &format!("{OWN}{path}")), "{method} {path}");
    }
    for (method, target) in [
        ("GET", "/api/v1/watch/namespaces/linesman/secrets"),
        ("GET", "/api/v1/proxy/namespaces/linesman/pods/x"),
        ("GET", "/api/v1/namespaces/%6cinesman/secrets"),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/linesman/deployments/linesman-agent",
        ),
        (
            "PUT",
            "/apis/apps/v1/namespaces/linesman/deployments/linesman-agent/scale",
        ),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/linesman/leases/linesman-agent",
        ),
        (
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/linesman/rolebindings",
        ),
    ] {
        assert!(!passes(method, target), "{method} {target}");
    }
    // Else no node that the agent runs on could be drained through the line.
    for path in ["/pods/x/eviction", "/pods/x/eviction?dryRun=All"] {
        assert!(passes("POST", &format!("{OWN}{path}")), "{path}");
    }
    let said = verdict("GET", "/api/v1/namespaces/linesman/secrets/linesman-keys");
    let keys = "'get secrets': no Secret of namespace linesman, where the cluster's private keys are, is reached through the line";
    assert_eq!(said, keys);
    let said = verdict("POST", "/api/v1/namespaces/linesman/pods");
    let own = "'create pods': namespace linesman is the agent's own, and is only looked at through the line";
    assert_eq!(said, own);
}

#[test]
fn elsewhere_all_is_as_it_was() {
    for (method, target) in [
        ("GET", "/api"),
        ("GET", "/version"),
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/namespaces/a/secrets"),
        ("GET", "/api/v1/namespaces/a/secrets/linesman-keys"),
        ("DELETE", "/api/v1/namespaces/a/secrets"),
        ("POST", "/api/v1/namespaces/a/pods"),
        ("DELETE", "/api/v1/namespaces/a"),
        ("GET", "/api/v1/namespaces/a/pods/x/exec"),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        ),
        ("GET", "/apis/secrets.example/v1/secrets"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        (
            "PATCH",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/team",
        ),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/linesman-agent",
        ),
        (
            "DELETE",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/linesman-view",
        ),
        ("GET", "/api/v1/namespaces/flux-system/secrets/other"),
        ("POST", "/api/v1/namespaces/flux-system/secrets"),
        ("PATCH", "/api/v1/namespaces/flux-system/secrets/other"),
    ] {
        assert_eq!(verdict(method, target), "pass", "{method} {target}");
    }
}

#[test]
fn the_engines_copy_of_the_deploy_key_is_not_shown() {
    for (method, target) in [
        ("GET", "/api/v1/namespaces/flux-system/secrets/flux-system"),
        // What is patched or deleted comes back in the answer.
        (
            "PATCH",
            "/api/v1/namespaces/flux-system/secrets/flux-system",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/flux-system/secrets/flux-system",
        ),
        ("GET", "/api/v1/namespaces/argocd/secrets/linesman-catalog"),
        ("GET", "/api/v1/namespaces/gitops/secrets/linesman-catalog"),
        (
            "GET",
            "/api/v1/watch/namespaces/flux-system/secrets/flux-system",
        ),
        ("GET", "/api/v1/namespaces/flux-system/secrets"),
        ("GET", "/api/v1/namespaces/flux-system/secrets?watch=true"),
        ("DELETE", "/api/v1/namespaces/flux-system/secrets"),
        ("GET", "/api/v1/namespaces/argocd/secrets"),
        (
            "GET",
            "/api/v1/namespaces/flux-system/secrets?fieldSelector=metadata.name%3Dflux-system",
        ),
        (
            "GET",
            "/api/v1/namespaces/flux-system/secrets?fieldSelector=metadata.name%21%3Dlinesman-catalog",
        ),
    ] {
        assert!(!passes(method, target), "{method} {target}");
    }
    for selector in [
        "fieldSelector=metadata.name%21%3Dflux-system",
        "fieldSelector=metadata.name!=flux-system,type=Opaque&limit=500",
        "watch=1&fieldSelector=metadata.name%3Dother",
        "fieldSelector=metadata.name==other",
        "labelSelector=owner%3Dhelm%2Cstatus%3Ddeployed",
    ] {
        let target = format!("/api/v1/namespaces/flux-system/secrets?{selector}");
        assert_eq!(verdict("GET", &target), "pass", "{selector}");
    }
}

/// Each in a form that the API server could read as something else, or that leaves something in.
const NOT_LEFT_OUT: [&str; 16] = [
    "",
    "watch=1",
    "limit=500&fieldSelector=",
    "fieldSelector=metadata.namespace!=linesman",
    "fieldSelector=metadata.namespace!=flux-system,metadata.namespace!=argocd",
    "fieldSelector=metadata.namespace=linesman",
    "fieldSelector=metadata.namespace=%20linesman",
    "fieldSelector=metadata.name!=linesman-keys,metadata.namespace!=flux-system,metadata.namespace!=argocd",
    "fieldSelector=a\\,metadata.namespace=b",
    "fieldSelector=metadata.namespace=b;x",
    "fieldSelector=metadata.namespace=b%ZZ",
    "fieldSelector=metadata.namespace=b&fieldSelector=",
    "fieldSelector=&fieldSelector=metadata.namespace=b",
    "fieldSelector=metadata.namespace=b&%66ieldSelector=type=Opaque",
    "labelSelector=owner%20in%20(x,owner=helm)",
    "labelSelector=owner!=helm",
];

#[test]
fn a_list_that_would_show_keys_is_narrowed() {
    const ALL: &str =
        "metadata.namespace!=linesman,metadata.name!=flux-system,metadata.name!=linesman-catalog";
    for (target, expected) in [
        ("/api/v1/secrets", format!("fieldSelector={ALL}")),
        (
            "/api/v1/secrets?watch=1&resourceVersion=7",
            format!("watch=1&resourceVersion=7&fieldSelector={ALL}"),
        ),
        (
            "/api/v1/secrets?limit=500&fieldSelector=&x=%20",
            format!("limit=500&fieldSelector={ALL}&x=%20"),
        ),
        (
            "/api/v1/secrets?%66ieldSelector=type%3DOpaque,metadata.namespace!=linesman",
            "fieldSelector=type%3DOpaque,metadata.namespace!=linesman,metadata.name!=flux-system,metadata.name!=linesman-catalog".to_owned(),
        ),
        (
            "/api/v1/namespaces/flux-system/secrets?fieldSelector=metadata.name%3Dflux-system",
            "fieldSelector=metadata.name%3Dflux-system,metadata.name!=flux-system".to_owned(),
        ),
    ] {
        assert_eq!(verdict("GET", target), format!("narrowed: {expected}"), "{target}");
    }
    // What is deleted is named by whoever deletes it.
    assert!(!passes("DELETE", "/api/v1/namespaces/flux-system/secrets"));
    for odd in [
        "fieldSelector=a\\,metadata.namespace=b",
        "fieldSelector=metadata.namespace=b;x",
        "fieldSelector=metadata.namespace=b%ZZ",
        "x=%ZZ",
        "fieldSelector=metadata.namespace=b&%66ieldSelector=type=Opaque",
    ] {
        let said = verdict("GET", &format!("/api/v1/secrets?{odd}"));
        assert!(said.contains("would show"), "{odd}: {said}");
    }
}

#[test]
fn a_list_over_all_namespaces_leaves_the_keys_out_or_is_refused() {
    for query in NOT_LEFT_OUT {
        for path in [
            "/api/v1/secrets",
            "/api/v1/watch/secrets",
            "/api/v1/secrets/",
        ] {
            assert!(!passes("GET", &format!("{path}?{query}")), "{path} {query}");
        }
    }
    for query in [
        "fieldSelector=metadata.namespace!=linesman,metadata.namespace!=flux-system,metadata.namespace!=argocd",
        "watch=1&fieldSelector=metadata.namespace%21%3Dlinesman%2Cmetadata.name%21%3Dflux-system%2Cmetadata.name%21%3Dlinesman-catalog",
        "fieldSelector=metadata.namespace%3Da",
        "labelSelector=owner%3Dhelm",
        "labelSelector=name%3Dx%2Cowner%3Dhelm&limit=5",
    ] {
        assert_eq!(
            verdict("GET", &format!("/api/v1/secrets?{query}")),
            "pass",
            "{query}"
        );
    }
    let info = classify(&Method::GET, "/api/v1/secrets", None).unwrap();
    let twice = "fieldSelector=&fieldSelector=metadata.namespace=b";
    let refusal = check(&Policy::default(), HOMES, &info, Some(twice)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "agent: 'list secrets' of all namespaces would show the cluster's private keys; name a namespace, or add --field-selector \
         'metadata.namespace!=linesman,metadata.name!=flux-system,metadata.name!=linesman-catalog'; or ask the cluster's owner to do it \
         there, or to set 'ownNamespace: allow' in ConfigMap linesman-policy"
    );
}

/// Of a query with more than 10,000 parts, the empty ones among them, Go reads none.
#[test]
fn a_selector_among_too_many_parts_counts_for_nothing() {
    const ALL: &str = "/api/v1/secrets";
    const ENGINES: &str = "/api/v1/namespaces/flux-system/secrets";
    const OUT: &str = "fieldSelector=metadata.namespace!=linesman,metadata.namespace!=flux-system,metadata.namespace!=argocd";
    const OTHERS: &str = "fieldSelector=metadata.name!=flux-system";
    for (method, path, selector) in [
        ("GET", ALL, "a"),
        ("GET", ALL, OUT),
        ("GET", ENGINES, OTHERS),
        ("DELETE", ENGINES, OTHERS),
    ] {
        for (part, times) in [("&a", 10_000), ("&", 10_000), ("&a", 1_000), ("&", 1_000)] {
            let said = verdict(method, &format!("{path}?{selector}{}", part.repeat(times)));
            let shown = said.contains("would show the cluster's private keys");
            assert!(shown, "{method} {path} {selector} {part} {times}");
        }
    }
    let most = "&a".repeat(PARTS - 1);
    for (method, path, selector) in [
        ("GET", ALL, OUT),
        ("GET", ENGINES, OTHERS),
        ("DELETE", ENGINES, OTHERS),
    ] {
        let target = format!("{path}?{selector}{most}");
        assert!(passes(method, &target), "{method} {path} {selector}");
    }
    // With the selector that is added it is too many, or just as many as are read.
    let info = classify(&Method::GET, ALL, None).unwrap();
    let narrowed = |query: &str| check(&Policy::default(), HOMES, &info, Some(query));
    assert!(narrowed(&format!("a{most}")).is_err());
    let made = narrowed(&most).unwrap();
    let runs = still(&Policy::default(), HOMES, &info, made.as_deref());
    assert_eq!((made.is_some(), runs), (true, Ok(())));
}

/// W32: Argo CD lives where its owner put it, and its copy of the deploy key with it.
#[test]
fn the_deploy_key_of_an_argo_cd_elsewhere_is_left_out_of_lists_there() {
    let homes = Homes {
        argocd: "gitops",
        ..HOMES
    };
    let narrowed = Some("fieldSelector=metadata.name!=linesman-catalog".to_owned());
    for (namespace, expected) in [("gitops", narrowed), ("argocd", None)] {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let info = classify(&Method::GET, &path, None).unwrap();
        let judged = check(&Policy::default(), homes, &info, None);
        assert_eq!(judged, Ok(expected), "{namespace}");
    }
}

#[test]
fn the_agents_objects_for_the_whole_cluster_are_not_changed() {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    for (method, target) in [
        (
            "PATCH",
            format!("{RBAC}/clusterroles/linesman-line-subjects"),
        ),
        ("PUT", format!("{RBAC}/clusterroles/linesman-agent")),
        (
            "DELETE",
            format!("{RBAC}/clusterrolebindings/linesman-view"),
        ),
        ("DELETE", format!("{RBAC}/clusterroles")),
        ("DELETE", format!("{RBAC}/clusterrolebindings")),
        (
            "DELETE",
            format!("{ADMISSION}/validatingadmissionpolicies/linesman-guard"),
        ),
        (
            "PATCH",
            format!("{ADMISSION}/validatingadmissionpolicybindings/linesman-guard"),
        ),
        ("DELETE", format!("{ADMISSION}/validatingadmissionpolicies")),
    ] {
        assert!(!passes(method, &target), "{method} {target}");
    }
    let said = verdict("PATCH", &format!("{RBAC}/clusterroles/linesman-agent"));
    let own = "'patch clusterroles': linesman-agent is the agent's own, and is not changed through the line";
    assert_eq!(said, own);
    let said = verdict("DELETE", &format!("{RBAC}/clusterroles"));
    let own = "'deletecollection clusterroles': what begins with linesman- is the agent's own, and is not changed through the line";
    assert_eq!(said, own);
}
