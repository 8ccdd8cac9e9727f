//! Which form of impersonation the role has from now on. Pure. What an API server cannot say for a moment changes nothing: classic rules beside
//! or instead of constrained ones take from the owner what the constraint holds, for all who act through the line.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::role::PROBE;

/// On the role: the API server's version at which constrained impersonation was last seen to work.
pub(super) const FOUND_ON: &str = "linesman.dev/constrained-impersonation-on";

/// What the role says as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// No role, or one that lets nobody be acted as.
    Empty,
    Classic,
    /// And the API server's version at which it was found to work, where the role says so.
    Constrained(Option<String>),
}

impl Standing {
    pub(super) fn of(role: Option<&ClusterRole>) -> Self {
        let rules = role.and_then(|role| role.rules.as_deref());
        let rules = rules.unwrap_or_default();
        if rules.iter().any(|rule| lets(rule, "impersonate:user-info")) {
            let annotations = role.and_then(|role| role.metadata.annotations.as_ref());
            return Self::Constrained(annotations.and_then(|a| a.get(FOUND_ON)).cloned());
        }
        if rules.iter().any(|rule| lets(rule, "impersonate")) {
            return Self::Classic;
        }
        Self::Empty
    }
}

/// Whether a rule lets somebody other than the probe be acted as.
fn lets(rule: &PolicyRule, verb: &str) -> bool {
    let mut named = rule.resource_names.iter().flatten();
    rule.verbs.iter().any(|v| v == verb) && named.any(|name| name != PROBE)
}

/// What the API server told the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Takes,
    TakesNot,
    /// It was busy, away, or answered something else.
    Nothing,
}

/// What is done after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Constrained,
    Classic,
    /// As it stands, and asked again soon.
    Undecided,
}

/// Judges what the probe was told, where the API server has this version now.
pub(super) fn judge(standing: &Standing, told: Told, version: Option<&str>) -> Verdict {
    match (told, standing) {
        (Told::Takes, _) => Verdict::Constrained,
        (Told::TakesNot, Standing::Empty | Standing::Classic) => Verdict::Classic,
        (Told::TakesNot, Standing::Constrained(found)) => match (found.as_deref(), version) {
            // Another API server, which does not know it. The same one only has not seen the role yet.
            (Some(found), Some(now)) if found != now => Verdict::Classic,
            _ => Verdict::Undecided,
        },
        (Told::Nothing, _) => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Told::{Nothing, Takes, TakesNot};
    use Verdict::{Classic, Constrained, Undecided};
    use serde_json::{Value, json};

    fn standing(rules: &Value, found: Option<&str>) -> Standing {
        let mut role = json!({"metadata": {"name": "r"}, "rules": rules});
        if let Some(found) = found {
            role["metadata"]["annotations"] = json!({FOUND_ON: found});
        }
        Standing::of(Some(&serde_json::from_value(role).unwrap()))
    }

    fn rule(verb: &str, name: &str) -> Value {
        json!({"apiGroups": [""], "resources": ["users"], "verbs": [verb], "resourceNames": [name]})
    }

    #[test]
    fn a_role_says_which_form_it_has() {
        let constrained = rule("impersonate:user-info", "linesman:ada");
        let probing = rule("impersonate:user-info", PROBE);
        let classic = rule("impersonate", "linesman:ada");
        let on = |version: Option<&str>| Standing::Constrained(version.map(str::to_owned));
        assert_eq!(Standing::of(None), Standing::Empty);
        assert_eq!(standing(&json!([]), None), Standing::Empty);
        assert_eq!(standing(&json!([probing]), None), Standing::Empty);
        assert_eq!(
            standing(&json!([classic, probing]), Some("v1")),
            Standing::Classic
        );
        assert_eq!(standing(&json!([constrained, probing]), None), on(None));
        assert_eq!(standing(&json!([constrained]), Some("v1")), on(Some("v1")));
    }

    #[test]
    fn constrained_rules_give_way_only_to_another_api_server_that_says_no() {
        let on = |version: Option<&str>| Standing::Constrained(version.map(str::to_owned));
        let (old, new) = (Some("v1.36.0"), Some("v1.35.4"));
        for (standing, told, version, verdict) in [
            (Standing::Empty, Takes, None, Constrained),
            (Standing::Empty, TakesNot, None, Classic),
            (Standing::Empty, Nothing, None, Undecided),
            (Standing::Classic, Takes, new, Constrained),
            (Standing::Classic, TakesNot, new, Classic),
            (Standing::Classic, Nothing, new, Undecided),
            (on(old), Takes, old, Constrained),
            (on(old), Takes, new, Constrained),
            (on(old), Nothing, new, Undecided),
            (on(old), Nothing, None, Undecided),
            (on(old), TakesNot, old, Undecided),
            (on(old), TakesNot, None, Undecided),
            (on(None), TakesNot, new, Undecided),
            (on(old), TakesNot, new, Classic),
        ] {
            let found = judge(&standing, told, version);
            assert_eq!(found, verdict, "{standing:?} {told:?} {version:?}");
        }
    }
}
