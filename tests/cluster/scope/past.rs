//! L39: an adoption of some namespaces holds where the gate is out of the way: the API server itself refuses what is asked for
//! elsewhere, of whatever kind it is.

use crate::impersonation::asked::{Caller, Form, Switch, line_account, of_a_pod};
use crate::kubectl::POD;
use crate::support::figure;
use crate::support::world::{FLUX, World};

/// `linesman-line` acting as somebody whom the hub lets edit, inside and outside.
pub(super) fn the_gate(world: &World, inside: &str, outside: &str) {
    let account = line_account(world);
    let ada = Caller::past_the_gate(&account, ["linesman:ada", "linesman:edit"]);
    let maps = |namespace| format!("/api/v1/namespaces/{namespace}/configmaps");
    let plain = |method, target: String| Form::new(method, target, Switch::None);
    let allowed = [
        plain("GET", maps(inside)),
        plain("GET", maps(inside) + "?watch=1&timeoutSeconds=1"),
    ];
    assert_eq!(ada.misses(&allowed), [""; 0]);
    let mut forms = Vec::new();
    for namespace in [outside, FLUX, "linesman", "kube-system"] {
        // Whether there is such a Pod is not for them to know either.
        forms.extend(of_a_pod(namespace, POD));
        for query in ["", "?watch=1", "/any"] {
            forms.push(plain("GET", maps(namespace) + query));
        }
        forms.push(plain("POST", maps(namespace) + "?dryRun=All"));
        forms.push(plain("DELETE", maps(namespace) + "?dryRun=All"));
    }
    for path in [
        "namespaces",
        "nodes",
        "pods",
        "secrets",
        "configmaps?watch=1",
    ] {
        forms.push(plain("GET", format!("/api/v1/{path}")));
    }
    assert_eq!(ada.reaches(&forms, "cannot"), [""; 0]);
    figure(
        "L39",
        "requests past the gate for what was not adopted, and those that the API server let through",
        "0",
        format!("{}, 0", forms.len()),
    );
}
