//! Whose signature Argo CD wants: the keys that its `AppProject` names, the key ring that the repo-server loads them from, and whether
//! they are looked at at all (argo-cd v3.2: `controller/state.go`, `util/gpg/gpg.go`, `reposerver/gpgwatcher.go`).
//!
//! The ring is shared: it is what every project's keys are taken from, so that people's own stay in it. What a project accepts is its
//! list of key IDs, which holds as a whole: one more in it, and somebody else's commits were applied.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{PART_OF, PROJECT};
use crate::agent::engine::{compare, place};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::wire::api::SignerRef;

/// The ConfigMap of public keys, each by the ID of its primary key; by another name the repo-server would import it anew at each
/// change, and not start.
pub const KEYRING: &str = "argocd-gpg-keys-cm";

/// On key ring and project: the primary keys that are there by the hub's word.
const OURS: &str = "linesman.dev/signers";
/// Where a project says whose signature it wants.
const WANTED: &str = "/spec/signatureKeys";
/// What goes before it since Argo CD 3.5: with `git` in it the keys above are not looked at (`EffectiveSourceIntegrity`).
const INSTEAD: &str = "/spec/sourceIntegrity";
/// With which Argo CD's programs are told to look at no signature.
const SWITCH: &str = "ARGOCD_GPG_ENABLED";
/// Digits of a key ID, the last of a fingerprint.
const DIGITS: usize = 16;
/// What no key has for its ID: who names it applies nothing, and who names none applies everything.
const NOBODY: &str = "0000000000000000";

/// The project, with the keys of which one has to have signed what its Applications read from Git. A signature names the subkey that
/// made it. Argo CD reads OpenPGP alone: what an SSH key signed it refuses.
pub(super) fn project(mut project: Value, signers: &[SignerRef]) -> Value {
    if signers.is_empty() {
        return project;
    }
    let prints = openpgp(signers).flat_map(|s| std::iter::once(&s.fingerprint).chain(&s.subkeys));
    let mut ids: BTreeSet<&str> = prints.map(|print| id_of(print)).collect();
    if ids.is_empty() {
        ids.insert(NOBODY);
    }
    let ids: Vec<Value> = ids.iter().map(|id| json!({ "keyID": id })).collect();
    project["metadata"]["annotations"] = json!({ OURS: named(signers) });
    project["spec"]["signatureKeys"] = json!(ids);
    project
}

/// The key ring, whole and as the patch of our keys; none where the bundle has none and nobody signs.
pub(super) fn keyring(
    bundled: Option<Value>,
    place: &str,
    signers: &[SignerRef],
) -> Option<(Value, Value)> {
    let made = || {
        json!({
            "apiVersion": "v1", "kind": Kind::ConfigMap.as_str(),
            "metadata": {"name": KEYRING, "namespace": place},
        })
    };
    let has_keys = openpgp(signers).next().is_some();
    let base = bundled.or_else(|| has_keys.then(made))?;
    let mut keys = json!({"metadata": {"labels": {"app.kubernetes.io/part-of": PART_OF}}});
    if has_keys {
        let ring =
            openpgp(signers).map(|s| (id_of(&s.fingerprint).to_owned(), json!(s.public_key)));
        keys["metadata"]["annotations"] = json!({ OURS: named(signers) });
        keys["data"] = Value::Object(ring.collect());
    }
    Some((compare::merged(&keys, &base), keys))
}

/// Where something is there by an earlier word of the hub's and wanted no more, or passes over what is. What else owners put there stays.
pub fn left(id: &ObjectId, wanted: &Value, live: &Value) -> Vec<String> {
    if withdrawn(id, wanted, live).is_some() {
        return vec![INSTEAD.to_owned()];
    }
    let Some(before) = told(live) else {
        return Vec::new();
    };
    let ends = told(wanted).is_none();
    match (id.kind, id.name.as_str()) {
        (Kind::AppProject, PROJECT) if ends => vec![WANTED.to_owned()],
        (Kind::ConfigMap, KEYRING) => {
            let keys = gone(before, wanted, live).map(|key| format!("/data/{key}"));
            let mark = ends.then(|| format!("/metadata/annotations/{}", OURS.replace('/', "~1")));
            keys.chain(mark).collect()
        }
        _ => Vec::new(),
    }
}

/// What a project that is there has to lose before it is applied, for to apply leaves what others have set: policies of people's, with
/// which its keys would be passed over.
pub fn withdrawn(id: &ObjectId, wanted: &Value, live: &Value) -> Option<Value> {
    let project = id.kind == Kind::AppProject && id.name == PROJECT;
    (project && is_passed_over(wanted, live)).then(|| json!({"spec": {"sourceIntegrity": null}}))
}

/// The patch of our `keys` of an object that others write, too; of the key ring it takes with it what is [`left`].
pub fn patch(id: &ObjectId, keys: &Value, live: &Value) -> Value {
    let mut patch = keys.clone();
    let ring = id.kind == Kind::ConfigMap && id.name == KEYRING;
    let Some(before) = told(live).filter(|_| ring) else {
        return patch;
    };
    for key in gone(before, keys, live) {
        patch["data"][key] = Value::Null;
    }
    if told(keys).is_none() {
        patch["metadata"]["annotations"][OURS] = Value::Null;
    }
    patch
}

/// The data of a ConfigMap that a snapshot has; of the key ring what others had in it then, with our keys as they are wanted now.
pub fn known(id: &ObjectId, wanted: &Value, fields: &Value) -> Value {
    let data = fields.get("data").and_then(Value::as_object);
    let mut data = data.cloned().unwrap_or_default();
    if id.name == KEYRING {
        for key in told(fields).unwrap_or_default().split(',') {
            data.remove(key);
        }
        let ours = wanted.get("data").and_then(Value::as_object);
        let ours = ours.into_iter().flatten();
        data.extend(ours.map(|(key, value)| (key.clone(), value.clone())));
    }
    Value::Object(data)
}

/// Whether a project that is there wants the signatures that it has to want.
pub fn asks(wanted: &Value, live: &Value) -> bool {
    let keys = wanted.pointer(WANTED);
    keys.is_none_or(|keys| live.pointer(WANTED) == Some(keys) && !is_passed_over(wanted, live))
}

/// Whether the keys of ours that a project is to name would not be looked at.
fn is_passed_over(wanted: &Value, live: &Value) -> bool {
    let git = live.pointer(INSTEAD).and_then(|instead| instead.get("git"));
    told(wanted).is_some() && git.is_some_and(|git| !git.is_null())
}

/// Whether projects of this version can name keys: of a field that the API server does not know nothing stays.
pub fn knows(bundle: &Bundle) -> bool {
    const FIELDS: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let crd = ObjectId::crd_of(Kind::AppProject);
    let mut objects = bundle.objects.iter();
    let crd = objects.find(|o| place(o.head()).as_ref() == Some(&crd));
    crd.is_none_or(|crd| {
        let whole = crd.whole();
        let fields = whole.pointer(FIELDS);
        fields.is_none_or(|fields| fields.get("signatureKeys").is_some())
    })
}

/// Whether the controller that compares was told to look at no signature; a value that comes from elsewhere may say so.
pub fn is_off(controller: &Value) -> bool {
    let containers = controller.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let env = containers
        .filter_map(|c| c.get("env")?.as_array())
        .flatten();
    let mut switches = env.filter(|e| e.get("name").and_then(Value::as_str) == Some(SWITCH));
    switches.any(|e| match e.get("value").and_then(Value::as_str) {
        Some(value) => ["false", "no"]
            .iter()
            .any(|off| value.eq_ignore_ascii_case(off)),
        None => e.get("valueFrom").is_some(),
    })
}

fn id_of(print: &str) -> &str {
    let at = print.len().saturating_sub(DIGITS);
    print.get(at..).unwrap_or(print)
}

fn openpgp(signers: &[SignerRef]) -> impl Iterator<Item = &SignerRef> {
    signers.iter().filter(|s| !s.is_ssh())
}

fn named(signers: &[SignerRef]) -> String {
    let ids: BTreeSet<&str> = openpgp(signers).map(|s| id_of(&s.fingerprint)).collect();
    ids.into_iter().collect::<Vec<_>>().join(",")
}

/// The primary keys that an object names as ours.
fn told(object: &Value) -> Option<&str> {
    object.pointer("/metadata/annotations")?.get(OURS)?.as_str()
}

/// Those of `before` that are still there and wanted no more.
fn gone<'a>(
    before: &'a str,
    wanted: &'a Value,
    live: &'a Value,
) -> impl Iterator<Item = &'a str> + 'a {
    let data = |object: &'a Value| object.get("data").and_then(Value::as_object);
    let has =
        |data: Option<&Map<String, Value>>, key: &str| data.is_some_and(|d| d.contains_key(key));
    let (wanted, live) = (data(wanted), data(live));
    let keys = before.split(',');
    keys.filter(move |key| has(live, key) && !has(wanted, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::tests::desired_of;
    use crate::wire::api::EngineKind;

    fn signer(seed: char, subkeys: &[char]) -> SignerRef {
        let print = |seed: &char| seed.to_string().repeat(40);
        SignerRef {
            fingerprint: print(&seed),
            public_key: format!("armor of {seed}"),
            subkeys: subkeys.iter().map(print).collect(),
        }
    }

    fn id(kind: Kind, name: &str) -> ObjectId {
        ObjectId::new(kind, "argocd", name)
    }

    fn ring(signers: &[SignerRef]) -> (Value, Value) {
        let bundled = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": KEYRING, "namespace": "argocd", "labels": {"app.kubernetes.io/name": KEYRING}},
        });
        keyring(Some(bundled), "argocd", signers).unwrap()
    }

    /// W43: of subkeys the project has the IDs, the ring has each key once.
    #[test]
    fn a_project_names_every_key_and_the_ring_has_the_primary_ones() {
        let signers = [signer('B', &['C']), signer('A', &[])];
        let spec = json!({"spec": {"sourceRepos": ["*"]}});
        let [a, b, c] = ["A", "B", "C"].map(|seed| seed.repeat(16));
        let signed = json!({
            "metadata": {"annotations": {OURS: format!("{a},{b}")}},
            "spec": {"sourceRepos": ["*"], "signatureKeys": [{"keyID": a}, {"keyID": b}, {"keyID": c}]},
        });
        assert_eq!(project(spec.clone(), &signers), signed);
        assert_eq!(project(spec.clone(), &[]), spec);

        let (whole, keys) = ring(&signers);
        let ours = json!({
            "metadata": {
                "labels": {"app.kubernetes.io/part-of": "argocd"}, "annotations": {OURS: format!("{a},{b}")},
            },
            "data": {a.as_str(): "armor of A", b.as_str(): "armor of B"},
        });
        assert_eq!(keys, ours);
        assert_eq!(
            whole["metadata"]["labels"]["app.kubernetes.io/name"],
            KEYRING
        );
        assert_eq!(
            (&whole["data"], &whole["kind"]),
            (&ours["data"], &json!("ConfigMap"))
        );
        let (_, none) = ring(&[]);
        let label = json!({"metadata": {"labels": {"app.kubernetes.io/part-of": "argocd"}}});
        assert_eq!(none, label);
        assert_eq!(keyring(None, "argocd", &[]), None);
        let (made, _) = keyring(None, "argocd", &signers).unwrap();
        assert_eq!(made["metadata"]["name"], KEYRING);
    }

    /// W43: a key of ours goes when it is wanted no more, also when nobody saw how that came; people's stay.
    #[test]
    fn only_our_keys_go() {
        let (a, b, theirs) = ("A".repeat(16), "B".repeat(16), "0".repeat(16));
        let map = id(Kind::ConfigMap, KEYRING);
        let mut live = ring(&[signer('A', &[]), signer('B', &[])]).0;
        live["data"][&theirs] = json!("people's");
        let both = &ring(&[signer('A', &[]), signer('B', &[])]).1;
        let (one, none) = (&ring(&[signer('A', &[])]).1, &ring(&[]).1);
        let at = |key: &str| format!("/data/{key}");
        let mark = "/metadata/annotations/linesman.dev~1signers".to_owned();
        assert_eq!(left(&map, both, &live), [] as [String; 0]);
        assert_eq!(left(&map, one, &live), [at(&b)]);
        assert_eq!(left(&map, none, &live), [at(&a), at(&b), mark]);
        assert_eq!(patch(&map, both, &live), *both);
        let mut expected = one.clone();
        expected["data"][&b] = Value::Null;
        assert_eq!(patch(&map, one, &live), expected);
        let gone = patch(&map, none, &live);
        assert_eq!(gone["data"], json!({a.as_str(): null, b.as_str(): null}));
        assert_eq!(gone["metadata"]["annotations"], json!({OURS: null}));
        // Nothing in it is by the hub's word.
        let plain = json!({"data": {theirs.as_str(): "people's"}});
        assert_eq!(left(&map, none, &plain), [] as [String; 0]);
        assert_eq!(patch(&map, none, &plain), *none);

        let of_project = id(Kind::AppProject, PROJECT);
        let signed = project(json!({"spec": {}}), &[signer('A', &[])]);
        let owners = json!({"spec": {"signatureKeys": [{"keyID": theirs}]}});
        let open = json!({"spec": {}});
        assert_eq!(left(&of_project, &open, &signed), [WANTED]);
        assert_eq!(left(&of_project, &signed, &signed), [] as [String; 0]);
        assert_eq!(left(&of_project, &open, &owners), [] as [String; 0]);
        assert!(asks(&signed, &signed) && asks(&open, &owners));
        assert!(!asks(&signed, &owners) && !asks(&signed, &open));
    }

    /// W43: Argo CD knows no SSH keys, and with an empty list it would look at no signature.
    #[test]
    fn with_ssh_keys_alone_nothing_is_applied() {
        let ssh = SignerRef {
            fingerprint: "SHA256:abc".to_owned(),
            public_key: "ssh-ed25519 AAAA".to_owned(),
            subkeys: Vec::new(),
        };
        let spec = || json!({"spec": {}});
        let alone = project(spec(), std::slice::from_ref(&ssh));
        let nobody = json!([{"keyID": "0".repeat(16)}]);
        assert_eq!(alone["spec"]["signatureKeys"], nobody);
        assert!(asks(&alone, &alone) && !asks(&alone, &spec()));
        assert_eq!(ring(std::slice::from_ref(&ssh)), ring(&[]));
        assert_eq!(keyring(None, "argocd", std::slice::from_ref(&ssh)), None);
        let both = [ssh, signer('A', &[])];
        assert_eq!(project(spec(), &both), project(spec(), &both[1..]));
        assert_eq!(ring(&both), ring(&both[1..]));
    }

    /// W43: since Argo CD 3.5 a project's policies go before its keys, also where they ask for nothing.
    #[test]
    fn policies_with_which_the_keys_are_passed_over_go() {
        let of_project = id(Kind::AppProject, PROJECT);
        let (signed, open) = (
            project(json!({"spec": {}}), &[signer('A', &[])]),
            json!({"spec": {}}),
        );
        let with = |project: &Value, integrity: Value| {
            let mut project = project.clone();
            project["spec"]["sourceIntegrity"] = integrity;
            project
        };
        let none = json!({"git": {"policies": []}});
        let live = with(&signed, none.clone());
        assert_eq!(left(&of_project, &signed, &live), [INSTEAD]);
        let gone = json!({"spec": {"sourceIntegrity": null}});
        assert_eq!(withdrawn(&of_project, &signed, &live), Some(gone));
        assert!(!asks(&signed, &live));
        // Where nobody signs it is the owner's, and what is of no repository passes nothing over.
        let owners = with(&open, none);
        assert_eq!(left(&of_project, &open, &owners), [] as [String; 0]);
        assert!(asks(&open, &owners));
        for other in [json!({}), json!({"git": null}), json!({"helm": {}})] {
            let live = with(&signed, other);
            assert_eq!(withdrawn(&of_project, &signed, &live), None, "{live}");
            assert!(asks(&signed, &live), "{live}");
        }
        let shop = id(Kind::AppProject, "shop");
        assert_eq!(withdrawn(&shop, &signed, &live), None);
    }

    /// A snapshot says nothing of who signs: to go back to it would take a new signer's key away.
    #[test]
    fn last_known_good_is_with_the_signers_of_now() {
        let (b, theirs) = ("B".repeat(16), "0".repeat(16));
        let mut before = ring(&[signer('A', &[])]).0;
        before["data"][&theirs] = json!("people's");
        let now = ring(&[signer('B', &[])]).1;
        assert_eq!(
            known(&id(Kind::ConfigMap, KEYRING), &now, &before),
            json!({b.as_str(): "armor of B", theirs.as_str(): "people's"})
        );
        let other = json!({"data": {"a": "b"}});
        let of_other = id(Kind::ConfigMap, "argocd-cm");
        assert_eq!(known(&of_other, &now, &other), json!({"a": "b"}));
        assert_eq!(known(&of_other, &now, &json!({})), json!({}));
    }

    #[test]
    fn a_version_without_the_field_does_not_verify() {
        let bundle = desired_of(EngineKind::Argocd).install.bundle;
        assert!(knows(&bundle));
        for (fields, expected) in [
            (json!({"signatureKeys": {"type": "array"}}), true),
            (json!({"sourceRepos": {"type": "array"}}), false),
        ] {
            let crd = ObjectId::crd_of(Kind::AppProject);
            let objects = bundle.objects.iter().map(|o| {
                let mut object = o.whole().into_owned();
                if place(&object).as_ref() == Some(&crd) {
                    let schema = json!({"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}});
                    object["spec"] = json!({"versions": [{"name": "v1alpha1", "schema": schema}]});
                }
                object
            });
            let bundle = Bundle::from_objects(objects.collect()).unwrap();
            assert_eq!(knows(&bundle), expected, "{fields}");
        }
    }

    #[test]
    fn verification_that_is_switched_off_is_seen() {
        let of = |env: Value| {
            is_off(
                &json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "env": env}]}}}}),
            )
        };
        let value = |value: &str| json!([{"name": SWITCH, "value": value}]);
        assert!(of(value("false")) && of(value("FALSE")) && of(value("No")));
        assert!(!of(value("true")) && !of(value("")) && !of(json!([])));
        assert!(of(
            json!([{"name": SWITCH, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}])
        ));
        assert!(!of(json!([{"name": "OTHER", "value": "false"}])));
        assert!(!is_off(&Value::Null));
    }
}
