use super::*;

#[test]
fn a_list_of_namespaces_holds_for_every_form_of_request() {
    for (method, target, verdict) in [
        ("GET", "/api", "pass"),
        ("GET", "/api/v1/namespaces/a/pods", "pass"),
        ("GET", "/api/v1/namespaces/a", "pass"),
        ("GET", "/api/v1/watch/namespaces/a/pods", "pass"),
        ("POST", "/apis/apps/v1/namespaces/a/deployments", "pass"),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "pass",
        ),
        ("GET", "/api/v1/namespaces/c/pods", "403 Namespace"),
        ("GET", "/api/v1/namespaces/%63/pods", "403 Namespace"),
        ("GET", "/api/v1/pods", "403 Namespace"),
        ("GET", "/api/v1/pods?watch=1", "403 Namespace"),
        ("GET", "/api/v1/watch/pods", "403 Namespace"),
        ("GET", "/api/v1/namespaces", "403 Namespace"),
        ("GET", "/api/v1/nodes/n", "403 Namespace"),
        ("POST", "/api/v1/namespaces", "403 Namespace"),
        ("DELETE", "/apis/apps/v1/deployments", "403 Namespace"),
        // The namespace itself is looked at only.
        ("GET", "/api/v1/namespaces/a/status", "pass"),
        ("PATCH", "/api/v1/namespaces/a", "403 Namespace"),
        ("PUT", "/api/v1/namespaces/a", "403 Namespace"),
        ("DELETE", "/api/v1/namespaces/a", "403 Namespace"),
        ("PUT", "/api/v1/namespaces/a/finalize", "403 Namespace"),
        ("PATCH", "/api/v1/namespaces/a/status", "403 Namespace"),
        ("PATCH", "/api/v1/namespaces/%61", "403 Namespace"),
    ] {
        let by_owner = Case::new(method, target).policy("namespaces", "a,b");
        assert_eq!(by_owner.verdict(), verdict, "{method} {target}");
        let granted = ["a", "b"].map(str::to_owned);
        let by_hub = Case::new(method, target).claims(|c| c.ns = Some(granted.into()));
        assert_eq!(by_hub.verdict(), verdict, "{method} {target}");
    }
}

/// The rows are in `own`; here, that they are asked.
#[test]
fn the_agents_own_namespace_is_the_owners_to_open() {
    let keys = || Case::new("GET", "/api/v1/namespaces/linesman/secrets/linesman-keys");
    assert_eq!(keys().verdict(), "403 OwnNamespace");
    assert_eq!(keys().policy("ownNamespace", "allow").verdict(), "pass");
    let all = |query| Case::new("GET", &format!("/api/v1/secrets?{query}"));
    assert_eq!(
        all("fieldSelector=&fieldSelector=").verdict(),
        "403 OwnNamespace"
    );
    assert_eq!(all("labelSelector=owner%3Dhelm").verdict(), "pass");
}

/// H35: what lies outside, and what shows what lies outside.
#[test]
fn where_namespaces_are_covered_nothing_else_is_reached() {
    let verdict = |method, target, names: &[&str]| {
        let mut case = Case::new(method, target);
        case.covered = Covered::Namespaces(names.iter().map(|n| (*n).to_owned()).collect());
        case.verdict()
    };
    let refused = "403 Scope";
    for (method, target, expected) in [
        ("GET", "/api/v1/namespaces/a/pods", "pass"),
        ("GET", "/api/v1/namespaces/b/pods/x/log", "pass"),
        ("GET", "/api/v1/namespaces/a", "pass"),
        ("GET", "/api", "pass"),
        ("GET", "/version", "pass"),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "pass",
        ),
        ("GET", "/api/v1/namespaces/c/pods", refused),
        ("GET", "/api/v1/namespaces/c", refused),
        ("DELETE", "/api/v1/namespaces/c/pods/x", refused),
        ("GET", "/api/v1/pods", refused),
        ("GET", "/api/v1/pods?watch=true", refused),
        ("GET", "/api/v1/watch/pods", refused),
        ("GET", "/api/v1/namespaces", refused),
        ("GET", "/api/v1/nodes", refused),
        ("GET", "/api/v1/namespaces/linesman/secrets", refused),
        ("PATCH", "/api/v1/namespaces/a", refused),
        ("DELETE", "/api/v1/namespaces/a", refused),
        ("PUT", "/api/v1/namespaces/a/finalize", refused),
    ] {
        assert_eq!(
            verdict(method, target, &["a", "b"]),
            expected,
            "{method} {target}"
        );
    }
    assert_eq!(verdict("GET", "/api/v1/namespaces/a/pods", &[]), refused);
    let mut unread = Case::new("GET", "/api/v1/namespaces/a/pods");
    unread.covered = Covered::Unread;
    assert_eq!(unread.verdict(), refused);
}

#[test]
fn a_refusal_for_the_scope_names_the_list_and_whose_it_is() {
    let mut case = Case::new("GET", "/api/v1/namespaces/c/pods");
    case.covered = Covered::Namespaces((0..12).map(|n| format!("n{n:02}")).collect());
    let refusal = case.run_with(&mut Replay::default()).unwrap_err();
    let named =
        "namespace c is not among n00, n01, n02, n03, n04, n05, n06, n07, n08, n09, others;";
    let message = refusal.message("r");
    assert!(message.contains(named), "{message}");
    assert!(
        refusal.next.contains("ConfigMap linesman-scope"),
        "{}",
        refusal.next
    );
    let mut case = Case::new("PATCH", "/api/v1/namespaces/a");
    case.covered = Covered::Namespaces(["a".to_owned()].into());
    let refusal = case.run_with(&mut Replay::default()).unwrap_err();
    let itself = "'patch namespaces' changes a namespace itself, and access is to what lies in a";
    assert_eq!(refusal.what, itself);
    let mut both = Case::new("GET", "/api/v1/namespaces/b/pods").policy("namespaces", "a");
    both.covered = Covered::Namespaces(["b".to_owned()].into());
    assert_eq!(
        both.verdict(),
        "403 Namespace",
        "the owner's policy narrows what is covered"
    );
}
