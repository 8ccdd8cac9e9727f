//! Which form of impersonation the role has from now on. Pure. What an API server cannot say for a moment changes nothing: classic rules beside
//! or instead of constrained ones take from the owner what the constraint holds, for all who act through the line.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::role::{PROBE, PROBE_BEFORE};

/// The first minor version of Kubernetes 1 that can have constrained impersonation.
const FIRST: u32 = 35;

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
        // A constrained role always has the probe's rules. Where they are those of an agent of before, they stand alone.
        let probe = if rules.iter().any(|rule| names(rule).eq([PROBE])) {
            PROBE
        } else {
            PROBE_BEFORE
        };
        let lets = |verb: &str| {
            let mut rules = rules
                .iter()
                .filter(|rule| rule.verbs.iter().any(|v| v == verb));
            rules.any(|rule| names(rule).any(|name| name != probe))
        };
        if lets("impersonate:user-info") {
            let annotations = role.and_then(|role| role.metadata.annotations.as_ref());
            return Self::Constrained(annotations.and_then(|a| a.get(FOUND_ON)).cloned());
        }
        if lets("impersonate") {
            return Self::Classic;
        }
        Self::Empty
    }
}

fn names(rule: &PolicyRule) -> impl Iterator<Item = &str> {
    rule.resource_names.iter().flatten().map(String::as_str)
}

/// Whether an API server of this version is too old for constrained impersonation, whatever was found before.
fn too_old(version: &str) -> bool {
    let minor = version.strip_prefix("v1.").and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest.get(..end?)?.parse::<u32>().ok()
    });
    minor.is_some_and(|minor| minor < FIRST)
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
            // It was the probe of an agent of before that found it, by a classic rule for a user of that name.
            (_, Some(now)) if too_old(now) => Verdict::Classic,
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
        // An agent of before probed by a name that a user can have.
        let user = rule("impersonate:user-info", PROBE_BEFORE);
        assert_eq!(standing(&json!([user]), None), Standing::Empty);
        assert_eq!(standing(&json!([constrained, user]), None), on(None));
        assert_eq!(
            standing(&json!([user, probing]), Some("v1")),
            on(Some("v1"))
        );
        assert_eq!(
            standing(&json!([rule("impersonate", PROBE_BEFORE), probing]), None),
            Standing::Classic
        );
    }

    #[test]
    fn constrained_rules_give_way_only_to_another_api_server_that_says_no() {
        let on = |version: Option<&str>| Standing::Constrained(version.map(str::to_owned));
        let (old, new) = (Some("v1.36.0"), Some("v1.35.4"));
        let classic = Some("v1.34.12+k3s1");
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
            (on(classic), TakesNot, classic, Classic),
            (on(None), TakesNot, classic, Classic),
            (on(classic), Nothing, classic, Undecided),
            (on(Some("?")), TakesNot, Some("?"), Undecided),
        ] {
            let found = judge(&standing, told, version);
            assert_eq!(found, verdict, "{standing:?} {told:?} {version:?}");
        }
    }
}
