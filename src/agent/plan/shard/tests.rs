use serde_json::json;
use time::OffsetDateTime;

use super::*;
use crate::agent::plan::tests::Cluster;
use crate::bundle::Kind;

/// What there is to see where kustomize-controller's containers are these.
fn with(containers: &Value) -> (Observed, ObjectId) {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["spec"]["template"]["spec"]["containers"] = containers.clone();
    (cluster.observed(), id)
}

fn manager(args: &Value) -> Value {
    json!([{"name": "manager", "args": args}])
}

/// The hashes are those of `printf '%s' SELECTOR | sha256sum | cut -c1-8`.
#[test]
fn a_lease_is_called_as_the_arguments_of_its_controller_have_it() {
    let sidecar = json!([
        {"name": "proxy", "args": ["--watch-label-selector=a"]},
        {"name": "manager", "args": ["--watch-label-selector=!sharding.fluxcd.io/key"]},
    ]);
    let flag = "--watch-label-selector";
    for (containers, hash) in [
        (manager(&json!([])), ""),
        (json!([{"name": "manager"}]), ""),
        (json!([]), ""),
        (manager(&json!(["--watch-label-selector="])), ""),
        (manager(&json!([flag])), ""),
        (manager(&json!(["--watch-label-selector-of=a"])), ""),
        (
            manager(&json!([
                "--log-level=info",
                "--watch-label-selector=!sharding.fluxcd.io/key",
                "--enable-leader-election"
            ])),
            "-42da7484",
        ),
        (
            manager(&json!([
                flag,
                "!sharding.fluxcd.io/key",
                "--log-level=info"
            ])),
            "-42da7484",
        ),
        (
            manager(&json!([
                "--watch-label-selector=sharding.fluxcd.io/key=shard1"
            ])),
            "-73fdc1be",
        ),
        (
            manager(&json!([
                "--watch-label-selector=a",
                flag,
                "sharding.fluxcd.io/key=shard1"
            ])),
            "-73fdc1be",
        ),
        (sidecar, "-42da7484"),
        (
            json!([{"name": "other", "args": [flag, "sharding.fluxcd.io/key=shard1"]}]),
            "-73fdc1be",
        ),
    ] {
        let (observed, id) = with(&containers);
        let expected = format!("kustomize-controller-leader-election{hash}");
        assert_eq!(observed.lease_name(&id), expected, "{containers}");
    }
    let (_, id) = with(&json!([]));
    let unknown = Observed::default();
    assert_eq!(
        unknown.lease_name(&id),
        "kustomize-controller-leader-election"
    );
}

/// F13: a Lease that was left behind when the arguments were others says nothing.
#[test]
fn only_the_lease_of_the_present_arguments_tells_who_leads() {
    let lease = |holder: &str| Lease {
        uid: "u".to_owned(),
        holder: holder.to_owned(),
        acquired: None,
        renewed: OffsetDateTime::UNIX_EPOCH,
        seen: OffsetDateTime::UNIX_EPOCH,
    };
    let plain = "kustomize-controller-leader-election";
    let leases = ["", "-42da7484", "-73fdc1be"].map(|hash| {
        let name = format!("{plain}{hash}");
        (name.clone(), lease(&name))
    });
    for (args, hash) in [
        (json!([]), ""),
        (
            json!(["--watch-label-selector=!sharding.fluxcd.io/key"]),
            "-42da7484",
        ),
    ] {
        let (mut observed, id) = with(&manager(&args));
        observed.leases = leases.clone().into();
        let expected = lease(&format!("{plain}{hash}"));
        assert_eq!(observed.lease(&id), Some(&expected), "{args}");
    }
}

#[test]
fn a_selector_leaves_out_what_is_of_another_shard() {
    for (selector, seen) in [
        // Of no shard, of shard1, of shard2, of one without a name.
        ("", [true, true, true, true]),
        ("!sharding.fluxcd.io/key", [true, false, false, false]),
        ("! sharding.fluxcd.io/key", [true, false, false, false]),
        ("sharding.fluxcd.io/key", [false, true, true, true]),
        ("sharding.fluxcd.io/key=shard1", [false, true, false, false]),
        (
            "sharding.fluxcd.io/key == shard1",
            [false, true, false, false],
        ),
        ("sharding.fluxcd.io/key=", [false, false, false, true]),
        ("sharding.fluxcd.io/key!=shard1", [true, false, true, true]),
        (
            "sharding.fluxcd.io/key in (shard1, shard2)",
            [false, true, true, false],
        ),
        (
            "sharding.fluxcd.io/key notin (shard1,shard2)",
            [true, false, false, true],
        ),
        (
            "sharding.fluxcd.io/key notin(shard1),team in (a,b),sharding.fluxcd.io/key",
            [false, false, true, true],
        ),
        // Of other labels nothing is known.
        (
            "team=a,!sharding.fluxcd.io/key",
            [true, false, false, false],
        ),
        ("team in (a,b),!team,team", [true, true, true, true]),
        ("sharding.fluxcd.io/keys", [true, true, true, true]),
    ] {
        let shard = |labels: Value| {
            let mut object = json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": "app", "namespace": "apps"},
            });
            object["metadata"]["labels"] = labels;
            Shard::of(&serde_json::from_value(object).unwrap())
        };
        let shards = [
            json!({"team": "b"}),
            json!({KEY: "shard1"}),
            json!({KEY: "shard2"}),
            json!({KEY: ""}),
        ];
        let found = shards.map(|labels| shard(labels).is_seen_with(Some(selector)));
        assert_eq!(found, seen, "{selector}");
    }
    assert!(Shard::named("shard1").is_seen_with(None));
}

/// W18: as the API server takes a selector (apimachinery, `labels`).
#[test]
fn a_controller_hears_of_what_its_selector_selects() {
    for (selector, heard) in [
        ("", true),
        ("team", true),
        ("team=a", true),
        ("team == a", true),
        ("team=b", false),
        ("team!=a", false),
        ("team!=b", true),
        ("!team", false),
        ("team in (b, a)", true),
        ("team in (b)", false),
        ("team notin (a,b)", false),
        ("team notin (b)", true),
        ("env", false),
        ("env=a", false),
        ("env!=a", true),
        ("!env", true),
        ("env in (a)", false),
        ("env notin (a)", true),
        ("team=a,!env", true),
        ("team=a,env", false),
        ("nothing=such", false),
    ] {
        let (observed, id) = with(&manager(&json!([format!("{SELECTOR}={selector}")])));
        let mut object = observed.objects[&id].as_ref().clone();
        object.fields["metadata"]["labels"] = json!({"team": "a"});
        assert_eq!(observed.is_selected(&id, &object), heard, "{selector}");
    }
}

#[test]
fn who_has_no_labels_is_of_no_selector_that_names_one() {
    for (args, heard) in [
        (json!([]), true),
        (json!(["--watch-label-selector=team"]), false),
    ] {
        let (observed, id) = with(&manager(&args));
        let mut object = observed.objects[&id].as_ref().clone();
        object.fields["metadata"] = json!({});
        assert_eq!(observed.is_selected(&id, &object), heard, "{args}");
    }
}
